"""What a user wants of an engine, and the options that every way of asking takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from ..batching.call_cache import Memory
from ..core.images import ImageSource
from ..core.trace import Form, Method, Program

__all__ = ["AskOptions", "Request", "RunOptions"]


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
