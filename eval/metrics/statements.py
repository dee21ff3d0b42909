"""COVR, NLVR2, NLVR, collections, your own questions: exact match, and more where questions go together.

For NLVR2 and NLVR it is consistency over groups of rows; for collections, by how much counts are wrong, and which
pictures were selected.

Sources: Bogin et al., EMNLP 2021 (COVR); Suhr et al., ACL 2017 (NLVR) and ACL 2019 (NLVR2), with the scripts
``metrics.py`` and ``metrics_images.py`` of https://github.com/lil-lab/nlvr. The paper's release stores True and False
as yes and no, and does not read them in predictions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from statistics import fmean
from typing import ClassVar

from ..statistics import mean_of
from ..task import Example
from . import text
from .base import ExactMatch, Figure, Readings


def _plain_truth(prediction: str) -> str:
    return text.yes_no(prediction.strip().rstrip(".").lower())


def number_text(prediction: str) -> str:
    """Returns an answer without case and full stop, True and False as yes and no, number words as digits."""
    read = _plain_truth(prediction)
    return text.NUMBERS.get(read, read)


def _members(text: str) -> str:
    return ", ".join(sorted(map(number_text, text.split(", "))))


_RELEASE = ("exact match (paper's release)", text.release, text.yes_no)
TRUTH_VARIANTS: Readings = {
    "": ("exact match (True and False read as yes and no)", _plain_truth, _plain_truth),
    "release": _RELEASE,
}
COVR_VARIANTS: Readings = {
    "": ("exact match (True and False read as yes and no, number words as digits)", number_text, number_text),
    "release": _RELEASE,
}
OWN_VARIANTS: Readings = {
    "strict": ("exact match (as written)", str.strip, str.strip),
    "release": _RELEASE,
}
COLLECTION_VARIANTS: Readings = {"": ("exact match (lists in any order, number words as digits)", _members, _members)}


class GroupMetric(ExactMatch):
    """Accuracy and consistency on NLVR2 and NLVR: a sentence counts where all that it is said of is judged rightly."""

    reasons: ClassVar = {
        "consistency": "needs gold labels, and the official identifiers, which say what belongs together"
    }

    def corpus(self, answered: Iterable[tuple[Example, str]]) -> dict[str, Figure]:
        """Returns the share of groups in which every row was right; None where rows do not name their group."""
        groups: dict[str, tuple[bool, str]] = {}  # whether all of it is right so far, and the cluster
        for example, prediction in answered:
            score = self.score(example, prediction)
            if score is not None:
                right, cluster = groups.get(example.group, (True, example.cluster or example.group))
                groups[example.group] = right and score == 1, cluster
        return {"consistency": None if "" in groups else mean_of(groups.values())}


class CollectionMetric(ExactMatch):
    """Exact match, with the absolute error of counts, and the F1 of pictures."""

    reasons: ClassVar = {
        "count_error": "needs questions whose answer is a number",
        "picture_f1": "needs gold pictures, and answers that name or count pictures",
    }

    def corpus(self, answered: Iterable[tuple[Example, str]]) -> dict[str, Figure]:
        """Returns the mean absolute error of counts."""
        errors = [error for example, number in answered if (error := count_error(example, number)) is not None]
        return {"count_error": fmean(errors) if errors else None}

    def picture_figures(self, selections: Iterable[tuple[Example, Sequence[int]]]) -> dict[str, Figure]:
        """Returns the mean F1 of the pictures that answers name or count."""
        scores = [(f1(example.record["pictures"], numbers), example.cluster) for example, numbers in selections]
        return {"picture_f1": mean_of(scores)}


def count_error(example: Example, prediction: str) -> float | None:
    """Returns how far a prediction is from a count; one that is no number says 0. None where no count is asked."""
    if not example.gold or not example.gold[0].isdigit():
        return None
    number = number_text(prediction)
    return float(abs(int(example.gold[0]) - (int(number) if number.isdecimal() else 0)))


def f1(gold: Collection[int], picked: Collection[int]) -> float:
    """Returns the harmonic mean of precision and recall; 1 where nothing counts and nothing was picked."""
    both = len({*gold} & {*picked})
    return 2 * both / (len(gold) + len(picked)) if gold or picked else 1.0
