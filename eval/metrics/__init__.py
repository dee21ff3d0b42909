"""How each data set is scored: the published metrics, each in the variants that are in use, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ...core.errors import UnknownNameError
from .base import ExactMatch, Metric
from .gqa import GQA_VARIANTS, GQAMetric
from .statements import COVR_VARIANTS, TRUTH_VARIANTS, GroupMetric
from .vqa import OKVQA_VARIANTS, VQAV2_VARIANTS, VQAMetric

__all__ = ["VARIANTS", "Metric", "metric_for"]

_METRICS: dict[str, tuple[Callable[[Any], Metric], Mapping[str, Any]]] = {
    "gqa": (GQAMetric, GQA_VARIANTS),
    "covr": (ExactMatch, COVR_VARIANTS),
    "nlvr2": (GroupMetric, TRUTH_VARIANTS),
    "nlvr": (GroupMetric, TRUTH_VARIANTS),
    "vqav2": (VQAMetric, VQAV2_VARIANTS),
    "okvqa": (VQAMetric, OKVQA_VARIANTS),
}
VARIANTS: Mapping[str, tuple[str, ...]] = MappingProxyType({name: tuple(all) for name, (_, all) in _METRICS.items()})
"""Variants by data set; the empty one is the default, and "release" scores as the paper's release does."""


def metric_for(dataset: str, variant: str = "") -> Metric:
    """Returns the metric of a data set.

    Args:
        dataset: a name in ``VARIANTS``.
        variant: one of its variants.

    Raises:
        UnknownNameError: no such data set or variant.
    """
    if dataset not in VARIANTS:
        raise UnknownNameError(f"There is no metric for {dataset!r}.", hint=f"Known: {', '.join(VARIANTS)}.")
    if variant not in VARIANTS[dataset]:
        known = ", ".join(name or '""' for name in VARIANTS[dataset])
        raise UnknownNameError(f"The metric of {dataset} has no variant {variant!r}.", hint=f"Known: {known}.")
    make, variants = _METRICS[dataset]
    return make(variants[variant])
