"""Runs in the formats that others read: the official prediction files, logs of other harnesses, and one of our own.

=============  ========================================================================================================
``jsonl``      one row of the run a line, with question, answers, program, error and score
``gqa``        GQA's ``[{"questionId": "…", "prediction": "…"}]``
``vqa``        VQAv2's and OK-VQA's ``[{"question_id": 1, "answer": "…"}]``
``nlvr``       NLVR's CSV, ``dev-0-0-0.png,true`` a line
``nlvr2``      NLVR2's CSV, ``dev-0-0-0,True`` a line
``inspect``    a log of inspect_ai, ``NAME.eval``: see :mod:`.export_inspect`
``lmms-eval``  a folder as lmms-eval's ``--output_path``: see :mod:`.export_lmms`
=============  ========================================================================================================
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from ...core.errors import InputError, SetupError, UnknownNameError
from ..run.store import Store
from ..task import Example, Job, Method, Row
from . import export_inspect, export_lmms
from .export_scores import metric_of

__all__ = ["FORMATS", "export"]


def export(store: Store, format: str, out: Path | str, *, method: Method | None = None, repeat: int = 0) -> int:
    """Writes a run; each file appears complete or not at all.

    Args:
        store: the run.
        format: a name in :data:`FORMATS`.
        out: the file, or for ``lmms-eval`` the folder; what it lies in is there.
        method: whose answers; None takes every method for ``jsonl``, else ``codevqa`` where the run has it.
        repeat: which repetition, from 0; ``jsonl`` has all of them where ``method`` is None.

    Returns:
        How many answers were written.

    Raises:
        UnknownNameError: there is no such format.
        InputError: the run has no such rows, or its ids do not fit the format.
        SetupError: the file cannot be written.
    """
    if format not in FORMATS:
        raise UnknownNameError(f"No format {format!r}.", hint=f"There are: {', '.join(FORMATS)}.")
    counts = store.counts()
    if not counts:
        raise InputError(f"The run {store.folder} has no rows yet.")
    if method is None and format == "jsonl":
        wanted = list(counts)
    else:
        wanted = [(method or ("codevqa" if ("codevqa", repeat) in counts else next(iter(counts))[0]), repeat)]
    if missing := [job for job in wanted if job not in counts]:
        there = ", ".join(f"{name} {number}" for name, number in counts)
        raise InputError(
            f"The run {store.folder} has no rows of {missing[0][0]}, repetition {missing[0][1]}.",
            hint=f"There are: {there}.",
        )
    return _written(Path(out), lambda partial: FORMATS[format](store, wanted, partial))


def _written(target: Path, write: Callable[[Path], int]) -> int:
    """Has a file or a folder written beside its place, and puts it there; what a folder has already stays.

    Raises:
        SetupError: it cannot be written.
    """
    partial = target.with_name(f".{target.name}.partial")
    try:
        count = write(partial)
        if not partial.is_dir():
            partial.replace(target)
        for path in partial.rglob("*.*"):
            place = target / path.relative_to(partial)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
    except OSError as error:
        raise SetupError(f"Cannot write {target}: {error.strerror or error}.", hint="Give another --out.") from None
    finally:
        with suppress(OSError):  # nothing is there where nothing could be
            (shutil.rmtree if partial.is_dir() else os.remove)(partial)
    return count


Lines: TypeAlias = Iterator[tuple[str, int]]
"""Pieces of a file, each with how many answers it holds."""
Writer: TypeAlias = Callable[[Store, Sequence[Job], Path], int]
"""Writes some rows of a run to a path where nothing is yet; returns how many answers."""


def _pairs(store: Store, jobs: Iterable[Job]) -> Iterator[tuple[Example, Row]]:
    for method, repeat in jobs:
        yield from store.pairs(method, repeat)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _list(make: Callable[[Example, Row], Mapping[str, Any]]) -> Callable[[Store, Iterable[Job]], Lines]:
    """Returns what writes a JSON list, one item a line."""

    def lines(store: Store, jobs: Iterable[Job]) -> Lines:
        before = "[\n"
        for example, row in _pairs(store, jobs):
            yield before + _json(make(example, row)), 1
            before = ",\n"
        yield "\n]\n", 0

    return lines


def _gqa(example: Example, row: Row) -> Mapping[str, Any]:
    return {"questionId": example.id, "prediction": row.prediction}


def _vqa(example: Example, row: Row) -> Mapping[str, Any]:
    if not example.id.isdecimal():
        raise InputError(f"The id {example.id!r} is no number, as VQA's are.", hint="Choose another format.")
    return {"question_id": int(example.id), "answer": row.prediction}


def _csv(true: str, false: str) -> Callable[[Store, Iterable[Job]], Lines]:
    """Returns what writes ``id,judgement`` lines. What is no judgement stays as it is, and counts as wrong there."""
    words = {"yes": true, "true": true, "no": false, "false": false}

    def lines(store: Store, jobs: Iterable[Job]) -> Lines:
        for example, row in _pairs(store, jobs):
            said = " ".join(row.prediction.replace(",", " ").split()).lower()
            yield f"{example.id},{words.get(said, said or 'none')}\n", 1

    return lines


def _jsonl(store: Store, jobs: Iterable[Job]) -> Lines:
    metric = metric_of(store)
    for example, row in _pairs(store, jobs):
        shown = {
            "question_id": example.id,
            "image_ids": [image.name for image in example.images],
            "question": example.question,
            "target": list(example.gold),
            "method": row.method,
            "repeat": row.repeat,
            "prediction": row.prediction,
            "score": metric.score(example, row.prediction) if metric else None,
            "fallback": row.fallback,
            "error": row.error,
            "message": row.message,
            "program": row.program,
            "groups": dict(example.groups),
            "cluster": example.cluster,
            "seconds": row.seconds,
            "tokens": row.tokens,
        }
        yield _json(shown) + "\n", 1


def _text(lines: Callable[[Store, Iterable[Job]], Lines]) -> Writer:
    """Returns what writes pieces of text to a file."""

    def write(store: Store, jobs: Sequence[Job], path: Path) -> int:
        count = 0
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for text, answers in lines(store, jobs):
                file.write(text)
                count += answers
        return count

    return write


FORMATS: Mapping[str, Writer] = {
    "jsonl": _text(_jsonl),
    "gqa": _text(_list(_gqa)),
    "vqa": _text(_list(_vqa)),
    "nlvr": _text(_csv("true", "false")),
    "nlvr2": _text(_csv("True", "False")),
    "inspect": export_inspect.write,
    "lmms-eval": export_lmms.write,
}
"""What writes each format."""
