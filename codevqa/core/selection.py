"""Which pictures an answer about many rests on, read off its trace: those that count, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

from .trace import ImageRef, Trace


@dataclass(frozen=True)
class Pick:
    """One picture, and how probable it is that the answer to what was asked about it is yes."""

    image: ImageRef
    chance: float


@dataclass(frozen=True)
class Selection:
    """The pictures for which one question was answered yes."""

    question: str
    """What each picture was asked."""
    picked: tuple[Pick, ...]
    """Those that count, the surest first."""
    others: tuple[Pick, ...] = ()
    """Those that do not, the least sure first."""
    low: int = 0
    """With ``high`` the range that holds the true number in nine of ten cases."""
    high: int = 0
    ruled_out: int = 0
    """Pictures among the others that were not looked at closely: their contrastive score was too low."""
    unread: tuple[ImageRef, ...] = ()
    """Pictures whose file was gone or had changed when it was looked at: they are neither."""
    left: int = 0
    """Pictures that were not reached before the budget ended."""

    @property
    def count(self) -> int:
        """How many count."""
        return len(self.picked)

    @property
    def unsure(self) -> tuple[Pick, ...]:
        """Pictures to check first: those whose chance is nearest to one half, of either kind."""
        doubtful = [one for one in (*self.picked, *self.others) if SURE > one.chance > 1 - SURE]
        return tuple(sorted(doubtful, key=lambda one: abs(one.chance - 0.5)))


SURE = 0.95
"""Chance from which a picture is not worth checking."""


def selections(trace: Trace) -> tuple[Selection, ...]:
    """Returns what a program selected: the calls of ``select`` and ``count``, and loops that ask each picture the same
    yes/no question."""
    raise NotImplementedError
