"""Chooses a program for a question: one that depends on what it asked, and does most often what the others do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ..core.errors import PromptTooLongError
from ..core.events import Tell
from ..core.together import together
from ..core.trace import REFUSED, Draft, Form, Program
from .trial import Trial
from .worlds import WORLDS, Behaviour
from .writer import Generate, Writer

FIRST = 3
"""Drafts that are written first at most, where several are wanted: more than half of them. Where they agree in all
worlds, no more are written."""
LEAST = 2
"""Drafts that are written at least where the first is doubted."""


async def write_best(
    writer: Writer,
    question: str,
    form: Form,
    generate: Generate,
    try_out: Callable[[Sequence[str]], Awaitable[Sequence[Trial]]],
    *,
    most: int,
    shots: int | None = None,
    tell: Tell | None = None,
) -> tuple[tuple[Program, ...], tuple[Draft, ...]]:
    """Has programs written until one is trusted, and returns them with what each is worth.

    Args:
        writer, question, form, generate, shots, tell: as for :meth:`Writer.write`; the first draft alone is told of.
        try_out: runs sources in the same random worlds.
        most: how many are written, if the first two or three do not agree; where 1, a second if the first is doubted.

    Raises:
        InputError: there are not so many examples.
        ModelError: the model failed.
    """

    async def draft(number: int) -> Program | None:
        try:
            return await writer.write(
                question, form, generate, shots=shots, draft=number, tell=None if number else tell
            )
        except PromptTooLongError:
            if number == 0:
                raise
            return None  # its examples are longer than those of the first, which has room

    programs: list[Program] = []
    drafts: tuple[Draft, ...] = ()
    begun, wanted = 0, min(FIRST, most // 2 + 1)
    while begun < wanted:
        written = await together(draft(number) for number in range(begun, wanted))
        programs += [program for program in written if program is not None]
        drafts = judged(programs, await try_out([program.source for program in programs]))
        begun, wanted = wanted, wanted if _trusted(drafts, most) else max(most, LEAST)
    return tuple(programs), drafts


def _trusted(drafts: Sequence[Draft], most: int) -> bool:
    """Whether no more drafts are needed: all agree, or one alone has nothing against it."""
    chosen = next(draft for draft in drafts if draft.chosen)
    if most == 1:  # one that fails is repaired, where there is something to repair
        return chosen.fault in (None, "fails")
    return chosen.fault not in REFUSED and all(draft.agreement == 1 for draft in drafts)


def judged(programs: Sequence[Program], trials: Sequence[Trial]) -> tuple[Draft, ...]:
    """Returns programs as drafts, of which the first of those that agree most with the others is chosen.

    One that no right program is like is chosen last. Where two disagree, one that looks at all pictures is chosen.
    """
    behaviours = [trial.behaviour for trial in trials]
    clusters = list(dict.fromkeys(behaviours))
    most = max(len(programs) - 1, 1) * WORLDS
    runs = [_alike(behaviour, behaviour) for behaviour in behaviours]
    shared = [
        sum(_alike(behaviour, other) for other in behaviours) - own
        for behaviour, own in zip(behaviours, runs, strict=True)
    ]
    ranks = [
        (trial.fault not in REFUSED, own, run, trial.fault is None)
        for trial, own, run in zip(trials, shared, runs, strict=True)
    ]
    best = ranks.index(max(ranks))
    return tuple(
        Draft(
            program.source,
            program.examples,
            shared[number] / most,
            clusters.index(trial.behaviour) + 1,
            trial.fault,
            number == best,
        )
        for number, (program, trial) in enumerate(zip(programs, trials, strict=True))
    )


def _alike(behaviour: Behaviour, other: Behaviour) -> int:
    """Returns in how many worlds two programs give the same answer."""
    return sum(a is not None and a == b for a, b in zip(behaviour, other, strict=True))
