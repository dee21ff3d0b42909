"""What travels: the program, each call with its evidence, and the answer. Frozen data, no behaviour but rendering."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from .errors import ErrorRecord, InputError, SetupError

if TYPE_CHECKING:
    from .images import ImageSource

__all__ = ["Answer", "Call", "Evidence", "Form", "ImageRef", "Plain", "Program", "Trace"]

Form: TypeAlias = Literal["image", "set"]
"""Whether a program opens one image (``open_image``) or a set of them (``open_images``)."""

Plain: TypeAlias = Any
"""None, bool, int, float, str, :class:`ImageRef`, and lists, tuples and dicts of these."""


@dataclass(frozen=True)
class ImageRef:
    """Stands for the n-th picture of the question wherever plain data is wanted."""

    index: int
    """Counted from 1."""

    def __str__(self) -> str:
        return f"image {self.index}"


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


@dataclass(frozen=True)
class Evidence:
    """Why a primitive returned what it did: one model question with everything it looked at."""

    kind: str
    """What was done: ``pnpvqa``, ``gradcam``, ``itc``, ``detection``, or a name of the user's."""
    images: tuple[ImageRef, ...] = ()
    text: str = ""
    """The question or phrase put to the model."""
    captions: tuple[tuple[str, ...], ...] = ()
    """Captions read, one tuple an image."""
    relevance: tuple[tuple[tuple[float, ...], ...], ...] = ()
    """GradCAM relevance, one (grid x grid) map an image, top row first."""
    patches: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """Indices of the patches each caption read saw, one tuple of subsets an image."""
    scores: tuple[float, ...] = ()
    """One score an image (``itc``) or a box (``detection``)."""
    position: tuple[float, float] | None = None
    prompt: str = ""
    """What the reading language model saw."""
    completion: str = ""
    """What it wrote."""


@dataclass(frozen=True)
class Call:
    """One call of a primitive."""

    index: int
    """Counted from 1 in the order the calls began."""
    name: str
    arguments: Mapping[str, Plain]
    """Argument values by parameter name."""
    value: Plain
    """What it returned; None where it failed."""
    seconds: float
    """Wall time, waiting for the batch included."""
    line: int | None = None
    """Program line, counted from 1, where it is known."""
    evidence: tuple[Evidence, ...] = ()
    error: ErrorRecord | None = None
    remembered: bool = field(default=False, compare=False)
    """Whether every model call behind it was answered from memory; False where it made none. It depends on what was
    asked before, so calls that differ in nothing else are equal."""

    def __str__(self) -> str:
        shown = ", ".join(_show(value) for value in self.arguments.values())
        outcome = f"failed: {self.error.message}" if self.error else _show(self.value)
        return f"{self.name}({shown}) -> {outcome}"


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


@dataclass(frozen=True)
class Answer:
    """An answer with the program that found it and the evidence it rests on."""

    question: str
    text: str
    """The answer; empty only where ``error`` is set and there was no fallback."""
    program: Program | None
    """The program last tried; None for the baseline."""
    trace: Trace
    value: Plain = None
    """What the program left in ``answer``, before it became text."""
    method: Literal["codevqa", "pnpvqa"] = "codevqa"
    fallback: bool = False
    """True where the program failed and plain few-shot PnP-VQA answered in its place."""
    error: ErrorRecord | None = None
    """Why the program failed, where it did."""
    seconds: float = 0.0
    """Wall time from question to answer."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model ids by role."""
    tokens: int = 0
    """Tokens the language models read and wrote, as far as they count them."""
    sources: tuple[ImageSource, ...] = field(default=(), compare=False, repr=False)
    """The pictures as the user gave them, to show them again; not part of the JSON."""

    def __str__(self) -> str:
        return self.text

    def to_dict(self, *, evidence: bool = True) -> dict[str, Any]:
        """Returns plain JSON-ready data.

        Args:
            evidence: True gives everything, for :meth:`from_dict` to take back. False gives the keys that the command
                line prints, without captions, maps and prompts, which are long; it cannot be taken back.
        """
        from .answer_json import encode

        return encode(self, evidence=evidence)

    def to_json(self, *, evidence: bool = True) -> str:
        """Returns :meth:`to_dict` as one line of JSON."""
        return json.dumps(self.to_dict(evidence=evidence), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answer:
        """Returns the answer that :meth:`to_dict` was called on; the two are equal.

        Raises:
            InputError: it was written without evidence, or is no answer.
        """
        from .answer_json import decode

        return decode(data)

    @classmethod
    def from_json(cls, text: str) -> Answer:
        """Returns the answer that :meth:`to_json` was called on; the two are equal.

        Raises:
            InputError: it was written without evidence, or is no answer.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InputError(f"This is no JSON: {error}.", hint="Give what Answer.to_json() returned.") from None
        return cls.from_dict(data)

    def save_html(
        self, path: str | os.PathLike[str], images: ImageSource | Sequence[ImageSource] | None = None
    ) -> None:
        """Writes everything on one self-contained page: pictures, program, each call with its evidence.

        Args:
            path: the file; replaced where it exists, and left alone where writing fails.
            images: the pictures; None takes those the question was asked about (``sources``).

        Raises:
            InputError: there are no pictures (an answer that came from JSON has none), or too few.
            ImageError: a picture cannot be read any more.
            SetupError: the file cannot be written.
        """
        _pages().save(self, path, images)

    def _repr_html_(self) -> str:
        """Shows the answer in a notebook; without pictures where they cannot be read any more."""
        return _pages().fragment(self)


class AnswerPages(Protocol):
    """Draws answers: :mod:`codevqa.pages.answer_page`, which stands above this module and so is handed in."""

    def save(
        self, answer: Answer, path: str | os.PathLike[str], images: ImageSource | Sequence[ImageSource] | None = None
    ) -> None:
        """Writes an answer's page."""
        ...

    def fragment(self, answer: Answer) -> str:
        """Returns what a notebook shows of an answer."""
        ...


def draw_with(pages: Callable[[], AnswerPages]) -> None:
    """Says what draws answers; it is loaded at the first of them."""
    global _pages
    _pages = pages


def _nothing_draws() -> AnswerPages:
    raise SetupError("Nothing draws answers here.", hint="Import codevqa.")


_pages: Callable[[], AnswerPages] = _nothing_draws


def _show(value: Plain) -> str:
    if isinstance(value, ImageRef):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    return repr(value)
