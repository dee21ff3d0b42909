"""What travels: the program, each call with its evidence, and the answer. Frozen data, no behaviour but rendering."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .errors import ErrorRecord

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

    def __str__(self) -> str:
        return self.text

    def to_dict(self, *, evidence: bool = True) -> dict[str, Any]:
        """Returns plain JSON-ready data with the keys the command line prints.

        Args:
            evidence: whether to include each call's captions, maps and prompts, which are long.
        """
        return {
            "question": self.question,
            "answer": self.text,
            "program": self.program.source if self.program else None,
            "calls": [_call_dict(call, evidence) for call in self.trace.calls],
            "fallback": self.fallback,
            "error": dataclasses.asdict(self.error) if self.error else None,
            "seconds": round(self.seconds, 4),
            "models": dict(self.models),
        }

    def to_json(self, *, evidence: bool = True) -> str:
        """Returns :meth:`to_dict` as one line of JSON."""
        return json.dumps(self.to_dict(evidence=evidence), ensure_ascii=False, allow_nan=False)


def _show(value: Plain) -> str:
    if isinstance(value, ImageRef):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    return repr(value)


def _jsonable(value: Plain) -> Any:
    if isinstance(value, ImageRef):
        return {"image": value.index}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return str(value)  # JSON has no such numbers
    return value


def _call_dict(call: Call, evidence: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": call.name,
        "arguments": {name: _jsonable(value) for name, value in call.arguments.items()},
        "value": _jsonable(call.value),
        "seconds": round(call.seconds, 4),
        "line": call.line,
        "error": dataclasses.asdict(call.error) if call.error else None,
    }
    if evidence:
        shown["evidence"] = [
            {
                **{name: value for name, value in vars(item).items() if name not in ("images", "relevance")},
                "images": [image.index for image in item.images],
                "relevance": [[[round(cell, 5) for cell in row] for row in rows] for rows in item.relevance],
            }
            for item in call.evidence
        ]
    return shown
