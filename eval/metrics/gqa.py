"""GQA (Hudson and Manning, CVPR 2019): exact match, and its figures about a whole run.

The figures follow the evaluation script of https://cs.stanford.edu/people/dorarad/gqa/evaluate.html: like it they look
at balanced questions only, wherever a record says which those are. Where the script needs an input that is not there
it stops, or prints 0 %; here the figure is None and ``reasons`` says why. Its validity and plausibility are left out:
they need choices, which exist for train and val only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ..statistics import Interval, mean_of
from ..task import Example
from . import text
from .base import ExactMatch, Figure, Reading


def _plain(answer: str) -> str:
    return answer.strip().rstrip(".").lower()


GQA_VARIANTS: Mapping[str, Reading] = MappingProxyType(
    {
        "": ("exact match", _plain, _plain),
        "official": ("exact match (official: letter by letter)", str, str),
        "lmms": ("exact match (lmms-eval: no case, no punctuation)", text.lmms_exact, text.lmms_exact),
        # Rewrites the prediction only, so that an answer such as "t-shirt" can never be right.
        "release": ("exact match (paper's release)", text.release, str),
    }
)


class GQAMetric(ExactMatch):
    """Exact match on GQA, in one of ``GQA_VARIANTS``."""

    reasons = MappingProxyType(
        {
            "consistency": "needs an answer to every question entailed by one answered right, and those are in the "
            "file of all questions, not in that of the balanced ones",
            "distribution": "needs gold answers and groups",
            "balanced": "needs gold answers",
        }
    )

    def corpus(self, answered: Iterable[tuple[Example, str]]) -> dict[str, Figure]:
        """Returns accuracy on balanced questions, consistency and distribution.

        All are shares of 1 but the distribution, which is a chi-square score where lower is better.
        """
        right: dict[str, bool] = {}
        hits: list[tuple[bool, str]] = []  # of balanced questions, each with its cluster
        entailed: list[tuple[list[str], str]] = []  # by a right answer, with its cluster
        golds, finds = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
        for example, prediction in answered:
            record, cluster = example.record, example.cluster or example.id
            score = self.score(example, prediction)
            if score is None:
                continue
            right[example.id] = score == 1
            if not record.get("isBalanced", True):
                continue
            hits.append((score == 1, cluster))
            group = (record.get("groups") or {}).get("global")
            if group is not None:
                golds[group][self.gold(example.gold[0])] += 1
                finds[group][self.prediction(prediction)] += 1
            others = [id for id in record.get("entailed") or () if id != example.id]
            if score and others:
                entailed.append((others, cluster))
        return {
            "balanced": mean_of(hits),
            "consistency": _consistency(right, entailed),
            "distribution": _chi_square(golds, finds),
        }


def _consistency(right: Mapping[str, bool], entailed: Sequence[tuple[list[str], str]]) -> Interval | None:
    """Mean, over balanced questions answered right that entail others, of the share of those answered right."""
    if not all(one in right for others, _ in entailed for one in others):
        return None
    return mean_of((sum(right[one] for one in others) / len(others), cluster) for others, cluster in entailed)


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
