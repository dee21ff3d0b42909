"""How each data set is scored: the published metrics, each in the variants that are in use, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ...core.errors import UnknownNameError
from .base import BaseMetric, Metric, Tally
from .gqa import GQA_VARIANTS, Choices, GQAMetric
from .statements import COVRMetric, NLVR2Metric, NLVRMetric
from .vqa import OKVQA_VARIANTS, VQAV2_VARIANTS, VQAMetric

__all__ = ["VARIANTS", "BaseMetric", "Metric", "Tally", "metric_for"]

_TRUTH = ("", "release")
VARIANTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gqa": tuple(GQA_VARIANTS),
        "covr": _TRUTH,
        "nlvr2": _TRUTH,
        "nlvr": _TRUTH,
        "vqav2": tuple(VQAV2_VARIANTS),
        "okvqa": tuple(OKVQA_VARIANTS),
    }
)
"""Variants by data set; the empty one is the default, and "release" scores as the paper's release does."""


def metric_for(dataset: str, variant: str = "", *, choices: Choices | Path | None = None) -> Metric:
    """Returns the metric of a data set.

    Args:
        dataset: a name in ``VARIANTS``.
        variant: one of its variants.
        choices: for GQA, the file of valid and plausible answers, or a function that yields what it holds; there is
            one for train and val.

    Raises:
        UnknownNameError: no such data set or variant.
    """
    if dataset not in VARIANTS:
        raise UnknownNameError(f"There is no metric for {dataset!r}.", hint=f"Known: {', '.join(VARIANTS)}.")
    if variant not in VARIANTS[dataset]:
        known = ", ".join(name or '""' for name in VARIANTS[dataset])
        raise UnknownNameError(f"The metric of {dataset} has no variant {variant!r}.", hint=f"Known: {known}.")
    if dataset == "gqa":
        return GQAMetric(variant, choices=choices)
    if dataset in ("vqav2", "okvqa"):
        return VQAMetric(variant, VQAV2_VARIANTS if dataset == "vqav2" else OKVQA_VARIANTS)
    return {"covr": COVRMetric, "nlvr2": NLVR2Metric, "nlvr": NLVRMetric}[dataset](variant)
