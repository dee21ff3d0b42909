"""Answers as JSON: a short form to show, and a full form that gives the same answer back.

The full form has every key of the short one with the same meaning, so that a reader of one reads the other. Where plain
JSON cannot say what a value was (a tuple, a dict with keys that are not text, a number that is not finite), a key that
ends in ``_exact`` beside it can. The pictures are not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from .errors import ErrorRecord, InputError
from .trace import (
    Call,
    Cost,
    DomainWarning,
    Draft,
    Evidence,
    ImageRef,
    Method,
    Number,
    Plain,
    Program,
    json_number,
    number,
)

MAX_DEPTH = 100
"""Values nested deeper are no value of a program's: nothing is read that could not be written again."""
_SHORT = ("question", "answer", "program", "calls", "fallback", "error", "warnings", "seconds", "models")
_SHORT_CALL = ("name", "arguments", "value", "seconds", "line", "error")


@dataclass(frozen=True)
class Attempt:
    """A program that failed."""

    program: Program
    error: ErrorRecord


@dataclass(frozen=True)
class FullAnswer:
    """The full form, key by key; the fields mean what those of :class:`codevqa.Answer` and its trace do."""

    question: str
    answer: str
    program: str | None
    """Its source alone."""
    calls: tuple[Call, ...]
    fallback: bool
    error: ErrorRecord | None
    warnings: tuple[DomainWarning, ...]
    seconds: Number
    models: Mapping[str, str]
    tokens: int
    cost: Cost | None
    method: Method
    value: Plain
    written: Program | None
    printed: str
    attempts: tuple[Attempt, ...]
    baseline: tuple[Evidence, ...]
    drafts: tuple[Draft, ...] = ()
    """Left out where one program was written."""


_FULL = TypeAdapter(FullAnswer)


def dump(answer: FullAnswer, *, evidence: bool) -> dict[str, Any]:
    """Returns JSON-ready data: the full form, or without evidence the short one, whose seconds are rounded."""
    calls = [
        replace(call, arguments={}, value=None, evidence=call.evidence if evidence else ()) for call in answer.calls
    ]
    shown: dict[str, Any] = _FULL.dump_python(replace(answer, value=None, calls=tuple(calls)), mode="json")
    for told, call in zip(shown["calls"], answer.calls, strict=True):
        told |= _value("arguments", dict(call.arguments)) | _value("value", call.value)
    if not evidence:
        for one in (shown, *shown["calls"]):
            one["seconds"] = round(one["seconds"], 4)
        short = [{key: call[key] for key in _SHORT_CALL} for call in shown["calls"]]
        return {**{key: shown[key] for key in _SHORT}, "calls": short}
    for program in (shown["written"], *(one["program"] for one in shown["attempts"])):
        if program and not program["mended"]:
            del program["mended"]
    if not shown["drafts"]:
        del shown["drafts"]
    return shown | _value("value", answer.value)


def read(data: Any) -> FullAnswer:
    """Returns the answer that :func:`dump` made the full form of.

    Raises:
        InputError: it is the short form, or no answer at all.
    """
    if not isinstance(data, Mapping) or "answer" not in data:
        raise InputError("This JSON is no answer.", hint="Give what Answer.to_json() returned.")
    if "written" not in data:
        raise InputError(
            "This answer was written without its evidence and cannot be restored.",
            hint="Write it with to_json(evidence=True), or --json --evidence.",
        )
    try:
        calls = [{**one, **_read("arguments", one), **_read("value", one)} for one in data["calls"]]
        return _FULL.validate_python({**data, **_read("value", data), "calls": calls})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise InputError(f"This answer is damaged: {reason[:200]}.", hint="Give what Answer.to_json() returned.")


# -- plain values ----------------------------------------------------------------------------------------------------


def _value(name: str, value: Plain) -> dict[str, Any]:
    """Returns the readable form under ``name``, and the exact one beside it where the readable one says less."""
    shown, exact = _plain(value), _tagged(value)
    return {name: shown} if _tagged(_read_plain(shown)) == exact else {name: shown, f"{name}_exact": exact}


def _read(name: str, data: Mapping[str, Any]) -> dict[str, Plain]:
    exact = data.get(f"{name}_exact")
    return {name: _read_plain(data[name]) if exact is None else _read_tagged(exact)}


def _plain(value: Plain) -> Any:
    if isinstance(value, ImageRef):
        return {"image": value.index}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return json_number(value) if isinstance(value, float) else value


def _read_plain(value: Any, depth: int = 0) -> Plain:
    if depth > MAX_DEPTH:
        raise ValueError("a value is nested too deeply")
    if isinstance(value, list):
        return [_read_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"image"} and type(value["image"]) is int:
            return ImageRef(value["image"])
        return {key: _read_plain(item, depth + 1) for key, item in value.items()}
    return number(value) if isinstance(value, float) else value


def _tagged(value: Plain) -> list[Any]:
    """Returns a value as ``[type, content]`` all the way down; equal only for values equal in type too."""
    if isinstance(value, ImageRef):
        return ["image", value.index]
    if isinstance(value, list | tuple):
        return ["tuple" if isinstance(value, tuple) else "list", [_tagged(item) for item in value]]
    if isinstance(value, dict):
        return ["dict", [[_tagged(key), _tagged(item)] for key, item in value.items()]]
    return [type(value).__name__, str(value) if isinstance(value, float) else value]


def _read_tagged(tagged: Sequence[Any], depth: int = 0) -> Plain:
    kind, content = tagged
    if depth > MAX_DEPTH:
        raise ValueError("a value is nested too deeply")
    if kind in ("list", "tuple"):
        items = [_read_tagged(item, depth + 1) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict":
        return {_read_tagged(key, depth + 1): _read_tagged(item, depth + 1) for key, item in content}
    if kind == "float":
        return number(content)
    if type(content).__name__ != ("int" if kind == "image" else kind):
        raise ValueError(f"{content!r:.40} cannot be of the type {kind!r:.40}")
    return ImageRef(content) if kind == "image" else content
