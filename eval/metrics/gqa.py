"""GQA (Hudson and Manning, CVPR 2019): exact match, and its five figures about a whole run.

The figures follow the evaluation script of https://cs.stanford.edu/people/dorarad/gqa/evaluate.html: like it they look
at balanced questions only, wherever a record says which those are. Where the script needs an input that is not there
it stops, or prints 0 %; here the figure is None and ``reasons`` says why.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from ..datasets.files import Located
from ..datasets.json_stream import stream_records
from ..statistics import Interval, mean
from ..task import Example
from . import text
from .base import ExactMatch, Figure

__all__ = ["GQA_VARIANTS", "Choices", "GQAMetric"]


def _plain(answer: str) -> str:
    return answer.strip().rstrip(".").lower()


GQA_VARIANTS: Mapping[str, tuple[str, Callable[[str], str], Callable[[str], str]]] = MappingProxyType(
    {
        "": ("exact match", _plain, _plain),
        "official": ("exact match (official: letter by letter)", str, str),
        "lmms": ("exact match (lmms-eval: no case, no punctuation)", text.lmms_exact, text.lmms_exact),
        "release": ("exact match (paper's release)", text.release, str),
    }
)
"""Variant to its name, how a prediction is read, and how an accepted answer is."""
Choices: TypeAlias = Callable[[], Iterable[tuple[str, Mapping[str, Any]]]]
"""Yields ids of questions with ``{"valid": […], "plausible": […]}``."""
_COMMON = frozenset(("color", "material", "shape"))


class GQAMetric(ExactMatch):
    """Exact match on GQA.

    Args:
        variant: one of ``GQA_VARIANTS``. "" lower-cases both sides and drops a final full stop;
            "official" changes nothing; "lmms" ignores case and punctuation on both sides; "release" rewrites the
            prediction only, so that an answer such as "t-shirt" can never be right.
        choices: the file ``val_choices.json`` of GQA's ``eval.zip``, or a function that yields what such files hold;
            None leaves validity and plausibility out.
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

    def __init__(self, variant: str = "", *, choices: Choices | Path | None = None) -> None:
        self.name, self._read_prediction, self._read_gold = GQA_VARIANTS[variant]
        self._choices = choices

    def prediction(self, found: str) -> str:
        """Returns a prediction as it is compared."""
        return self._read_prediction(found)

    def gold(self, answer: str) -> str:
        """Returns the accepted answer as it is compared."""
        return self._read_gold(answer)

    @property
    def has_choices(self) -> bool:
        """Whether validity and plausibility are wanted."""
        return self._choices is not None

    def choices(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Yields ids of questions with their valid and plausible answers, reading as it goes.

        Raises:
            InputError: the file holds something else.
            SetupError: it cannot be opened.
        """
        if self._choices is None:
            return ()
        if callable(self._choices):
            return self._choices()
        return stream_records(Located(self._choices), keyed=True)

    def tally(self) -> GQATally:
        """Returns a new tally."""
        return GQATally(self)


class GQATally:
    """Gathers what GQA's figures need: 17 bytes a question, eight for each entailed one, and answers for choices."""

    def __init__(self, metric: GQAMetric) -> None:
        self._metric = metric
        self._right: tuple[array[int], array[int]] = (array("q"), array("b"))
        self._entailed, self._lengths, self._sources = array("q"), array("l"), array("q")
        self._hits, self._clusters = array("b"), array("q")
        self._said: dict[str, tuple[str, bool, str]] = {}
        self._gold: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._found: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, example: Example, prediction: str) -> None:
        """Takes one answered question; questions without a gold answer count towards validity only."""
        record = example.record
        balanced = bool(record.get("isBalanced", True))
        found = self._metric.prediction(prediction)
        if balanced and self._metric.has_choices:
            common = "Common" in str((record.get("types") or {}).get("detailed", ""))
            self._said[example.id] = (found, common, example.cluster or example.id)
        score = self._metric.score(example, prediction)
        if score is None:
            return
        self._right[0].append(hash(example.id))
        self._right[1].append(int(score))
        if not balanced:
            return
        cluster = hash(example.cluster or example.id)
        self._hits.append(int(score))
        self._clusters.append(cluster)
        group = (record.get("groups") or {}).get("global")
        if group is not None:
            self._gold[group][self._metric.gold(example.gold[0])] += 1
            self._found[group][found] += 1
        others = [hash(id) for id in record.get("entailed") or () if id != example.id]
        if score and others:
            self._entailed.extend(others)
            self._lengths.append(len(others))
            self._sources.append(cluster)

    def result(self) -> dict[str, Figure]:
        """Returns accuracy on balanced questions, consistency, validity, plausibility and distribution.

        All are shares of 1 but the distribution, which is a chi-square score where lower is better.
        """
        validity, plausibility = self._judged()
        return {
            "balanced": mean(self._hits, clusters=np.asarray(self._clusters)) if self._hits else None,
            "consistency": self._consistency(),
            "validity": validity,
            "plausibility": plausibility,
            "distribution": _chi_square(self._gold, self._found),
        }

    def _judged(self) -> tuple[Interval | None, Interval | None]:
        """Shares of answers that are valid, and that are plausible; None where any question has no choices."""
        valid, plausible, clusters = array("b"), array("b"), list[str]()
        for id, record in self._metric.choices() if self._said else ():
            if id in self._said:
                found, common, cluster = self._said[id]
                clusters.append(cluster)
                valid.append(found in (_COMMON if common else record.get("valid", ())))
                plausible.append(found in (_COMMON if common else record.get("plausible", ())))
        if not self._said or len(clusters) < len(self._said):
            return None, None
        return mean(valid, clusters=clusters), mean(plausible, clusters=clusters)

    def _consistency(self) -> Interval | None:
        """Mean, over balanced questions answered right that entail others, of the share of those answered right."""
        if not self._lengths:
            return None
        ids, right = (np.frombuffer(part, dtype=kind) for part, kind in zip(self._right, ("i8", "i1"), strict=True))
        order = np.argsort(ids)
        ids, right = ids[order], right[order]
        wanted = np.frombuffer(self._entailed, dtype="i8")
        places = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        if (ids[places] != wanted).any():
            return None
        lengths = np.asarray(self._lengths)
        sums = np.add.reduceat(right[places].astype(np.int64), np.cumsum(lengths) - lengths)
        return mean(sums / lengths, clusters=np.asarray(self._sources))


def _chi_square(gold: Mapping[str, Counter[str]], found: Mapping[str, Counter[str]]) -> float | None:
    """Chi-square distance of predicted from gold answers, averaged over groups by their size, over 100."""
    total = sum(sum(answers.values()) for answers in gold.values())
    if not total:
        return None
    score = 0.0
    for group, answers in gold.items():
        distance = sum((found[group][answer] - count) ** 2 / count for answer, count in answers.items())
        score += distance * sum(answers.values())
    return score / total / 100
