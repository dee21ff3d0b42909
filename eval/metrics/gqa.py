"""GQA (Hudson and Manning, CVPR 2019): exact match, and its five figures about a whole run.

The figures follow the evaluation script of https://cs.stanford.edu/people/dorarad/gqa/evaluate.html: like it they look
at balanced questions only, wherever a record says which those are. Where the script needs an input that is not there
it stops, or prints 0 %; here the figure is None and ``reasons`` says why.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from ..statistics import Interval, mean
from ..task import Example
from . import text
from .base import ExactMatch, Figure, Readings

__all__ = ["GQA_VARIANTS", "Choices", "GQAMetric"]


def _plain(answer: str) -> str:
    return answer.strip().rstrip(".").lower()


GQA_VARIANTS: Readings = MappingProxyType(
    {
        "": ("exact match", _plain, _plain),
        "official": ("exact match (official: letter by letter)", str, str),
        "lmms": ("exact match (lmms-eval: no case, no punctuation)", text.lmms_exact, text.lmms_exact),
        # Rewrites the prediction only, so that an answer such as "t-shirt" can never be right.
        "release": ("exact match (paper's release)", text.release, str),
    }
)
Choices: TypeAlias = Callable[[], Iterable[tuple[str, Mapping[str, Any]]]]
"""Yields ids of questions with ``{"valid": […], "plausible": […]}``."""
_COMMON = frozenset(("color", "material", "shape"))


class GQAMetric(ExactMatch):
    """Exact match on GQA.

    Args:
        variant: one of ``GQA_VARIANTS``.
        choices: yields what ``val_choices.json`` of GQA's ``eval.zip`` holds; None leaves validity and plausibility
            out.
    """

    reasons = MappingProxyType(
        {
            "consistency": "needs an answer to every question entailed by one answered right, and those are in the "
            "file of all questions, not in that of the balanced ones",
            "validity": "needs choices for every question; GQA's eval.zip has them for train and val",
            "plausibility": "needs choices for every question; GQA's eval.zip has them for train and val",
            "distribution": "needs gold answers and groups",
            "balanced": "needs gold answers",
        }
    )

    def __init__(self, variant: str = "", choices: Choices | None = None) -> None:
        super().__init__(variant, GQA_VARIANTS)
        self.choices = choices

    def tally(self) -> GQATally:
        """Returns a new tally."""
        return GQATally(self)


class GQATally:
    """Gathers what GQA's figures need."""

    def __init__(self, metric: GQAMetric) -> None:
        self._metric = metric
        self._right: dict[str, bool] = {}
        self._hits: list[tuple[bool, str]] = []
        """Of balanced questions, each with its cluster."""
        self._entailed: list[tuple[list[str], str]] = []
        """By a right answer, with its cluster."""
        self._said: dict[str, tuple[str, bool, str]] = {}
        """Prediction, whether a common attribute is asked for, and the cluster."""
        self._gold: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._found: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, example: Example, prediction: str) -> None:
        """Takes one answered question; questions without a gold answer count towards validity only."""
        record, cluster = example.record, example.cluster or example.id
        balanced = bool(record.get("isBalanced", True))
        found = self._metric.prediction(prediction)
        if balanced and self._metric.choices is not None:
            common = "Common" in str((record.get("types") or {}).get("detailed", ""))
            self._said[example.id] = (found, common, cluster)
        score = self._metric.score(example, prediction)
        if score is None:
            return
        self._right[example.id] = score == 1
        if not balanced:
            return
        self._hits.append((score == 1, cluster))
        group = (record.get("groups") or {}).get("global")
        if group is not None:
            self._gold[group][self._metric.gold(example.gold[0])] += 1
            self._found[group][found] += 1
        others = [id for id in record.get("entailed") or () if id != example.id]
        if score and others:
            self._entailed.append((others, cluster))

    def result(self) -> dict[str, Figure]:
        """Returns accuracy on balanced questions, consistency, validity, plausibility and distribution.

        All are shares of 1 but the distribution, which is a chi-square score where lower is better.
        """
        validity, plausibility = self._judged()
        return {
            "balanced": _share(self._hits),
            "consistency": self._consistency(),
            "validity": validity,
            "plausibility": plausibility,
            "distribution": _chi_square(self._gold, self._found),
        }

    def _judged(self) -> tuple[Interval | None, Interval | None]:
        """Shares of answers that are valid, and that are plausible; None where any question has no choices."""
        valid: list[tuple[bool, str]] = []
        plausible: list[tuple[bool, str]] = []
        for id, record in self._metric.choices() if self._metric.choices and self._said else ():
            if id in self._said:
                found, common, cluster = self._said[id]
                valid.append((found in (_COMMON if common else record.get("valid", ())), cluster))
                plausible.append((found in (_COMMON if common else record.get("plausible", ())), cluster))
        return (_share(valid), _share(plausible)) if len(valid) == len(self._said) else (None, None)

    def _consistency(self) -> Interval | None:
        """Mean, over balanced questions answered right that entail others, of the share of those answered right."""
        shares = []
        for others, cluster in self._entailed:
            if not all(one in self._right for one in others):
                return None
            shares.append((sum(self._right[one] for one in others) / len(others), cluster))
        return _share(shares)


def _share(found: list[tuple[float, str]] | list[tuple[bool, str]]) -> Interval | None:
    return mean([one for one, _ in found], clusters=[cluster for _, cluster in found]) if found else None


def _chi_square(gold: Mapping[str, Counter[str]], found: Mapping[str, Counter[str]]) -> float | None:
    """Chi-square distance of predicted from gold answers, averaged over groups by their size, over 100."""
    total = sum(answers.total() for answers in gold.values())
    if not total:
        return None
    score = 0.0
    for group, answers in gold.items():
        distance = sum((found[group][answer] - count) ** 2 / count for answer, count in answers.items())
        score += distance * answers.total()
    return score / total / 100
