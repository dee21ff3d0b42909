"""How each data set is scored: the published metrics, each in the variants that are in use, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from ...core.errors import UnknownNameError
from .base import ExactMatch, Metric
from .collections import COLLECTION_VARIANTS, CollectionMetric
from .gqa import GQA_VARIANTS, Choices, GQAMetric
from .statements import COVR_VARIANTS, OWN_VARIANTS, TRUTH_VARIANTS, GroupMetric
from .vqa import OKVQA_VARIANTS, VQAV2_VARIANTS, VQAMetric

__all__ = ["VARIANTS", "Metric", "metric_for"]


def _own(variant: str) -> Metric:
    return VQAMetric("", VQAV2_VARIANTS) if variant == "vqa" else ExactMatch(variant, OWN_VARIANTS)


_METRICS: dict[str, tuple[Callable[..., Metric], Mapping[str, Any]]] = {
    "gqa": (GQAMetric, GQA_VARIANTS),
    "covr": (partial(ExactMatch, variants=COVR_VARIANTS), COVR_VARIANTS),
    "nlvr2": (partial(GroupMetric, variants=TRUTH_VARIANTS), TRUTH_VARIANTS),
    "nlvr": (partial(GroupMetric, variants=TRUTH_VARIANTS), TRUTH_VARIANTS),
    "vqav2": (partial(VQAMetric, variants=VQAV2_VARIANTS), VQAV2_VARIANTS),
    "okvqa": (partial(VQAMetric, variants=OKVQA_VARIANTS), OKVQA_VARIANTS),
    "collections": (CollectionMetric, COLLECTION_VARIANTS),
    "vhs": (partial(ExactMatch, variants=TRUTH_VARIANTS), TRUTH_VARIANTS),
    "own": (_own, {**OWN_VARIANTS, "vqa": None}),
}
VARIANTS: Mapping[str, tuple[str, ...]] = MappingProxyType({name: tuple(all) for name, (_, all) in _METRICS.items()})
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
    make = _METRICS[dataset][0]
    return make(variant, choices=choices) if dataset == "gqa" else make(variant)
