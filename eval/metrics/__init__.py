"""How each data set is scored: the published metrics, each in the variants that are in use, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.errors import UnknownNameError
from .base import ExactMatch, Metric, Readings
from .gqa import GQA_VARIANTS, Choices, GQAMetric
from .own import OwnMatch
from .statements import (
    COLLECTION_VARIANTS,
    COVR_VARIANTS,
    OWN_VARIANTS,
    TRUTH_VARIANTS,
    CollectionMetric,
    GroupMetric,
)
from .vqa import OKVQA_VARIANTS, VQAV2_VARIANTS, VQAMetric

__all__ = ["VARIANTS", "Metric", "metric_for"]


def _own_metric(variant: str, variants: Readings) -> Metric:
    if variant == "vqa":
        return VQAMetric("", VQAV2_VARIANTS)
    return ExactMatch(variant, variants) if variant else OwnMatch()


_METRICS: Mapping[str, tuple[Callable[..., Metric], Mapping[str, Any]]] = {
    "gqa": (GQAMetric, GQA_VARIANTS),
    "covr": (ExactMatch, COVR_VARIANTS),
    "nlvr2": (GroupMetric, TRUTH_VARIANTS),
    "nlvr": (GroupMetric, TRUTH_VARIANTS),
    "vqav2": (VQAMetric, VQAV2_VARIANTS),
    "okvqa": (VQAMetric, OKVQA_VARIANTS),
    "collections": (CollectionMetric, COLLECTION_VARIANTS),
    "vhs": (ExactMatch, TRUTH_VARIANTS),
    "own": (_own_metric, {"": None, **OWN_VARIANTS, "vqa": None}),
}
VARIANTS: Mapping[str, tuple[str, ...]] = {name: tuple(all) for name, (_, all) in _METRICS.items()}
"""Variants by data set; the empty one is the default, and "release" scores as the paper's release does."""


def metric_for(dataset: str, variant: str = "", *, choices: Choices | None = None) -> Metric:
    """Returns the metric of a data set.

    Args:
        dataset: a name in ``VARIANTS``; a data set of a plugin, ``package/name``, is scored as one's own questions.
        variant: one of its variants.
        choices: for GQA, yields what the file of valid and plausible answers holds; there is one for train and val.

    Raises:
        UnknownNameError: no such data set or variant.
    """
    dataset = "own" if "/" in dataset else dataset
    if dataset not in VARIANTS:
        raise UnknownNameError(f"There is no metric for {dataset!r}.", hint=f"Known: {', '.join(VARIANTS)}.")
    if variant not in VARIANTS[dataset]:
        raise UnknownNameError.of(f"variant of the metric of {dataset}", variant, filter(None, VARIANTS[dataset]))
    make, variants = _METRICS[dataset]
    return make(variant, variants, *([choices] if dataset == "gqa" else []))
