"""Answers as JSON: a short form to show, and a full form that gives the same answer back.

The full form has every key of the short one with the same meaning, so that a reader of one reads the other. Where plain
JSON cannot say what a value was (a tuple, a dict with keys that are not text, a number that is not finite), a key that
ends in ``_exact`` beside it can. The pictures are not part of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import ErrorRecord, InputError
from .kind_check import check_kind
from .trace import Call, Cost, DomainWarning, Evidence, ImageRef, Plain, Program, Trace

if TYPE_CHECKING:
    from .answer import Answer

__all__ = ["decode", "digest", "encode"]

MAX_DEPTH = 100
"""Values nested deeper are no value of a program's: nothing is read that could not be written again."""


def encode(answer: Answer, *, evidence: bool = True) -> dict[str, Any]:
    """Returns an answer as JSON-ready data.

    Args:
        answer: the answer.
        evidence: True gives the full form, which :func:`decode` takes back; False leaves out captions, maps, prompts,
            failed attempts and what was printed, and rounds seconds.
    """
    program = answer.program
    shown: dict[str, Any] = {
        "question": answer.question,
        "answer": answer.text,
        "program": program.source if program else None,
        "calls": [_call(call, evidence) for call in answer.trace.calls],
        "fallback": answer.fallback,
        "error": _error(answer.error),
        "warnings": [_warning(one) for one in answer.warnings],
        "seconds": _float(answer.seconds) if evidence else round(answer.seconds, 4),
        "models": dict(answer.models),
    }
    if evidence:
        shown["tokens"] = answer.tokens
        shown["cost"] = None if answer.cost is None else dataclasses.asdict(answer.cost)
        shown["method"] = answer.method
        shown |= _value("value", answer.value)
        shown["written"] = _program(program) if program else None
        shown["printed"] = answer.trace.printed
        shown["attempts"] = [{"program": _program(one), "error": _error(why)} for one, why in answer.trace.attempts]
        shown["baseline"] = [_evidence(one) for one in answer.trace.baseline]
    return shown


def decode(data: Mapping[str, Any], answer: type[Answer]) -> Answer:
    """Returns the answer that :func:`encode` made the full form of.

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
        written = data["written"]
        trace = Trace(
            tuple(_read_call(call) for call in data["calls"]),
            data["printed"],
            tuple((_read_program(one["program"]), _some_error(one["error"])) for one in data["attempts"]),
            tuple(_read_evidence(one) for one in data["baseline"]),
        )
        read = answer(
            question=data["question"],
            text=data["answer"],
            program=None if written is None else _read_program(written),
            trace=trace,
            value=_read_value("value", data),
            method=data["method"],
            fallback=data["fallback"],
            error=_read_error(data["error"]),
            seconds=_read_float(data["seconds"]),
            models=dict(data["models"]),
            tokens=data["tokens"],
            cost=None if data["cost"] is None else Cost(**data["cost"]),
            warnings=tuple(map(_read_warning, data["warnings"])),
        )
        check_kind(read, answer, "answer")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"This answer is damaged: {type(error).__name__}: {str(error)[:200]}.",
            hint="Give what Answer.to_json() returned.",
        ) from None
    return read


def digest(answer: Answer) -> str:
    """Returns the SHA-256 of all that makes answers equal but their times: the same for an answer derived again."""
    calls = tuple(dataclasses.replace(call, seconds=0.0) for call in answer.trace.calls)
    timeless = dataclasses.replace(answer, seconds=0.0, trace=dataclasses.replace(answer.trace, calls=calls))
    shown = encode(timeless)
    del shown["cost"]
    for call in shown["calls"]:
        del call["remembered"], call["ahead"]
    text = json.dumps(shown, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# -- parts -----------------------------------------------------------------------------------------------------------


def _call(call: Call, evidence: bool) -> dict[str, Any]:
    if not evidence:
        return {
            "name": call.name,
            "arguments": {name: _plain(value) for name, value in call.arguments.items()},
            "value": _plain(call.value),
            "seconds": round(call.seconds, 4),
            "line": call.line,
            "error": _error(call.error),
        }
    return {
        "index": call.index,
        "name": call.name,
        **_value("arguments", dict(call.arguments)),
        **_value("value", call.value),
        "seconds": _float(call.seconds),
        "line": call.line,
        "error": _error(call.error),
        "remembered": call.remembered,
        "ahead": call.ahead,
        "evidence": [_evidence(one) for one in call.evidence],
    }


def _read_call(data: Mapping[str, Any]) -> Call:
    return Call(
        index=data["index"],
        name=data["name"],
        arguments=_read_value("arguments", data),
        value=_read_value("value", data),
        seconds=_read_float(data["seconds"]),
        line=data["line"],
        evidence=tuple(_read_evidence(one) for one in data["evidence"]),
        error=_read_error(data["error"]),
        remembered=data["remembered"],
        ahead=data["ahead"],
    )


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "kind": evidence.kind,
        "text": evidence.text,
        "captions": [list(one) for one in evidence.captions],
        "patches": [[list(subset) for subset in one] for one in evidence.patches],
        "scores": [_float(score) for score in evidence.scores],
        "position": None if evidence.position is None else [_float(one) for one in evidence.position],
        "prompt": evidence.prompt,
        "completion": evidence.completion,
        "images": [image.index for image in evidence.images],
        "relevance": [[[_float(cell) for cell in row] for row in rows] for rows in evidence.relevance],
    }


def _read_evidence(data: Mapping[str, Any]) -> Evidence:
    position = data["position"]
    return Evidence(
        kind=data["kind"],
        images=tuple(ImageRef(index) for index in data["images"]),
        text=data["text"],
        captions=tuple(tuple(one) for one in data["captions"]),
        relevance=tuple(tuple(_floats(row) for row in rows) for rows in data["relevance"]),
        patches=tuple(tuple(tuple(subset) for subset in one) for one in data["patches"]),
        scores=_floats(data["scores"]),
        position=None if position is None else (_read_float(position[0]), _read_float(position[1])),
        prompt=data["prompt"],
        completion=data["completion"],
    )


def _program(program: Program) -> dict[str, Any]:
    shown = {**dataclasses.asdict(program), "examples": list(program.examples)}
    return shown if program.mended else {name: value for name, value in shown.items() if name != "mended"}


def _read_program(data: Mapping[str, Any]) -> Program:
    return Program(**{**data, "examples": tuple(data["examples"])})


def _warning(warning: DomainWarning) -> dict[str, Any]:
    return {
        "kind": warning.kind,
        "message": warning.message,
        "images": [image.index for image in warning.images],
        "words": list(warning.words),
    }


def _read_warning(data: Mapping[str, Any]) -> DomainWarning:
    images = tuple(ImageRef(index) for index in data["images"])
    return DomainWarning(data["kind"], data["message"], images, tuple(data["words"]))


def _error(error: ErrorRecord | None) -> dict[str, Any] | None:
    return dataclasses.asdict(error) if error else None


def _some_error(data: Mapping[str, Any]) -> ErrorRecord:
    return ErrorRecord(**data)


def _read_error(data: Mapping[str, Any] | None) -> ErrorRecord | None:
    return None if data is None else _some_error(data)


# -- numbers ---------------------------------------------------------------------------------------------------------


def _float(number: float) -> float | str:
    """JSON has no infinities: ``nan``, ``inf`` and ``-inf`` go as text, which float() reads."""
    return float(number) if math.isfinite(number) else str(number)


def _read_float(number: float | str) -> float:
    value = float(number)
    return math.nan if math.isnan(value) else value  # the one NaN that compares as itself inside a tuple


def _floats(numbers: Sequence[float | str]) -> tuple[float, ...]:
    return tuple(_read_float(number) for number in numbers)


# -- plain values ----------------------------------------------------------------------------------------------------


def _value(name: str, value: Plain) -> dict[str, Any]:
    """Returns the readable form under ``name``, and the exact one beside it where the readable one says less."""
    shown, exact = _plain(value), _tagged(value)
    return {name: shown} if _tagged(_read_plain(shown)) == exact else {name: shown, f"{name}_exact": exact}


def _read_value(name: str, data: Mapping[str, Any]) -> Plain:
    exact = data.get(f"{name}_exact")
    return _read_plain(data[name]) if exact is None else _read_tagged(exact)


def _plain(value: Plain) -> Any:
    if isinstance(value, ImageRef):
        return {"image": value.index}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return _float(value) if isinstance(value, float) else value


def _read_plain(value: Any, depth: int = 0) -> Plain:
    if depth > MAX_DEPTH:
        raise ValueError("a value is nested too deeply")
    if isinstance(value, list):
        return [_read_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"image"} and type(value["image"]) is int:
            return ImageRef(value["image"])
        return {key: _read_plain(item, depth + 1) for key, item in value.items()}
    return _read_float(value) if isinstance(value, float) else value


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
        return _read_float(content)
    if type(content).__name__ != ("int" if kind == "image" else kind):
        raise ValueError(f"{content!r:.40} is no {kind!r:.40}")
    return ImageRef(content) if kind == "image" else content
