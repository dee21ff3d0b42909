"""What meets calls: which ones fit, and the two endpoints for programs, within the same limits as the page.

Gradio reads the types off the annotations themselves, so here they are not postponed.
"""

import secrets
from typing import Any, Literal, TypedDict

import gradio as gr
from gradio.events import api as offer
from pydantic import TypeAdapter, ValidationError

from .service import DemoRequest, DemoService, for_visitors, log_fault

MISFIT = "The call failed: /gradio_api/info tells what it needs."
_REQUEST = TypeAdapter(DemoRequest)


class Blocks(gr.Blocks):
    """Notes of a call that fails what is short: Gradio would print all that the call holds."""

    async def process_api(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what a call returns, or what it yields next."""
        try:
            return await super().process_api(*args, **kwargs)
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception as error:
            log_fault(error)
            raise gr.Error(MISFIT, print_exception=False) from error


class UploadedPicture(TypedDict):
    """An uploaded picture, as ``gradio_client.handle_file`` makes it of a path."""

    path: str
    meta: dict[str, str]


def offer_api(service: DemoService, **queue: Any) -> None:
    """Adds ``/ask`` and ``/run`` to the page that is being built.

    Both return the answer, and all about it as :meth:`codevqa.Answer.to_json` writes it. It is one text: Gradio takes
    any dict with a key ``path`` for a file of this machine that is to be copied out, and a program can make such dicts.

    Args:
        service: answers.
        queue: which of Gradio's queues they wait in.
    """

    async def ask(
        images: list[UploadedPicture],
        question: str,
        request: gr.Request,
        method: Literal["codevqa", "direct", "pnpvqa"] = "codevqa",
        shots: int = 0,
    ) -> tuple[str, str]:
        """Answers a question about one picture or several; returns the answer, and how it was found as JSON.

        Parameters:
            images: the pictures, each from gradio_client.handle_file(path).
            question: a question, or a statement to judge.
            method: codevqa writes a program; pnpvqa and direct are baselines without one.
            shots: in-context examples; 0 takes the prompt set's number.
        """
        return await _ask_service(service, DemoRequest(_paths(images), question, method, shots), request)

    async def run(
        program: str,
        images: list[UploadedPicture],
        request: gr.Request,
        question: str = "",
    ) -> tuple[str, str]:
        """Runs a program of yours in the sandbox; what this client computed before is not computed again.

        Parameters:
            program: the program; it leaves its result in the variable answer.
            images: the pictures, each from gradio_client.handle_file(path).
            question: the question it answers, where it needs one.
        """
        return await _ask_service(service, DemoRequest(_paths(images), question, program=program), request)

    offer(ask, api_name="ask", **queue)
    offer(run, api_name="run", **queue)


async def _ask_service(service: DemoService, asked: DemoRequest, request: gr.Request) -> tuple[str, str]:
    try:
        asked = _REQUEST.validate_python(vars(asked))
    except ValidationError:
        raise gr.Error(MISFIT, print_exception=False) from None
    session = str(request.session_hash or f"once-{secrets.token_hex(8)}")
    *_, live = [state async for state in service.serve(asked, session)]
    if live.answer is None or (live.error is not None and asked.program is None):
        raise gr.Error(live.error.message if live.error else "", print_exception=False)
    return live.answer.text, for_visitors(live.answer).to_json()


def _paths(images: Any) -> list[str]:
    """Returns the files that are named; whether they were uploaded is checked where they are read."""
    files = images if isinstance(images, list) else [images]
    return [str(file["path"]) for file in files if isinstance(file, dict) and isinstance(file.get("path"), str)]
