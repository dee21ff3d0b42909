"""What an evaluation is asked to do: the options of :func:`codevqa.eval.evaluate`, checked before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

from ...core.errors import InputError
from ..task import METHODS, DataSet, Method
from .run_info import RunInfo
from .session import Progress
from .store import Store

__all__ = ["EvalOptions", "EvalRequest", "KeptEvidence"]

KeptEvidence: TypeAlias = Literal["calls", "full"]
"""``calls`` keeps each call with its value, captions and completions; ``full`` adds relevance maps, patches and
prompts, which are long."""


class EvalOptions(TypedDict, total=False):
    """Options of :func:`codevqa.eval.evaluate`, and of its twin for Ray."""

    methods: Sequence[Method]
    """What is asked of each example; ``codevqa`` and the baseline ``pnpvqa``."""
    limit: int | None
    """Examples at most; None asks all of them."""
    offset: int
    """Examples left out at the start."""
    seeds: int | Sequence[int]
    """How often to ask, with the engine's seed and those after it; or the seed of each repetition."""
    resume: bool
    """Go on with the run that is there, or begin it where there is none."""
    preset: str
    """Name of the engine's preset, for the record."""
    variant: str
    """Variant of the metric, for the record."""
    evidence: KeptEvidence
    """What is kept of each call."""
    progress: Progress | None
    """Told how far the run is, after each example."""


@dataclass(frozen=True)
class EvalRequest:
    """What is asked of a data set; see :class:`EvalOptions`."""

    methods: Sequence[Method] = METHODS
    limit: int | None = None
    offset: int = 0
    seeds: int | Sequence[int] = 1
    resume: bool = False
    preset: str = ""
    variant: str = ""
    evidence: KeptEvidence = "calls"
    progress: Progress | None = None

    def check(self, dataset: DataSet, out: Path | str) -> None:
        """Refuses what can be refused before any model is loaded.

        Raises:
            InputError: it makes no sense, or the run is there and ``resume`` is not set.
        """
        if Store.exists(out) and not self.resume:
            Store.create(out, RunInfo(dataset.name, dataset.split, tuple(self.methods)))  # raises
        if not self.methods or not set(self.methods) <= set(METHODS) or not self.seeds:
            raise InputError("There is nothing to ask: give at least one method and one seed.")
        if self.offset < 0 or (self.limit is not None and self.limit < 0):
            raise InputError("An offset or a limit is not negative.")

    def seeds_from(self, first: int) -> tuple[int, ...]:
        """Returns the seed of each repetition: those given, or as many as asked from the engine's on."""
        return tuple(range(first, first + self.seeds)) if isinstance(self.seeds, int) else tuple(self.seeds)
