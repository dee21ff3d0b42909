"""What travels: the program, each call with its evidence, and all that a question did. Frozen data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import PlainSerializer, PlainValidator

from .errors import ErrorRecord

Form: TypeAlias = Literal["image", "set"]
"""Whether a program opens one image (``open_image``) or a set of them (``open_images``)."""

Method: TypeAlias = Literal["codevqa", "pnpvqa", "direct"]
"""By a program, or without one: by reading captions, or by a vision-language model that is asked once."""


def methods_of(*, eyes: bool, reads: bool) -> tuple[Method, ...]:
    """Returns the methods that models can do, in the order in which reports show them.

    ``eyes`` is a vision-language model; ``reads``, BLIP's captions and a reader of them.
    """
    able: Mapping[Method, bool] = {"codevqa": True, "direct": eyes, "pnpvqa": reads}
    return tuple(method for method, can in able.items() if can)


TraceValue: TypeAlias = Any
"""None, bool, int, float, str, :class:`ImageRef`, and lists, tuples and dicts of these."""


def number(value: object) -> float:
    """Returns a number that :func:`json_number` wrote.

    Raises:
        ValueError: it is of another kind.
    """
    if type(value) not in (float, int, str):
        raise ValueError("this must be a number")
    read = float(value)  # type: ignore[arg-type]
    return math.nan if math.isnan(read) else read  # the one NaN that compares as itself inside a tuple


def json_number(value: float) -> float | str:
    """Returns a number as JSON has it, which has no infinities: ``nan``, ``inf`` and ``-inf`` go as text."""
    return float(value) if math.isfinite(value) else str(value)


Number: TypeAlias = Annotated[float, PlainValidator(number), PlainSerializer(json_number)]


@dataclass(frozen=True)
class ImageRef:
    """Stands for the n-th picture of the question wherever plain data is wanted."""

    index: int
    """Counted from 1."""
    part: tuple[int, int, int, int] | None = None
    """Which part of it: left, top, right and bottom in its pixels; None is all of it."""

    def __str__(self) -> str:
        return f"part of image {self.index}" if self.part else f"image {self.index}"

    @property
    def json(self) -> int | list[int]:
        """Its number; that of a part is followed by its four sides."""
        return [self.index, *self.part] if self.part else self.index

    @staticmethod
    def read(value: object) -> ImageRef:
        """Returns what :attr:`json` gave.

        Raises:
            ValueError: it did not.
        """
        numbers: list[Any] = value if isinstance(value, list) and len(value) == 5 else [value]
        if any(type(entry) is not int for entry in numbers):
            raise ValueError("a picture must be named by its number")
        return ImageRef(numbers[0], tuple(numbers[1:]) or None)


Pictures: TypeAlias = tuple[
    Annotated[ImageRef, PlainValidator(ImageRef.read), PlainSerializer(lambda picture: picture.json)], ...
]
"""In JSON they are their numbers; a part's is followed by left, top, right and bottom."""
Box: TypeAlias = tuple[Number, Number, Number, Number]
"""Left, bottom, right and top on the grid of 24, y upwards."""


@dataclass(frozen=True)
class DomainWarning:
    """Why an answer is not to be relied on: the question lies outside of what the models know, or its program is
    doubted."""

    kind: Literal["picture", "words", "spelling", "unsure"]
    """Pictures unlike those they know; words they have never met; words that are probably known ones spelt wrongly,
    which keeps no question from being answered; or no program was written that depends on all that it asked."""
    message: str
    """One line, for people."""
    images: Pictures = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """A program and where it came from."""

    source: str
    """Python source as it runs."""
    question: str = ""
    form: Form = "image"
    examples: tuple[str, ...] = ()
    """Ids of the in-context examples shown, in the order shown; empty for a program a user wrote."""
    prompt: str = ""
    """What the language model saw; empty for a program a user wrote."""
    completion: str = ""
    """What it wrote, before the program was cut out of it."""
    mended: bool = False
    """Whether it named no answer, so that its last value was taken for the answer."""

    def __str__(self) -> str:
        return self.source

    def _repr_html_(self) -> str:
        # The room of pages stands above this one, and imports it.
        return str(import_module("..pages.render", __package__).notebook_html("program", (), self.source))


@dataclass(frozen=True)
class Evidence:
    """Why a primitive returned what it did: one model question with everything it looked at."""

    kind: str
    """What was done: ``pnpvqa``, ``stated`` (captions were read by rule), ``gradcam``, ``itm``, ``itc``, ``detection``,
    ``knowledge`` (no picture was looked at), ``eyes`` (a vision-language model was asked), or a name of the user's. Of
    many pictures: ``select``, ``answers`` or ``sorted``, with ``ruled_out``, ``unread`` and ``left`` for those that
    were not asked."""
    images: Pictures = ()
    text: str = ""
    """The question or phrase put to the model."""
    captions: tuple[tuple[str, ...], ...] = ()
    """Captions read, one tuple an image; its answer, for ``answers``."""
    relevance: tuple[tuple[tuple[Number, ...], ...], ...] = ()
    """GradCAM relevance, one (grid x grid) map an image, top row first. From the 201st call of a program on, neither it
    nor ``patches`` nor ``prompt`` is kept. Ask about one picture to see them: the answer is remembered."""
    patches: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """Indices of the patches each caption read saw, one tuple of subsets an image."""
    scores: tuple[Number, ...] = ()
    """One score an image (``itc``), a description (``itm``, the logit of a match), a box (``detection``) or a choice
    (``eyes``, its probability). ``select`` has the chance of yes for each image, ``ruled_out`` the ITC score."""
    choices: tuple[str, ...] = ()
    """The choices that a vision-language model was given, where it tells their probabilities."""
    position: tuple[Number, Number] | None = None
    boxes: tuple[Box, ...] = ()
    """What a detector found, best first."""
    prompt: str = ""
    """What the model that answered was told."""
    completion: str = ""
    """What it wrote."""


@dataclass(frozen=True)
class Call:
    """One call of a primitive."""

    index: int
    """Counted from 1 in the order the calls began."""
    name: str
    arguments: Mapping[str, TraceValue]
    """Argument values by parameter name."""
    value: TraceValue
    """What it returned; None where it failed."""
    seconds: Number
    """Wall time, waiting for the batch included."""
    line: int | None = None
    """Program line, counted from 1, where it is known."""
    evidence: tuple[Evidence, ...] = ()
    error: ErrorRecord | None = None
    remembered: bool = field(default=False, compare=False)
    """Whether every model call behind it was answered from memory; False where it made none. It depends on what was
    asked before, so calls that differ in nothing else are equal."""
    ahead: bool = field(default=False, compare=False)
    """Whether it had begun before the program asked for it, which then waited for the rest of it only."""

    def __str__(self) -> str:
        shown = ", ".join(_show(value) for value in self.arguments.values())
        outcome = f"failed: {self.error.message}" if self.error else _show(self.value)
        return f"{self.name}({shown}) -> {outcome}"

    def __repr__(self) -> str:
        return f"<Call {self.index}: {' '.join(str(self).split()):.100}>"


Fault: TypeAlias = Literal["fails", "blind", "unread", "one picture"]
"""What random worlds show of a program by itself: it never runs to an answer; its answer is always the same; an answer
that it asked for changes nothing, whatever it is; or of several pictures it looks at one alone, which is right where
the question names that one."""
REFUSED: Mapping[Fault | None, str] = MappingProxyType(
    {"blind": "the answer is always the same", "unread": "something that it asks for changes nothing"}
)
"""What a right program does not do, in words. Another is written."""


@dataclass(frozen=True)
class Draft:
    """One of several programs that were written for a question, and how it did in random worlds."""

    source: str
    examples: tuple[str, ...]
    """Ids of the in-context examples shown."""
    agreement: Number
    """How often it answers as the other drafts do: from 0 to 1."""
    cluster: int
    """Drafts with one number behave alike; counted from 1."""
    fault: Fault | None = None
    """Why it was doubted."""
    chosen: bool = False
    """Whether the answer is its answer."""
    answer: str | None = None
    """What it answered on the pictures; None where it was not run on them, or failed."""


@dataclass(frozen=True)
class Trace:
    """Everything one question did."""

    calls: tuple[Call, ...] = ()
    printed: str = ""
    """What the program printed."""
    attempts: tuple[tuple[Program, ErrorRecord], ...] = ()
    """Programs that were written but failed, each with its error, oldest first."""
    baseline: tuple[Evidence, ...] = ()
    """Evidence of plain PnP-VQA, where it gave the answer."""
    drafts: tuple[Draft, ...] = ()
    """The programs that the answer's was chosen from, where several were written."""

    def __repr__(self) -> str:
        counts = ((len(getattr(self, entry.name)), entry.name) for entry in fields(self) if entry.name != "printed")
        return f"<Trace: {', '.join(f'{count} {name}' for count, name in counts if count) or 'nothing'}>"

    def _repr_html_(self) -> str:
        return str(import_module("..pages.render", __package__).notebook_html("trace", (), self))


def _show(value: TraceValue) -> str:
    if isinstance(value, ImageRef):
        return str(value)
    if isinstance(value, list | tuple):
        more = [f"and {len(value) - 3:,} more"] if len(value) > 10 else []
        return "[" + ", ".join([*map(_show, value[:3] if more else value), *more]) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    return repr(value)


@dataclass(frozen=True)
class Cost:
    """What an answer cost by itself: each call in full, also where it was shared or remembered, and no waiting."""

    model_seconds: float = 0.0
    """Its calls' shares of the batches that they were in."""
    program_seconds: float = 0.0
    """Its programs at work in the sandbox."""
    prompt_tokens: int = 0
    """Tokens the language models read."""
    completion_tokens: int = 0
    """Tokens they wrote."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """Model calls by kind, such as ``caption``."""
    estimated_tokens: int = 0
    """Tokens of both kinds that a server did not count: one for every four characters."""

    @property
    def seconds(self) -> float:
        """What it took of models and processors."""
        return self.model_seconds + self.program_seconds
