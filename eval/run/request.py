"""What an evaluation is asked to do: the options of :func:`codevqa.eval.evaluate`, checked before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

from ...core.errors import InputError
from ..task import METHODS, DataSet, Example, Method
from .run_info import RunInfo
from .selection import Selection, look_over
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
    retry_errors: bool
    """Ask again what could not be asked before, as where a picture was missing; with ``resume``."""
    missing_pictures: Literal["stop", "skip"]
    """Whether to stop before models are loaded where pictures are missing, or to ask the rest; the questions about
    those are rows with an error all the same."""


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
    retry_errors: bool = False
    missing_pictures: Literal["stop", "skip"] = "stop"

    def check(self, dataset: DataSet, out: Path | str) -> Selection:
        """Refuses what can be refused before any model is loaded, and returns what will be asked.

        Raises:
            InputError: it makes no sense, there is nothing to ask, pictures are missing, or the run is there and
                ``resume`` is not set.
        """
        if Store.exists(out) and not self.resume:
            Store.create(out, RunInfo(dataset.name, dataset.split, tuple(self.methods)))  # raises
        if not self.methods or not set(self.methods) <= set(METHODS) or not self.seeds:
            raise InputError("There is nothing to ask: give at least one method and one seed.")
        if self.offset < 0 or (self.limit is not None and self.limit < 1):
            raise InputError("An offset is not negative, and a limit at least 1.", hint="Leave it out to ask all.")
        if self.retry_errors and not self.resume:
            raise InputError("There is nothing to ask again in a new run.", hint="Give --resume with --retry-errors.")
        if self.missing_pictures not in ("stop", "skip"):
            raise InputError(f"Missing pictures cannot be met by {self.missing_pictures!r}.", hint="stop or skip.")
        with Store.open(out) if Store.exists(out) else nullcontext() as store:

            def asks(example: Example) -> bool:
                return store is None or not all(
                    store.has(example.id, method, repeat, asked=self.retry_errors) for method, repeat in jobs
                )

            repeats = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
            jobs = [(method, repeat) for method in self.methods for repeat in range(repeats)]
            stop = self.missing_pictures == "stop"
            return look_over(dataset, self.offset, self.limit, asks, pictures=stop)

    def seeds_from(self, first: int) -> tuple[int, ...]:
        """Returns the seed of each repetition: those given, or as many as asked from the engine's on."""
        return tuple(range(first, first + self.seeds)) if isinstance(self.seeds, int) else tuple(self.seeds)
