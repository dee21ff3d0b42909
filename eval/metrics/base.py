"""What every metric can do: score one answer, and tell figures about a whole run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, TypeAlias

from ..statistics import Interval
from ..task import Example

Figure: TypeAlias = Interval | float | None
"""About a whole run: a share with its interval, another number, or None where an input of it is missing."""
Readings: TypeAlias = Mapping[str, tuple[str, Callable[[str], str], Callable[[str], str]]]
"""Variant of exact match to its name, how a prediction is read, and how an accepted answer is."""


class Metric(ABC):
    """How a data set is scored."""

    name: str
    """What a report prints, such as ``VQA accuracy (official 2021)``."""
    reasons: ClassVar[Mapping[str, str]] = {}
    """The figures about a whole run, each with why it may be None."""
    answers: int = 1
    """Accepted answers that a question needs to be scored as the name says; with fewer, by exact match."""

    def score(self, example: Example, prediction: str) -> float | None:
        """Returns 0 to 1; None where the split hides the answer. An empty prediction is wrong in every variant."""
        if not example.gold:
            return None
        return self.agreement(example, prediction) if prediction.strip() else 0.0

    def right(self, example: Example, prediction: str) -> bool | None:
        """Whether a prediction scores a half or more; None where the split hides the answer."""
        score = self.score(example, prediction)
        return None if score is None else score >= 0.5

    @abstractmethod
    def agreement(self, example: Example, prediction: str) -> float:
        """Returns 0 to 1 for a prediction that says something, about an example with accepted answers."""

    def corpus(self, answered: Iterable[tuple[Example, str]]) -> dict[str, Figure]:
        """Returns the figures named in ``reasons``, of examples with their predictions."""
        return {}

    def picture_figures(self, selections: Iterable[tuple[Example, Sequence[int]]]) -> dict[str, Figure]:
        """Returns further figures named in ``reasons``, of examples with the numbers of the pictures that answers
        count or name."""
        return {}


class ExactMatch(Metric):
    """1 where the prediction is one of the accepted answers, 0 elsewhere."""

    def __init__(self, variant: str, variants: Readings) -> None:
        self.name, self.prediction, self.gold = variants[variant]

    def agreement(self, example: Example, prediction: str) -> float:
        """Returns 0 or 1."""
        text = self.prediction(prediction)
        return float(any(text == self.gold(answer) for answer in example.gold))
