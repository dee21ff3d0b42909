"""The two endpoints for programs: documented, and within the same limits as the page.

Gradio reads the types off the annotations themselves, so here they are not postponed.
"""

import math
import secrets
from typing import Any, Literal, TypeAlias, TypedDict

import gradio as gr
from gradio.events import api as offer

from ..core.answer import Answer
from ..core.errors import CodeVQAError
from ..core.trace import Call, Plain
from ..pages.words import value_words
from .service import DemoRequest, DemoService

__all__ = ["UploadedPicture", "call_details", "offer_api"]

Details: TypeAlias = dict[str, Any]


class UploadedPicture(TypedDict):
    """An uploaded picture, as ``gradio_client.handle_file`` makes it of a path."""

    path: str
    meta: dict[str, str]


def offer_api(service: DemoService, **queue: Any) -> None:
    """Adds ``/ask`` and ``/run`` to the page that is being built.

    Args:
        service: answers.
        queue: which of Gradio's queues they wait in.
    """

    async def ask(
        images: list[UploadedPicture],
        question: str,
        request: gr.Request,
        method: Literal["codevqa", "pnpvqa"] = "codevqa",
        shots: int = 0,
    ) -> tuple[str, Details]:
        """Answers a question about one picture or several; returns the answer and how it was found.

        Parameters:
            images: the pictures, each from gradio_client.handle_file(path).
            question: a question, or a statement to judge.
            method: codevqa writes a program; pnpvqa is the plain baseline.
            shots: in-context examples; 0 takes the prompt set's number.
        """
        return await _answer(service, DemoRequest(_paths(images), question, method, shots), request)

    async def run(
        program: str,
        images: list[UploadedPicture],
        request: gr.Request,
        question: str = "",
    ) -> tuple[str, Details]:
        """Runs a program of yours in the sandbox; what this client computed before is not computed again.

        Parameters:
            program: the program; it leaves its result in the variable answer.
            images: the pictures, each from gradio_client.handle_file(path).
            question: the question it answers, where it needs one.
        """
        return await _answer(service, DemoRequest(_paths(images), question, program=program), request)

    offer(ask, api_name="ask", **queue)
    offer(run, api_name="run", **queue)


async def _answer(service: DemoService, asked: DemoRequest, request: gr.Request) -> tuple[str, Details]:
    session = str(request.session_hash or f"once-{secrets.token_hex(8)}")
    try:
        answer = await service.answer(asked, session)
    except CodeVQAError as error:
        raise gr.Error(str(error), print_exception=False) from None
    return answer.text, _details(answer)


def _details(answer: Answer) -> Details:
    return {
        "question": answer.question,
        "program": answer.program.source if answer.program else None,
        "calls": [call_details(call) for call in answer.trace.calls],
        "fallback": answer.fallback,
        "error": answer.error and {name: getattr(answer.error, name) for name in ERROR},
        "warnings": [warning.message for warning in answer.warnings],
        "seconds": round(answer.seconds, 4),
        "tokens": answer.tokens,
        "models": dict(answer.models),
    }


ERROR = ("type", "message", "line")


def call_details(call: Call) -> Details:
    """Returns one call of a primitive, in texts and numbers."""
    return {
        "index": call.index,
        "name": call.name,
        "arguments": [{"name": name, "value": _scalar(value)} for name, value in call.arguments.items()],
        "value": _scalar(call.value),
        "line": call.line,
        "seconds": round(call.seconds, 4),
        "remembered": call.remembered,
        "error": call.error and {name: getattr(call.error, name) for name in ERROR},
    }


def _scalar(value: Plain) -> str | float | bool | None:
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
