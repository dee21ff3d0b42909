"""The two endpoints for programs: typed, documented, and within the same limits as the page.

Gradio reads the types off the annotations themselves, so here they are not postponed.
"""

import math
import secrets
from typing import Any, Literal, TypeAlias, TypedDict

import gradio as gr
from gradio.events import api as offer

from ..core.answer import Answer
from ..core.errors import CodeVQAError, ErrorRecord
from ..core.trace import Call, Plain
from ..pages.words import value_words
from .service import DemoRequest, DemoService

__all__ = ["AnswerDetails", "CallDetails", "ErrorDetails", "UploadedPicture", "offer_api"]

Scalar: TypeAlias = str | float | bool | None


class UploadedPicture(TypedDict):
    """An uploaded picture, as ``gradio_client.handle_file`` makes it of a path."""

    path: str
    meta: dict[str, str]


class ErrorDetails(TypedDict):
    """What went wrong with a program."""

    type: str
    message: str
    line: int | None


class ArgumentDetails(TypedDict):
    """One argument of a call: a text or number as it is, anything else in words."""

    name: str
    value: Scalar


class CallDetails(TypedDict):
    """One call of a primitive."""

    index: int
    name: str
    arguments: list[ArgumentDetails]
    value: Scalar
    """What it returned: a text or number as it is, anything else in words, such as ``image 2``."""
    line: int | None
    seconds: float
    remembered: bool
    """Whether it was answered from what this client had computed before."""
    error: ErrorDetails | None


class AnswerDetails(TypedDict):
    """How an answer was found."""

    question: str
    program: str | None
    calls: list[CallDetails]
    fallback: bool
    error: ErrorDetails | None
    warnings: list[str]
    """Why the answer is not to be relied on."""
    seconds: float
    tokens: int
    models: dict[str, str]


def offer_api(service: DemoService) -> None:
    """Adds ``/ask`` and ``/run`` to the page that is being built."""
    default = service.engines.default

    async def ask(
        images: list[UploadedPicture],
        question: str,
        request: gr.Request,
        preset: str = default,
        method: Literal["codevqa", "pnpvqa"] = "codevqa",
        shots: int = 0,
    ) -> tuple[str, AnswerDetails]:
        """Answers a question about one picture or several; returns the answer and how it was found.

        Parameters:
            images: the pictures, each from gradio_client.handle_file(path).
            question: a question, or a statement to judge.
            preset: which models answer: mini, base, large or paper.
            method: codevqa writes a program; pnpvqa is the plain baseline.
            shots: in-context examples; 0 takes the prompt set's number.
        """
        return await _answer(service, DemoRequest(_paths(images), question, preset, method, shots), request)

    async def run(
        program: str,
        images: list[UploadedPicture],
        request: gr.Request,
        question: str = "",
        preset: str = default,
    ) -> tuple[str, AnswerDetails]:
        """Runs a program of yours in the sandbox; what this client computed before is not computed again.

        Parameters:
            program: the program; it leaves its result in the variable answer.
            images: the pictures, each from gradio_client.handle_file(path).
            question: the question it answers, where it needs one.
            preset: which models answer: mini, base, large or paper.
        """
        return await _answer(service, DemoRequest(_paths(images), question, preset, program=program), request)

    # The service keeps the line: Gradio's would refuse Stop and all else on the page while it is full.
    offer(ask, api_name="ask", concurrency_limit=None)
    offer(run, api_name="run", concurrency_limit=None)


async def _answer(service: DemoService, asked: DemoRequest, request: gr.Request) -> tuple[str, AnswerDetails]:
    session = str(request.session_hash or f"once-{secrets.token_hex(8)}")
    try:
        answer = await service.answer(asked, session)
    except CodeVQAError as error:
        raise gr.Error(str(error), print_exception=False) from None
    return answer.text, _details(answer)


def _details(answer: Answer) -> AnswerDetails:
    return AnswerDetails(
        question=answer.question,
        program=answer.program.source if answer.program else None,
        calls=[_call(call) for call in answer.trace.calls],
        fallback=answer.fallback,
        error=_error(answer.error),
        warnings=[warning.message for warning in answer.warnings],
        seconds=round(answer.seconds, 4),
        tokens=answer.tokens,
        models=dict(answer.models),
    )


def _call(call: Call) -> CallDetails:
    return CallDetails(
        index=call.index,
        name=call.name,
        arguments=[ArgumentDetails(name=name, value=_scalar(value)) for name, value in call.arguments.items()],
        value=_scalar(call.value),
        line=call.line,
        seconds=round(call.seconds, 4),
        remembered=call.remembered,
        error=_error(call.error),
    )


def _error(error: ErrorRecord | None) -> ErrorDetails | None:
    return ErrorDetails(type=error.type, message=error.message, line=error.line) if error else None


def _scalar(value: Plain) -> Scalar:
    """Returns a value that holds no others.

    Gradio takes any dict with a key ``path`` for a file of this machine that is to be copied out, wherever in a result
    it stands, and a program can make such dicts.
    """
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return value_words(value, most=1000)


def _paths(images: Any) -> list[str]:
    """Returns the files that are named; whether they were uploaded is checked where they are read."""
    given = images if isinstance(images, list) else [images]
    return [str(one["path"]) for one in given if isinstance(one, dict) and isinstance(one.get("path"), str)]
