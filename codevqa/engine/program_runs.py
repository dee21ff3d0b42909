"""Running the programs of one question on its pictures: one that is repaired once, or several that vote."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from ..batching.call_cache import Usage
from ..core.answer import Answer
from ..core.errors import ErrorRecord, ImageError, ProgramAnswerError, ProgramError, UnsetAnswerError
from ..core.events import Event, Rejected, Wrote
from ..core.trace import REFUSED, Cost, DomainWarning, Draft, Evidence, Fault, Program, Trace, TraceValue
from ..writing.choice import Trial, try_out
from ..writing.replies import why_empty
from .answers import answer_text, fitted_answer, release_text, replace_images
from .call_plan import CallPlan
from .prepared_question import PreparedQuestion
from .program_calls import ProgramCalls


@dataclass(frozen=True)
class ProgramRun:
    """A program on the pictures, with the calls it has made so far."""

    program: Program
    calls: ProgramCalls
    fault: Fault | None = None
    """Why the program is doubted."""


@dataclass(frozen=True)
class ProgramResult:
    """What a program that ended well left."""

    run: ProgramRun
    text: str
    value: TraceValue = None
    printed: str = ""


@dataclass
class Progress:
    """What was done for one question so far: its answer is made from it, also where an error ends it."""

    listener: Callable[[Event], None] | None
    """Told of every step; None where nobody watches."""
    usage: Usage
    """What the question costs."""
    question: PreparedQuestion | None = None
    """None until it is prepared."""
    runs: list[ProgramRun] = field(default_factory=list)
    """The programs that were run on the pictures, in order."""
    attempts: list[tuple[Program, ErrorRecord]] = field(default_factory=list)
    """Those of them that failed."""
    drafts: tuple[Draft, ...] = ()
    """What each of several written programs is worth."""
    program_seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds of wall time by stage; see :attr:`codevqa.Answer.stages`."""
    _stage: str = "other"
    _since: float = field(default_factory=time.perf_counter)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Counts the time inside for a stage, and no longer for the stage around it."""
        outer = self._next_stage(name)
        try:
            yield
        finally:
            self._next_stage(outer)

    def _next_stage(self, name: str) -> str:
        """Ends the stage under way and begins another; returns the one that ended."""
        now, ended = time.perf_counter(), self._stage
        self.stages[ended] = self.stages.get(ended, 0.0) + now - self._since
        self._stage, self._since = name, now
        return ended

    def tell(self, event: Event) -> None:
        """Tells the listener, if there is one."""
        if self.listener is not None:
            self.listener(event)

    def begin(self, program: Program, fault: Fault | None, *, silent: bool = False) -> ProgramRun:
        """Begins the run of a program; one that is ``silent`` tells nobody of its calls."""
        assert self.question is not None
        question = self.question
        tell = _ignore if silent else self.tell
        calls = ProgramCalls(question.engine.writer.primitives, partial(question.context, program), self.usage, tell)
        self.runs.append(ProgramRun(program, calls, fault))
        return self.runs[-1]

    def answer(
        self,
        text: str,
        run: ProgramRun | None = None,
        *,
        value: TraceValue = None,
        printed: str = "",
        baseline: tuple[Evidence, ...] = (),
    ) -> Answer:
        """Returns an answer with all that was done.

        Args:
            text: the answer; empty where there is none.
            run: whose program and calls it shows; None takes the last.
            value, printed: what the program left.
            baseline: evidence of a reading without a program.
        """
        assert self.question is not None
        question, usage = self.question, self.usage
        self._next_stage(self._stage)
        run = run or (self.runs[-1] if self.runs else None)
        doubts = [] if baseline or run is None else _doubts(run.fault)
        return Answer(
            question.typed,
            text,
            run.program if run else None,
            Trace(tuple(run.calls.finished) if run else (), printed, tuple(self.attempts), baseline, self.drafts),
            value,
            question.request.method,
            seconds=sum(self.stages.values()),
            stages=dict(self.stages),
            models=question.engine.model_names,
            tokens=usage.tokens,
            cost=Cost(
                usage.seconds,
                self.program_seconds,
                usage.prompt_tokens,
                usage.completion_tokens,
                dict(sorted(usage.kinds.items())),
                usage.estimated_tokens,
            ),
            warnings=(*question.warnings, *doubts),
            sources=tuple(image for image in question.request.images if not isinstance(image, ImageError)),
        )


async def run_and_repair(progress: Progress, question: PreparedQuestion, run: ProgramRun) -> ProgramResult:
    """Checks and runs a program; one that the model wrote and that fails before its first call goes back once.

    Raises:
        ProgramError: it failed, or its correction did.
    """
    engine, written = question.engine, question.request.program is None
    repairs_left = engine.writer.settings.repairs if written else 0
    while True:
        program = run.program
        progress.tell(Wrote(program))
        try:
            nothing = why_empty(program.completion) if written and not program.source.strip() else ""
            if nothing:
                raise UnsetAnswerError(nothing)
            return await run_program(progress, question, run)
        except ProgramError as error:
            progress.attempts.append((program, error.record()))
            # What ran has cost its model calls, and few programs that fail then come back right. One whose answer
            # is of another kind is told so, and what it asked is remembered.
            again = repairs_left > 0 and (not run.calls.finished or isinstance(error, ProgramAnswerError))
            several = bool(progress.drafts) and engine.settings.agree > 1
            instead: Literal["others", "fallback"] = "others" if several else "fallback"
            progress.tell(Rejected(program, error.record(), "repair" if again else instead if written else "nothing"))
            if not again:
                raise
            repairs_left -= 1
            with progress.stage("writing"):
                program = await question.writer.repair(program, error, engine.services.write, tell=progress.listener)
            fault = run.fault
            if question.writer.settings.refuse:
                fault = (await try_in_worlds(progress, question, [program.source]))[0].fault
            run = progress.begin(program, fault)


async def run_and_vote(
    progress: Progress, question: PreparedQuestion, programs: Sequence[Program], drafts: Sequence[Draft]
) -> ProgramResult:
    """Runs several drafts on the pictures; the answer that most of them give is taken.

    Raises:
        ProgramError: none of them answered; why the first failed.
    """
    settings = question.engine.settings
    sound = [place for place, draft in enumerate(drafts) if draft.fault not in REFUSED]
    order = sound or list(range(len(drafts)))
    order.sort(key=lambda place: (not drafts[place].chosen, -drafts[place].agreement))
    order = order[: settings.agree]
    outcomes: dict[str, ProgramResult | ProgramError] = {}
    for place in order:
        program, spent = programs[place], sum(len(run.calls.finished) for run in progress.runs)
        if outcomes and (program.source in outcomes or spent >= settings.limits.about(len(question.images)).calls):
            continue
        run = progress.begin(program, drafts[place].fault, silent=bool(outcomes))
        try:
            outcomes[program.source] = await (run_program if outcomes else run_and_repair)(progress, question, run)
        except ProgramError as error:
            outcomes[program.source] = error
        if len(outcomes) == 1:
            first = progress.runs[-1]  # maybe repaired
    results = {place: outcomes.get(programs[place].source) for place in order}
    answers = {place: result for place, result in results.items() if isinstance(result, ProgramResult)}
    if not answers:
        progress.runs.append(first)  # whose error is raised
        raise next(error for error in results.values() if isinstance(error, ProgramError))
    votes = Counter(result.text for result in answers.values())
    winner = max(answers, key=lambda place: votes[answers[place].text])  # the first of those with most
    progress.drafts = tuple(
        replace(draft, chosen=place == winner, answer=answers[place].text if place in answers else None)
        for place, draft in enumerate(drafts)
    )
    return answers[winner]


async def run_program(progress: Progress, question: PreparedQuestion, run: ProgramRun) -> ProgramResult:
    """Checks and runs a program; the calls that its source tells of begin at once, to share batches.

    Raises:
        ProgramError: it does not check, or fails while running.
        ModelError: a model failed.
    """
    engine, program = question.engine, run.program
    release = engine.settings.answers == "release"  # which needs no answer
    with suppress(*(UnsetAnswerError,) if release else ()):
        await engine.sandbox.check(program.source)
    if engine.settings.ahead:
        wanted = {primitive.name for primitive in engine.writer.primitives if primitive.ahead}
        run.calls.begin_ahead(CallPlan(program.source, question.images, wanted))
    try:
        outcome = await engine.sandbox.run(program.source, run.calls, images=question.images)
        progress.program_seconds += outcome.seconds
    except ProgramError as error:
        progress.program_seconds += error.seconds
        if not (isinstance(error, UnsetAnswerError) and release):
            raise
        return ProgramResult(run, "no")
    finally:
        run.calls.close()
    # A program that a model wrote is held to its question wherever it runs: on the next set, too.
    written = question.request.program is None or bool(program.prompt)
    if release:
        text = release_text(outcome.value)
    elif engine.writer.settings.fit and written and question.question:
        text = fitted_answer(outcome.value, question.question, question.kind)
    else:
        text = answer_text(outcome.value)
    return ProgramResult(run, text, replace_images(outcome.value), outcome.printed)


async def try_in_worlds(progress: Progress, question: PreparedQuestion, programs: Sequence[str]) -> list[Trial]:
    """Runs programs in random worlds, where their answers are held to the question as real ones are."""
    settings, kind = question.writer.settings, question.kind
    sandbox, seed = question.engine.sandbox, question.engine.settings.seed

    def answer_of(value: TraceValue) -> str:
        return fitted_answer(value, question.question, kind) if settings.fit else answer_text(value)

    # They see of pictures how many there are and how large: a statement about other pictures goes the same way.
    sizes = tuple((image.index, image.picture.size) for image in question.images)
    with progress.stage("choosing"):
        trials = await sandbox.once(
            (*programs, question.question, question.form, sizes),
            lambda: try_out(programs, sandbox, question.images, answer_of, seed),
        )
    return trials if settings.refuse else [replace(trial, fault=None) for trial in trials]


def _ignore(event: Event) -> None:
    """Tells nobody."""


def _doubts(fault: Fault | None) -> list[DomainWarning]:
    """Returns why the program that answers is not to be relied on: none was written that could be."""
    if fault not in REFUSED:
        return []
    return [DomainWarning("unsure", f"Do not rely on this answer: in random worlds, {REFUSED[fault]}.")]
