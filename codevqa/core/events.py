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
from .trace import Call, Plain, Program, brief


@dataclass(frozen=True)
class Shown:
    """One in-context example that the language model is shown."""

    id: str
    question: str
    program: str
    """With the line that opens its image, as the prompt shows it."""

    __repr__ = brief


@dataclass(frozen=True)
class Prepared:
    """The pictures are read and the prompt is made: these examples were picked, in the order shown.

    Not told where there is no prompt: of the baseline, and of a program that the user wrote.
    """

    examples: tuple[Shown, ...]
    prompt: str
    """Exactly what the language model sees."""

    __repr__ = brief


@dataclass(frozen=True)
class Writing:
    """The program as far as it is written; each replaces the one before.

    Language models that cannot tell skip this, and so do programs that come from memory. Where nobody takes events for
    a while, only the newest of these is kept.
    """

    source: str

    __repr__ = brief


@dataclass(frozen=True)
class Wrote:
    """A program is written, or was given by the user, and goes to the check and then runs."""

    program: Program

    __repr__ = brief


@dataclass(frozen=True)
class CallBegan:
    """The program calls a primitive and waits for it."""

    index: int
    """Counted from 1, as in the :class:`~codevqa.Call` that ends it."""
    name: str
    arguments: Mapping[str, Plain]
    line: int | None

    __repr__ = brief


@dataclass(frozen=True)
class CallEnded:
    """The primitive has answered, or failed."""

    call: Call

    __repr__ = brief


@dataclass(frozen=True)
class Rejected:
    """A program failed its check or its run.

    It is written again (``repair``), other programs for the question are run (``others``), the plain answer takes its
    place (``fallback``), or nothing does.
    """

    program: Program
    error: ErrorRecord
    next: Literal["repair", "others", "fallback", "nothing"]

    __repr__ = brief


@dataclass(frozen=True)
class Answered:
    """The end, with everything. Its trace holds all calls told before."""

    answer: Answer

    __repr__ = brief


@dataclass(frozen=True)
class Failed:
    """The end without an answer: the pictures, the question, a model or (where the user wrote it) the program."""

    error: ErrorRecord
    answer: Answer | None = None
    """What was done until then, with an empty text and this error: its trace holds the calls that ran, which are not
    lost. None where the pictures or the question could not be used at all."""

    __repr__ = brief


Event: TypeAlias = Prepared | Writing | Wrote | CallBegan | CallEnded | Rejected | Answered | Failed
"""Any of them; tell them apart with ``match``."""

Tell: TypeAlias = Callable[[Event], None]
"""Takes an event; called from the engine's thread, or from a model's. Quick, and never raises."""
