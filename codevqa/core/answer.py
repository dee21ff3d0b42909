"""An answer, with the program that found it and the evidence it rests on. Frozen data, and how it is shown."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from .errors import ErrorRecord, InputError
from .input_files import parser_errors
from .question_kind import joins
from .selection import Selection, selections
from .trace import Cost, DomainWarning, Method, Number, Program, Trace, TraceValue
from .value_json import read_value, value_keys

if TYPE_CHECKING:
    from .images import ImageSource
else:
    ImageSource = Any  # pydantic resolves annotations, and never sees pictures

_SHORT = ("question", "answer", "program", "calls", "fallback", "error", "warnings", "seconds", "models")
_LONG = ("tokens", "cost", "method", "value", "written", "printed", "attempts", "baseline")
"""Keys of the JSON: of both forms, and of the full one alone."""
_SEVERAL = ("confidence", "abstained", "drafts")
"""Keys of an answer that was chosen from several programs; the drafts are in the full form alone."""
_OPTIONAL = (*_SEVERAL[:2], "stages")
"""Keys that may be missing."""
_SHORT_CALL = ("name", "arguments", "value", "seconds", "line", "error")


@dataclass(frozen=True)
class Answer:
    """An answer with the program that found it and the evidence it rests on."""

    question: str
    text: str
    """The answer; empty only where ``error`` is set and there was no fallback."""
    program: Program | None
    """The program last tried; None for the baseline."""
    trace: Trace
    value: TraceValue = None
    """What the program left in ``answer``, before it became text."""
    method: Method = "codevqa"
    fallback: bool = False
    """True where the program failed and plain few-shot PnP-VQA answered in its place."""
    error: ErrorRecord | None = None
    """Why the program failed, where it did."""
    seconds: Number = 0.0
    """Wall time from question to answer."""
    stages: Mapping[str, Number] = field(default_factory=dict, compare=False)
    """These seconds by what was done: ``writing`` programs, ``choosing`` among them, ``running`` them with their calls,
    ``reading`` without a program, and ``other``. Empty where that is not known."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model ids by role."""
    tokens: int = 0
    """Tokens the language models read and wrote, as far as they count them."""
    cost: Cost | None = field(default=None, compare=False)
    """What it took to find, without waiting; None where it could not be answered at all."""
    confidence: float | None = None
    """How probable it is that the answer is right, from 0 to 1; None where fewer than three programs were written,
    none answered, or the one that answered was refused. Fitted on drawn pictures (:mod:`codevqa.engine.answers`)."""
    abstained: bool = False
    """Whether the text is "I don't know" since the confidence is below :attr:`codevqa.Settings.abstain_below`; the
    drafts have the answers."""
    warnings: tuple[DomainWarning, ...] = ()
    """Why the answer is not to be relied on: what lies outside of the models' domain."""
    sources: tuple[ImageSource, ...] = field(default=(), compare=False, repr=False)
    """The pictures, to show them again: paths and bytes as they were given, all others as they were read. Not part of
    the JSON."""

    def __str__(self) -> str:
        return self.text

    @property
    def selections(self) -> tuple[Selection, ...]:
        """Which pictures were selected, and how sure that is; see :func:`codevqa.core.selection.selections`."""
        return selections(self.trace)

    @property
    def declined(self) -> bool:
        """Whether no model was asked, because of ``warnings`` (:attr:`codevqa.Settings.strict_domain`)."""
        trace = self.trace
        return bool(self.warnings and self.error is None and not (self.program or trace.baseline or trace.calls))

    @property
    def in_parts(self) -> str:
        """How a model that has no room for all pictures at once answered without a program; else an empty text."""
        parts = self.trace.baseline
        if len(parts) < 2:
            return ""
        joined = {"sum": "their numbers are summed", "any": "yes is yes in any", "all": "yes is yes in all"}
        most = max(len(part.images) for part in parts)
        return f"read in {len(parts)} parts of up to {most} pictures: {joined.get(joins(self.question), 'joined')}"

    def __repr__(self) -> str:
        what = f"{self.method}, {len(self.trace.calls)} calls, {self.seconds:.2f} s"
        failed = f", {'fell back: ' if self.fallback else ''}{self.error.type}" if self.error else ""
        return f"<Answer {self.text!r:.80} to {self.question!r:.80} ({what}{failed})>"

    def to_dict(self, *, evidence: bool = True) -> dict[str, Any]:
        """Returns plain JSON-ready data.

        Args:
            evidence: True gives everything, for :meth:`from_dict` to take back. False gives the keys that the command
                line prints, without captions, maps and prompts, which are long; it cannot be taken back.
        """
        calls = [
            replace(call, arguments={}, value=None, evidence=call.evidence if evidence else ())
            for call in self.trace.calls
        ]
        bare = replace(self, value=None, trace=replace(self.trace, calls=tuple(calls)))
        record: dict[str, Any] = _ANSWER.dump_python(bare, mode="json", exclude={"sources"})
        record |= {**record.pop("trace"), "answer": self.text, "written": record["program"]}
        record["program"] = self.program.source if self.program else None
        for shown, call in zip(record["calls"], self.trace.calls, strict=True):
            shown |= value_keys("arguments", dict(call.arguments)) | value_keys("value", call.value)
        if not evidence:
            for entry in (record, *record["calls"]):
                entry["seconds"] = round(entry["seconds"], 4)
            short = [{key: call[key] for key in _SHORT_CALL} for call in record["calls"]]
            several = {key: record[key] for key in _SEVERAL[:2]} if self.trace.drafts else {}
            return {**{key: record[key] for key in _SHORT}, "calls": short, **several}
        record["attempts"] = [{"program": program, "error": error} for program, error in record["attempts"]]
        several = {key: record[key] for key in _SEVERAL} if self.trace.drafts else {}
        several |= {"stages": record["stages"]} if self.stages else {}
        return {key: record[key] for key in (*_SHORT, *_LONG)} | several | value_keys("value", self.value)

    def to_json(self, *, evidence: bool = True) -> str:
        """Returns :meth:`to_dict` as one line of JSON."""
        return json.dumps(self.to_dict(evidence=evidence), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answer:
        """Returns the answer that :meth:`to_dict` was called on; the two are equal.

        Raises:
            InputError: it was written without evidence, or is no answer.
        """
        if not isinstance(data, Mapping) or "answer" not in data:
            raise InputError("This JSON is no answer.", hint="Give what Answer.to_json() returned.")
        if "written" not in data:
            raise InputError(
                "This answer was written without its evidence and cannot be restored.",
                hint="Write it with to_json(evidence=True), or --json --evidence.",
            )
        try:
            record = {key: data[key] for key in (*_SHORT, *_LONG)}
            record |= {key: data[key] for key in _OPTIONAL if key in data}
            trace = {
                "calls": [
                    {**call, **read_value("arguments", call), **read_value("value", call)} for call in record["calls"]
                ],
                "printed": record["printed"],
                "attempts": [(attempt["program"], attempt["error"]) for attempt in record["attempts"]],
                "baseline": record["baseline"],
                "drafts": data.get("drafts", ()),
            }
            whole = {
                "text": record["answer"],
                "program": record["written"],
                "trace": trace,
                **read_value("value", data),
            }
            return _ANSWER.validate_python(record | whole)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
        raise InputError(f"This answer is damaged: {reason[:200]}.", hint="Give what Answer.to_json() returned.")

    @classmethod
    def from_json(cls, text: str) -> Answer:
        """Returns the answer that :meth:`to_json` was called on; the two are equal.

        Raises:
            InputError: it was written without evidence, or is no answer.
        """
        with parser_errors("this answer"):
            data = json.loads(text)
        return cls.from_dict(data)

    def save_html(
        self, path: str | os.PathLike[str], images: ImageSource | Sequence[ImageSource] | None = None
    ) -> Path:
        """Writes everything on one self-contained page: pictures, program, each call with its evidence.

        Args:
            path: the file; replaced where it exists, and left alone where writing fails. In a folder, the page is
                named by picture and question.
            images: the pictures; None takes those the question was asked about (``sources``).

        Returns:
            The file.

        Raises:
            InputError: there are no pictures (an answer that came from JSON has none), or too few.
            ImageError: a picture cannot be read any more.
            SetupError: the file cannot be written.
        """
        return Path(import_module(_PAGE, __package__).save(self, path, images))

    def _repr_html_(self) -> str:
        """Shows the answer in a notebook; without pictures where they cannot be read any more."""
        return str(import_module(_PAGE, __package__).fragment(self))


_ANSWER = TypeAdapter(Answer)
_PAGE = "..pages.answer_page"
"""It stands above this module, and imports it."""
