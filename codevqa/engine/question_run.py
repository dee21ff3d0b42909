"""The course of one question, from pictures and words to an answer.

Reads like the paper: the writer asks a language model for a program; the sandbox checks it and runs it; each primitive
it calls is answered by batched models. A program that fails before its first call is repaired once; else plain few-shot
PnP-VQA answers in its place, marked as a fallback. A program that the user wrote takes the same course from the check
on, and nothing answers in its place. Where there is a vision-language model, that is what answers in place of captions.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial

from ..batching.call_cache import Usage
from ..core.answer import Answer
from ..core.answer_words import DONT_KNOW
from ..core.errors import CodeVQAError, EngineClosedError, InternalError, ModelError, ProgramError
from ..core.events import Answered, EventListener, Failed
from ..core.trace import Draft, Program
from ..writing.choice import write_best
from .answers import sure_enough
from .prepared_question import Engine, PreparedQuestion, keep_on_disk, prepare, unanswerable
from .program_runs import ProgramResult, Progress, run_and_repair, run_and_vote, try_in_worlds
from .request import Errors, Request, check_options

_log = logging.getLogger(__name__)
FALLBACK_PARTS = 10
"""Parts in which a set is read at most where a program failed: captions of a large one would take hours."""


async def answer_request(
    engine: Engine, request: Request, tell: EventListener | None = None, *, errors: Errors = "raise"
) -> Answer:
    """Answers one question, or runs one program; everything an engine does goes through here.

    Args:
        engine: answers it.
        request: what is wanted.
        tell: told of every step; None where nobody watches.
        errors: whether a question that cannot be answered is raised, or what was done until then, with its ``error``.

    Raises:
        CodeVQAError: it cannot be answered; told as well. A ProgramError carries what was done until then.
    """
    progress = Progress(tell, Usage(memory=request.memory))
    try:
        check_options(request)
        with engine.services.question(), progress.usage.counting(), keep_on_disk(engine.models, request.images):
            answer = await _answer(engine, request, progress)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        known = error if isinstance(error, CodeVQAError) else _mistake(error, request)
        done: Answer | None = None
        if progress.question is not None:
            printed = known.printed if isinstance(known, ProgramError) else ""
            done = replace(progress.answer("", printed=printed), error=known.record())
        for failed in (known, known.__cause__):  # a fallback that fails has a program's error as its cause
            if isinstance(failed, ProgramError):
                failed.answer = done
        progress.tell(Failed(known.record(), done))
        if errors == "return" and done is not None:
            return done
        if known is error:
            raise
        raise known from error
    progress.tell(Answered(answer))
    return answer


async def _answer(engine: Engine, request: Request, progress: Progress) -> Answer:
    """Answers; the steps in order."""
    question = progress.question = await prepare(engine, request)
    if question.strict and unanswerable(question.warnings, len(question.images)):
        return progress.answer(DONT_KNOW)
    if question.strict and request.program is None:
        question = progress.question = question.within_domain()
    if request.program is None and request.method != "codevqa":
        return await _read(progress, question)
    programs: tuple[Program, ...]
    drafts: tuple[Draft, ...] = ()
    try:
        if request.program is not None:
            programs = (request.program,)
        else:
            with progress.stage("writing"):
                programs, drafts = await _write(progress, question)
        with progress.stage("running"):
            result = await _run(progress, question, programs, drafts)
        answer = progress.answer(result.text, result.run, value=result.value, printed=result.printed)
        return sure_enough(answer, engine.settings.abstain_below)
    except ProgramError as error:
        if request.program is not None:
            raise
        # Never a quiet default: the whole question is answered without a program, and the answer says so.
        try:
            answer = await _read(progress, question, FALLBACK_PARTS)
        except ModelError as failure:  # of which a program cut short may be another sign
            raise failure.after(error) from error
        return replace(answer, fallback=True, error=error.record())


async def _write(progress: Progress, question: PreparedQuestion) -> tuple[tuple[Program, ...], tuple[Draft, ...]]:
    """Has programs written, and returns them with what each is worth; nothing is known of a program that was not tried.

    Raises:
        InputError: there are not so many examples.
        ModelError: the language model failed.
    """
    engine, request, writer = question.engine, question.request, question.writer
    services, tell, text, form = engine.services, progress.listener, question.question, question.form
    # The questions that wait for a worker are embedded in one batch with this one: a retriever takes hundreds of
    # sentences in little more time than one.
    if engine.workers.fresh and not services.embed.remembers(writer.sentences([text], form)):
        services.embed_ahead(writer.sentences(engine.workers.take_fresh(form), form))
    await writer.prepare(text, form, services.embed.many)
    most = max(writer.drafts, engine.settings.agree)
    if most == 1 and not writer.settings.refuse:
        return (await writer.write(text, form, services.write, shots=request.shots, tell=tell),), ()

    try_out = partial(try_in_worlds, progress, question)
    return await write_best(writer, text, form, services.write, try_out, most=most, shots=request.shots, tell=tell)


async def _run(
    progress: Progress, question: PreparedQuestion, programs: tuple[Program, ...], drafts: tuple[Draft, ...]
) -> ProgramResult:
    """Runs the chosen program on the pictures, or several that vote."""
    progress.drafts = drafts if len(drafts) > 1 else ()  # one alone was not chosen
    if progress.drafts and question.engine.settings.agree > 1:
        return await run_and_vote(progress, question, programs, drafts)
    place = next((place for place, draft in enumerate(drafts) if draft.chosen), 0)
    fault = drafts[place].fault if drafts else None
    return await run_and_repair(progress, question, progress.begin(programs[place], fault))


async def _read(progress: Progress, question: PreparedQuestion, parts: int | None = None) -> Answer:
    with progress.stage("reading"):
        reading = await question.read(parts)
    return progress.answer(reading.text, value=reading.text, baseline=reading.evidence)


def _mistake(error: BaseException, request: Request) -> CodeVQAError:
    """Returns what a caller is told of an error that is none of ours."""
    if "cannot schedule new futures after" in str(error):  # Python is ending, and its executors take no more work
        return EngineClosedError()
    _log.error("A question failed: %r", request.question, exc_info=error)
    name = type(error).__name__
    return InternalError(f"codevqa made a mistake: {name}.", hint="The log has it: please report it.")
