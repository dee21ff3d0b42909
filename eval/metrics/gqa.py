"""GQA (Hudson and Manning, CVPR 2019): exact match, and its five figures about a whole run.

The figures follow the evaluation script of https://cs.stanford.edu/people/dorarad/gqa/evaluate.html: like it they look
at balanced questions only, wherever a record says which those are. Where the script needs an input that is not there
it stops, or prints 0 %; here the figure is None and ``reasons`` says why.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from ..statistics import Interval, mean_of
from ..task import Example
from . import text
from .base import ExactMatch, Figure, Readings


def _plain_answer(answer: str) -> str:
    return answer.strip().rstrip(".").lower()


GQA_VARIANTS: Readings = {
    "": ("exact match", _plain_answer, _plain_answer),
    "official": ("exact match (official: letter by letter)", str, str),
    "lmms": ("exact match (lmms-eval: no case, no punctuation)", text.lmms_exact, text.lmms_exact),
    # Rewrites the prediction only, so that an answer such as "t-shirt" can never be right.
    "release": ("exact match (paper's release)", text.release, str),
}
Choices: TypeAlias = Callable[[], Iterable[tuple[str, Mapping[str, Any]]]]
"""Yields ids of questions with ``{"valid": […], "plausible": […]}``."""
_COMMON = frozenset(("color", "material", "shape"))


class GQAMetric(ExactMatch):
    """Exact match on GQA.

    Args:
        variant: one of the variants.
        variants: the variants of the data set.
        choices: yields what ``val_choices.json`` of GQA's ``eval.zip`` holds; None leaves validity and plausibility
            out.
    """

    reasons: ClassVar = {
        "consistency": "needs an answer to every question entailed by one answered right, and those are in the "
        "file of all questions, not in that of the balanced ones",
        "validity": "needs choices for every question; GQA's eval.zip has them for train and val",
        "plausibility": "needs choices for every question; GQA's eval.zip has them for train and val",
        "distribution": "needs gold answers and groups",
        "balanced": "needs gold answers",
    }

    def __init__(self, variant: str, variants: Readings, choices: Choices | None = None) -> None:
        super().__init__(variant, variants)
        self.choices = choices

    def corpus(self, answered: Iterable[tuple[Example, str]]) -> dict[str, Figure]:
        """Returns accuracy on balanced questions, consistency, validity, plausibility and distribution.

        All are shares of 1 but the distribution, which is a chi-square score where lower is better. Questions without
        a gold answer count towards validity and plausibility only.
        """
        right: dict[str, bool] = {}
        hits: list[tuple[bool, str]] = []  # of balanced questions, each with its cluster
        entailed: list[tuple[list[str], str]] = []  # by a right answer, with its cluster
        judged: dict[str, tuple[str, bool, str]] = {}  # prediction, whether a common attribute is asked for, cluster
        golds, finds = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
        for example, prediction in answered:
            record, cluster = example.record, example.cluster or example.id
            balanced = bool(record.get("isBalanced", True))
            text, score = self.prediction(prediction), self.score(example, prediction)
            if balanced and self.choices:
                common = "Common" in str((record.get("types") or {}).get("detailed", ""))
                judged[example.id] = text, common, cluster
            if score is None:
                continue
            right[example.id] = score == 1
            if not balanced:
                continue
            hits.append((score == 1, cluster))
            group = (record.get("groups") or {}).get("global")
            if group is not None:
                golds[group][self.gold(example.gold[0])] += 1
                finds[group][text] += 1
            others = [id for id in record.get("entailed") or () if id != example.id]
            if score and others:
                entailed.append((others, cluster))
        validity, plausibility = self._judge_choices(judged)
        return {
            "balanced": mean_of(hits),
            "consistency": _consistency(right, entailed),
            "validity": validity,
            "plausibility": plausibility,
            "distribution": _chi_square(golds, finds),
        }

    def _judge_choices(self, judged: Mapping[str, tuple[str, bool, str]]) -> tuple[Interval | None, Interval | None]:
        """Shares of answers that are valid, and that are plausible; None where any question has no choices."""
        valid: list[tuple[bool, str]] = []
        plausible: list[tuple[bool, str]] = []
        for id, record in self.choices() if self.choices and judged else ():
            if id in judged:
                text, common, cluster = judged[id]
                valid.append((text in (_COMMON if common else record.get("valid", ())), cluster))
                plausible.append((text in (_COMMON if common else record.get("plausible", ())), cluster))
        return (mean_of(valid), mean_of(plausible)) if len(valid) == len(judged) else (None, None)


def _consistency(right: Mapping[str, bool], entailed: Sequence[tuple[list[str], str]]) -> Interval | None:
    """Mean, over balanced questions answered right that entail others, of the share of those answered right."""
    if not all(other in right for others, _ in entailed for other in others):
        return None
    return mean_of((sum(right[other] for other in others) / len(others), cluster) for others, cluster in entailed)


def _chi_square(gold: Mapping[str, Counter[str]], predicted: Mapping[str, Counter[str]]) -> float | None:
    """Chi-square distance of predicted from gold answers, averaged over groups by their size, over 100."""
    total = sum(answers.total() for answers in gold.values())
    if not total:
        return None
    score = 0.0
    for group, answers in gold.items():
        distance = sum((predicted[group][answer] - count) ** 2 / count for answer, count in answers.items())
        score += distance * answers.total()
    return score / total / 100
