"""COVR, NLVR2 and NLVR: exact match, and for the last two consistency over groups of rows.

Sources: Bogin et al., EMNLP 2021 (COVR); Suhr et al., ACL 2017 (NLVR) and ACL 2019 (NLVR2), with the scripts
``metrics.py`` and ``metrics_images.py`` of https://github.com/lil-lab/nlvr. The paper's release stores True and False
as yes and no, and does not read them in predictions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..statistics import mean_of
from ..task import Example
from . import text
from .base import ExactMatch, Figure, Readings


def _plain(found: str) -> str:
    return text.yes_no(found.strip().rstrip(".").lower())


def number_text(found: str) -> str:
    """Returns an answer without case and full stop, True and False as yes and no, number words as digits."""
    read = _plain(found)
    return text.NUMBERS.get(read, read)


def _loose(found: str) -> str:
    return text.release(text.yes_no(found.strip()))


_RELEASE = ("exact match (paper's release)", text.release, text.yes_no)
TRUTH_VARIANTS: Readings = {
    "": ("exact match (True and False read as yes and no)", _plain, _plain),
    "release": _RELEASE,
}
COVR_VARIANTS: Readings = {
    "": ("exact match (True and False read as yes and no, number words as digits)", number_text, number_text),
    "release": _RELEASE,
}
OWN_VARIANTS: Readings = {
    "": ("exact match (case, articles, punctuation aside; number words as digits)", _loose, _loose),
    "strict": ("exact match (as written)", str.strip, str.strip),
    "release": _RELEASE,
}


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
