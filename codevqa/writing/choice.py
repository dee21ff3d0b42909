"""Chooses among several programs for one question: the one that does most often what the others do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ..core.events import Tell
from ..core.together import together
from ..core.trace import Draft, Form, Program
from .worlds import WORLDS, Behaviour
from .writer import Generate, Writer

FIRST = 3
"""Drafts that are written first. Where they agree in all worlds, no more are written."""


async def write_best(
    writer: Writer,
    question: str,
    form: Form,
    generate: Generate,
    behave: Callable[[Sequence[str]], Awaitable[Sequence[Behaviour]]],
    *,
    most: int,
    shots: int | None = None,
    tell: Tell | None = None,
) -> tuple[tuple[Program, ...], tuple[Draft, ...]]:
    """Has several programs written, and returns them with what each is worth.

    Args:
        writer, question, form, generate, shots, tell: as for :meth:`Writer.write`; the first draft alone is told of.
        behave: runs sources in the same random worlds.
        most: how many are written, if the first three do not agree.

    Raises:
        InputError: there are not so many examples.
        ModelError: the model failed.
    """
    programs: list[Program] = []
    drafts: tuple[Draft, ...] = ()
    while len(programs) < most and not (drafts and all(draft.agreement == 1 for draft in drafts)):
        numbers = range(len(programs), most if programs else min(FIRST, most))
        programs += await together(
            writer.write(question, form, generate, shots=shots, draft=number, tell=None if number else tell)
            for number in numbers
        )
        drafts = judged(programs, await behave([program.source for program in programs]))
    return tuple(programs), drafts


def judged(programs: Sequence[Program], behaviours: Sequence[Behaviour]) -> tuple[Draft, ...]:
    """Returns programs as drafts, of which the first of those that agree most with the others is chosen."""
    clusters = list(dict.fromkeys(behaviours))
    most = max(len(programs) - 1, 1) * WORLDS
    runs = [_alike(one, one) for one in behaviours]
    shared = [sum(_alike(one, other) for other in behaviours) - own for one, own in zip(behaviours, runs, strict=True)]
    ranks = list(zip(shared, runs, strict=True))
    best = ranks.index(max(ranks))
    return tuple(
        Draft(
            program.source,
            program.examples,
            shared[number] / most,
            clusters.index(one) + 1,
            "fails" if not runs[number] else "blind" if len({*one}) == 1 else None,
            number == best,
        )
        for number, (program, one) in enumerate(zip(programs, behaviours, strict=True))
    )


def _alike(one: Behaviour, other: Behaviour) -> int:
    """Returns in how many worlds two programs give the same answer."""
    return sum(a is not None and a == b for a, b in zip(one, other, strict=True))
