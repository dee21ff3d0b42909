"""What one question does, told while it does it.

:meth:`codevqa.CodeVQA.watch` yields these events in the order things happen; the last one carries the answer, or the
error that ended the question. They are frozen data, enough to show all of it.

    with vqa.watch("picture.png", "What color is the star?") as watch:
        for event in watch:
            match event:
                case Writing(source):
                    ...
                case CallEnded(call):
                    ...
                case Answered(answer):
                    ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .answer import Answer
from .errors import ErrorRecord
from .trace import Call, Program, TraceValue


class ShortRepr:
    """Shows itself on one line: its name and its fields, each cut short."""

    def __repr__(self) -> str:
        text = ", ".join(f"{name}={value!r:.50}" for name, value in vars(self).items())
        return f"{type(self).__name__}({text:.100})"


@dataclass(frozen=True, repr=False)
class PromptExample(ShortRepr):
    """One in-context example that the language model is shown."""

    id: str
    question: str
    program: str
    """With the line that opens its image, as the prompt shows it."""


@dataclass(frozen=True, repr=False)
class Prepared(ShortRepr):
    """The pictures are read and the prompt is made: these examples were picked, in the order shown.

    Not told where there is no prompt: of the baseline, and of a program that the user wrote.
    """

    examples: tuple[PromptExample, ...]
    prompt: str
    """Exactly what the language model sees."""


@dataclass(frozen=True, repr=False)
class Writing(ShortRepr):
    """The program as far as it is written; each replaces the one before.

    Language models that cannot tell skip this, and so do programs that come from memory. Where nobody takes events for
    a while, only the newest of these is kept.
    """

    source: str


@dataclass(frozen=True, repr=False)
class Wrote(ShortRepr):
    """A program is written, or was given by the user, and goes to the check and then runs."""

    program: Program


@dataclass(frozen=True, repr=False)
class CallBegan(ShortRepr):
    """The program calls a primitive and waits for it."""

    index: int
    """Counted from 1, as in the :class:`~codevqa.Call` that ends it."""
    name: str
    arguments: Mapping[str, TraceValue]
    line: int | None


@dataclass(frozen=True, repr=False)
class CallEnded(ShortRepr):
    """The primitive has answered, or failed."""

    call: Call


@dataclass(frozen=True, repr=False)
class Rejected(ShortRepr):
    """A program failed its check or its run.

    It is written again (``repair``), other programs for the question are run (``others``), the plain answer takes its
    place (``fallback``), or nothing does.
    """

    program: Program
    error: ErrorRecord
    next: Literal["repair", "others", "fallback", "nothing"]


@dataclass(frozen=True, repr=False)
class Answered(ShortRepr):
    """The end, with everything. Its trace holds all calls told before."""

    answer: Answer


@dataclass(frozen=True, repr=False)
class Failed(ShortRepr):
    """The end without an answer: the pictures, the question, a model or (where the user wrote it) the program."""

    error: ErrorRecord
    answer: Answer | None = None
    """What was done until then, with an empty text and this error: its trace holds the calls that ran, which are not
    lost. None where the pictures or the question could not be used at all."""


Event: TypeAlias = Prepared | Writing | Wrote | CallBegan | CallEnded | Rejected | Answered | Failed
"""Any of them; tell them apart with ``match``."""

EventListener: TypeAlias = Callable[[Event], None]
"""Takes an event; called from the engine's thread, or from a model's. Quick, and never raises."""
