"""What a user wants of an engine, and the options that every way of asking takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, get_args

from ..batching.call_cache import Memory
from ..core.errors import InputError
from ..core.images import ImageSource
from ..core.trace import Form, Method, Program

__all__ = ["AskOptions", "Request", "RunOptions", "check_options"]


class RunOptions(TypedDict, total=False):
    """Options of :meth:`codevqa.CodeVQA.run`."""

    form: Form | None
    """``image`` or ``set``; None decides by the number of images, or takes ``set`` where the program was written for
    one."""
    seed: int | None
    """Seed of patch and caption sampling for this question alone; None takes the settings'."""
    memory: Memory | None
    """Where finished model calls are looked up and kept, in place of the engine's own: nothing is taken over from
    questions with another memory."""


class AskOptions(RunOptions, total=False):
    """Options of :meth:`codevqa.CodeVQA.ask`."""

    method: Method
    """``codevqa``, or ``pnpvqa`` for the baseline without a program."""
    shots: int | None
    """In-context examples that the language model is shown when it writes the program, from 0 to all there are; None
    takes the settings' number, or the prompt set's."""


@dataclass(frozen=True)
class Request:
    """A question to answer, or a program of the user's to run."""

    images: ImageSource | Sequence[ImageSource]
    question: str
    form: Form | None = None
    method: Method = "codevqa"
    seed: int | None = None
    shots: int | None = None
    memory: Memory | None = None
    program: Program | None = None
    """The user's program; None has one written."""


def check_options(request: Request) -> None:
    """Checks what a type checker would, for callers that have none.

    Raises:
        InputError: an option has a value of another kind.
    """
    options = {
        "form": (request.form in (None, *get_args(Form)), "'image', 'set' or None"),
        "method": (request.method in get_args(Method), "'codevqa' or 'pnpvqa'"),
        "seed": (isinstance(request.seed, int | None), "a whole number or None"),
        "shots": (isinstance(request.shots, int | None), "a whole number or None"),
        "memory": (isinstance(request.memory, Memory | None), "a Memory or None"),
        "program": (isinstance(request.program, Program | None), "a text or a Program"),
    }
    for name, (fits, wanted) in options.items():
        if not fits:
            raise InputError(f"{name} is {getattr(request, name)!r:.60}.", hint=f"Give {wanted}.")
