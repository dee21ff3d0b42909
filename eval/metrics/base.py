"""What every metric can do, and the two steps all of them share: score one answer, tally a whole run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeAlias

from ..statistics import Interval
from ..task import Example

__all__ = ["BaseMetric", "ExactMatch", "Figure", "Metric", "Tally"]

Figure: TypeAlias = Interval | float | None
"""About a whole run: a share with its interval, another number, or None where an input of it is missing."""


class Tally(Protocol):
    """Gathers, one pass over a run, what figures about all of it need."""

    def add(self, example: Example, prediction: str) -> None:
        """Takes one answered example."""
        ...

    def result(self) -> dict[str, Figure]:
        """Returns the figures so far."""
        ...


class Metric(Protocol):
    """How a data set is scored."""

    @property
    def name(self) -> str:
        """What a report prints, such as ``VQA accuracy (official 2021)``."""
        ...

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why a figure of :meth:`corpus` may be None, by its name."""
        ...

    @property
    def answers(self) -> int:
        """Accepted answers that a question needs to be scored as the name says; with fewer, by exact match."""
        ...

    def score(self, example: Example, prediction: str) -> float | None:
        """Returns 0 to 1; None where the split hides the answer."""
        ...

    def tally(self) -> Tally:
        """Returns a new tally, for runs that are read once."""
        ...

    def corpus(self, pairs: Iterable[tuple[Example, str]]) -> dict[str, Figure]:
        """Returns the figures about a whole run, such as consistency."""
        ...


class _Nothing:
    """The tally of a metric without such figures."""

    def add(self, example: Example, prediction: str) -> None:
        """Does nothing."""

    def result(self) -> dict[str, Figure]:
        """Returns nothing."""
        return {}


class BaseMetric:
    """A metric without figures about the whole run; a subclass adds ``name`` and :meth:`agreement`."""

    name: str = ""
    answers: int = 1
    reasons: Mapping[str, str] = MappingProxyType({})

    def score(self, example: Example, prediction: str) -> float | None:
        """Returns 0 to 1; None where the split hides the answer. An empty prediction is wrong in every variant."""
        if not example.gold:
            return None
        return self.agreement(example, prediction) if prediction.strip() else 0.0

    def agreement(self, example: Example, prediction: str) -> float:
        """Returns 0 to 1 for a prediction that says something, about an example with accepted answers."""
        raise NotImplementedError

    def tally(self) -> Tally:
        """Returns a new tally."""
        return _Nothing()

    def corpus(self, pairs: Iterable[tuple[Example, str]]) -> dict[str, Figure]:
        """Returns the figures about a whole run."""
        tally = self.tally()
        for example, prediction in pairs:
            tally.add(example, prediction)
        return tally.result()


class ExactMatch(BaseMetric):
    """1 where the prediction is one of the accepted answers, 0 elsewhere; subclasses say how each is read."""

    def prediction(self, found: str) -> str:
        """Returns a prediction as it is compared."""
        return found

    def gold(self, answer: str) -> str:
        """Returns an accepted answer as it is compared."""
        return answer

    def agreement(self, example: Example, prediction: str) -> float:
        """Returns 0 or 1."""
        found = self.prediction(prediction)
        return float(any(found == self.gold(answer) for answer in example.gold))
