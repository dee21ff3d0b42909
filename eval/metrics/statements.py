"""COVR, NLVR2 and NLVR: exact match, and for the last two consistency over groups of rows.

Sources: Bogin et al., EMNLP 2021 (COVR); Suhr et al., ACL 2017 (NLVR) and ACL 2019 (NLVR2), with the scripts
``metrics.py`` and ``metrics_images.py`` of https://github.com/lil-lab/nlvr.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..datasets import nlvr2
from ..statistics import mean
from ..task import Example
from . import text
from .base import ExactMatch, Figure

__all__ = ["COVRMetric", "NLVR2Metric", "NLVRMetric", "nlvr_group"]

_NLVR = re.compile(r"(?:(?P<split>\D[^-]*)-)?(?P<n>\d+)-(?P<m>\d+)(?:-(?P<k>\d+)(?:\.png)?)?")


def _plain(found: str) -> str:
    return text.yes_no(found.strip().rstrip(".").lower())


class _Truth(ExactMatch):
    """Exact match where answers may be truth values, in whichever words a file or a program has them."""

    names: Mapping[str, str] = MappingProxyType(
        {
            "": "exact match (True and False read as yes and no)",
            "release": "exact match (paper's release)",
        }
    )

    def __init__(self, variant: str = "") -> None:
        self.name = self.names[variant]
        self.release = variant == "release"

    def prediction(self, found: str) -> str:
        """Lower-cases and reads true and false; the release does not read them."""
        return text.release(found) if self.release else _plain(found)

    def gold(self, answer: str) -> str:
        """Returns yes and no for True and False, which is how the release stores them; other answers as they are."""
        return text.yes_no(answer) if self.release else _plain(answer)


class COVRMetric(_Truth):
    """Exact match on COVR: truth values, whole numbers and words.

    Args:
        variant: "" reads truth values, and number words as digits, on both sides; "release" as the paper's release.
    """

    names = MappingProxyType(
        {
            "": "exact match (True and False read as yes and no, number words as digits)",
            "release": "exact match (paper's release)",
        }
    )

    def prediction(self, found: str) -> str:
        """Also reads number words to ten, since COVR's own answers are numbers."""
        read = super().prediction(found)
        return text.NUMBERS.get(read, read)

    def gold(self, answer: str) -> str:
        """As predictions are read."""
        read = super().gold(answer)
        return read if self.release else text.NUMBERS.get(read, read)


class GroupTally:
    """Gathers, group by group, whether every row of it was right."""

    def __init__(self, metric: ExactMatch, group: Callable[[str], str]) -> None:
        self._metric = metric
        self._group = group
        self._right: dict[str, tuple[bool, str]] = {}
        """By group: whether all is right so far, and the cluster."""
        self._strange = False

    def add(self, example: Example, prediction: str) -> None:
        """Takes one row; rows without a gold answer are left out."""
        score = self._metric.score(example, prediction)
        if score is None or self._strange:
            return
        try:
            key = str(example.record.get("group") or self._group(example.id))
        except ValueError:  # a table without the official identifiers
            self._strange = True
        else:
            right, cluster = self._right.get(key, (True, example.cluster or key))
            self._right[key] = right and score == 1, cluster

    def result(self) -> dict[str, Figure]:
        """Returns the share of groups in which every row was right; None where rows do not name their group."""
        if not self._right or self._strange:
            return {"consistency": None}
        right, clusters = zip(*self._right.values(), strict=True)
        return {"consistency": mean(right, clusters=clusters)}


class NLVR2Metric(_Truth):
    """Accuracy and consistency on NLVR2: a sentence counts where all its pairs of photographs are judged rightly."""

    reasons = MappingProxyType(
        {"consistency": "needs gold labels, and the official identifiers, which say what belongs together"}
    )

    def tally(self) -> GroupTally:
        """Returns a new tally."""
        return GroupTally(self, nlvr2.group)


class NLVRMetric(_Truth):
    """Accuracy and consistency on NLVR: a sentence counts where all pictures of all its rows are judged rightly."""

    reasons = MappingProxyType(
        {"consistency": "needs gold labels, and the official identifiers, which say what belongs together"}
    )

    def tally(self) -> GroupTally:
        """Returns a new tally."""
        return GroupTally(self, nlvr_group)


def nlvr_group(identifier: str) -> str:
    """Returns n of ``n-m``, ``n-m-k`` or ``split-n-m-k.png``, with its split where there is one.

    Raises:
        ValueError: it is not an identifier of NLVR.
    """
    found = _NLVR.fullmatch(identifier)
    if found is None:
        raise ValueError(f"{identifier!r} is not an identifier of NLVR")
    return f"{found['split'] or ''}-{found['n']}"
