"""Chooses a program for a question: one that depends on what it asked, and does most often what the others do.

Programs run in random worlds before any of them sees a picture. What a program does decides, not how it is written: an
answer that it asked for is read where a change of it alone changes what the program answers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from typing import Any, TypeAlias

from ..core.errors import ProgramError, PromptTooLongError
from ..core.events import EventListener
from ..core.loop_thread import together
from ..core.trace import REFUSED, Draft, Fault, Form, Program
from ..primitives import Image
from ..sandbox.many_runs import ManyRuns, OneRun
from ..sandbox.sandbox import Sandbox
from .worlds import WORLDS, Behaviour, Worlds
from .writer import Generate, Writer

FIRST = 3
"""Drafts that are written first at most, where several are wanted: more than half of them. Where they agree in all
worlds, no more are written."""
LEAST = 2
"""Drafts that are written at least where the first is doubted."""
STAGES = (8, 40, 400)
"""Worlds in which it is looked for a sign that what a program asks matters; more while there is none. The first stage
is for a program that is alone. Past :data:`WORLDS`, by turns, all pictures have one answer to a question, so that "all
of twelve" holds, and fails; and each has one of its own."""
CHANGES = 2
"""Other answers that are tried in a world, in as many worlds as the first stage has, or an eighth of all. Each answer
of the program has its turn, the rare ones first: there every condition counts."""
TESTED = 24
"""Calls of a program whose answers are changed at most. The others count as read."""
Asked: TypeAlias = tuple[tuple[str, ...], frozenset[int]]
"""What a call asks, and of which pictures."""


async def write_best(
    writer: Writer,
    question: str,
    form: Form,
    generate: Generate,
    try_out: Callable[[Sequence[str]], Awaitable[Sequence[Trial]]],
    *,
    most: int,
    shots: int | None = None,
    tell: EventListener | None = None,
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
        drafts = judge_drafts(programs, await try_out([program.source for program in programs]))
        begun, wanted = wanted, wanted if _is_enough(drafts, most) else max(most, LEAST)
    return tuple(programs), drafts


def _is_enough(drafts: Sequence[Draft], most: int) -> bool:
    """Whether no more drafts are needed: all agree, or one alone has nothing against it."""
    chosen = next(draft for draft in drafts if draft.chosen)
    if most == 1:  # one that fails is repaired, where there is something to repair
        return chosen.fault in (None, "fails")
    return chosen.fault not in REFUSED and all(draft.agreement == 1 for draft in drafts)


def judge_drafts(programs: Sequence[Program], trials: Sequence[Trial]) -> tuple[Draft, ...]:
    """Returns programs as drafts, of which the first of those that agree most with the others is chosen.

    One that no right program is like is chosen last. Where two disagree, one that looks at all pictures is chosen.
    """
    behaviours = [trial.behaviour for trial in trials]
    clusters = list(dict.fromkeys(behaviours))
    most = max(len(programs) - 1, 1) * WORLDS
    runs = [_count_agreements(behaviour, behaviour) for behaviour in behaviours]
    shared = [
        sum(_count_agreements(behaviour, other) for other in behaviours) - own
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


def _count_agreements(behaviour: Behaviour, other: Behaviour) -> int:
    """Returns in how many worlds two programs give the same answer."""
    return sum([a is not None and a == b for a, b in zip(behaviour, other, strict=True)])


@dataclass(frozen=True)
class Trial:
    """What a program does in the worlds."""

    behaviour: Behaviour = (None,) * WORLDS
    fault: Fault | None = "fails"
    """Why it is doubtful, judged by it alone."""
    open: bool = False
    """Whether more worlds may clear it."""


async def try_out(
    programs: Sequence[str], sandbox: Sandbox, images: Sequence[Image], answer_of: Callable[[Any], str], seed: int = 0
) -> list[Trial]:
    """Runs programs in the same worlds.

    Args:
        programs: their sources; equal ones run once.
        sandbox: where they run.
        images: the question's pictures, which nobody looks at.
        answer_of: gives the answer for what a program left, or raises a ProgramError.
        seed: other seeds make other worlds.
    """
    once = list(dict.fromkeys(programs))
    stages = STAGES if len(programs) == 1 else STAGES[1:]

    @cache
    def worlds_of(stage: int) -> Worlds:
        return Worlds(sandbox.primitives, images, programs, seed, stage)

    async def trial_of(source: str) -> Trial:
        trial, read = Trial(), set[Asked]()
        for worlds in map(worlds_of, stages):
            study = partial(examine, worlds, answer_of, read)
            trial = await sandbox.run_in_worlds(source, worlds.ask, images, study) or trial
            if not trial.open:
                break
        counts = trial.fault == "blind" and await _counts_pictures(source, sandbox, images, answer_of)
        return replace(trial, fault=None) if counts else trial

    trials = dict(zip(once, await together(map(trial_of, once)), strict=True))
    return [trials[source] for source in programs]


def examine(worlds: Worlds, answer_of: Callable[[Any], str], read: set[Asked], many: ManyRuns) -> Trial:
    """Runs a program in all worlds, and then with one answer changed at a time.

    An answer is read where some change of it alone changes what the program answers. What the worlds cannot show, such
    as a program that is too slow for them, is no fault.

    Args:
        worlds: where it runs.
        answer_of: gives the answer for what it left.
        read: calls whose answers are known to be read; gets more.
        many: the program.
    """

    texts: dict[tuple[type, object], str | None] = {}

    def text_of(value: object) -> str | None:
        if isinstance(value, list | dict | tuple):
            return _answer_or_none(value, answer_of)
        key = type(value), value  # True is another answer than 1
        if key not in texts:
            texts[key] = _answer_or_none(value, answer_of)
        return texts[key]

    def answers_of(runs: Sequence[OneRun]) -> list[str | None]:
        return list(map(text_of, many.run_all(runs)))

    answers = answers_of([(world, -1, 0) for world in range(worlds.count)])
    often, turns = Counter(answers), defaultdict[str | None, Iterator[int]](count)
    ranks = [(next(turns[answer]), often[answer], world) for world, answer in enumerate(answers)]
    ran = [world for *_, world in sorted(ranks) if answers[world] is not None]
    behaviour = tuple(answers[:WORLDS])
    if not ran or many.spent:
        return Trial(behaviour, None if ran else "fails")
    asked: set[Asked] = set()
    calls: list[tuple[Asked, int]] = []
    for number, call in enumerate(many.asked):
        if any(value != call.values[0] for value in call.values):  # an opened picture is the same in all worlds
            asked.add(key := (call.about, worlds.looked_at(call)))
            if len(asked) > TESTED:
                read.add(key)
            calls.append((key, number))
    looked = ran[: max(STAGES[0], worlds.count // 8)]
    for some in (looked[:1], looked[1:]):  # most are read in the first
        left = [(key, number) for key, number in calls if key not in read]
        tried = [(key, run) for key, number in left for run in _changes(many.asked[number].values, number, some)]
        for (key, (world, *_)), answer in zip(tried, answers_of([run for _, run in tried]), strict=True):
            if answer != answers[world]:  # or its time is over
                read.add(key)
    fault = _fault(asked, read, len(often) - (None in often) == 1, worlds.pictures)
    hopeful = bool(many.asked) if fault == "blind" else fault is not None and bool(asked - read)
    return Trial(behaviour, fault, hopeful)


def _changes(values: Sequence[object], number: int, worlds: Sequence[int]) -> list[OneRun]:
    """Returns runs in which the answer to a call is another."""
    runs = []
    for world in worlds:
        others = [other for other, value in enumerate(values) if value != values[world]]
        runs += [(world, number, others[(7 * world + turn) % len(others)]) for turn in range(CHANGES)]
    return runs


def _fault(asked: set[Asked], read: set[Asked], constant: bool, pictures: int) -> Fault | None:
    """Returns what is wrong with a program that asked something and read some of it."""
    looked = {index for _, each in asked & read for index in each}
    if not looked and constant:
        return "blind"
    # Of a question that each picture is asked, the answer for one may be enough.
    if {about for about, _ in asked - read} - {about for about, _ in asked & read}:
        return "unread"
    return "one picture" if len(looked) == 1 < pictures else None


async def _counts_pictures(
    source: str, sandbox: Sandbox, images: Sequence[Image], answer_of: Callable[[Any], str]
) -> bool:
    """Whether a program answers otherwise of one picture more: "How many pictures are there?" asks nothing of them."""
    more = (*images, replace(images[0], index=max(image.index for image in images) + 1))
    answers = []
    for some in (images, more):
        worlds = Worlds(sandbox.primitives, some, (source,), 0, 1)
        values = await sandbox.run_in_worlds(source, worlds.ask, some, lambda many: many.run_all([(0, -1, 0)]))
        answers.append(_answer_or_none(values[0], answer_of) if values else None)
    return None not in answers and answers[0] != answers[1]


def _answer_or_none(value: object, answer_of: Callable[[Any], str]) -> str | None:
    try:
        return None if value is None else answer_of(value).lower()
    except ProgramError:
        return None
