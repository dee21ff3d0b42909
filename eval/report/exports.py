"""Runs in the formats that others read: the official prediction files, lmms-eval's samples, and one of our own.

==========  ===========================================================================================================
``jsonl``   one row of the run a line, with question, answers, program, error and score
``gqa``     GQA's ``[{"questionId": "…", "prediction": "…"}]``
``vqa``     VQAv2's and OK-VQA's ``[{"question_id": 1, "answer": "…"}]``
``nlvr``    NLVR's CSV, ``dev-0-0-0.png,true`` a line
``nlvr2``   NLVR2's CSV, ``dev-0-0-0,True`` a line
``lmms``    rows with the columns of lmms-eval's ``samples_….jsonl``
==========  ===========================================================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ...core.errors import InputError, SetupError, UnknownNameError
from ..metrics import Metric, metric_for
from ..run.store import Store
from ..task import Example, Job, Method, Row

__all__ = ["FORMATS", "export"]


def export(store: Store, format: str, out: Path | str, *, method: Method | None = None, repeat: int = 0) -> int:
    """Writes a run to a file; the file appears complete or not at all.

    Args:
        store: the run.
        format: a name in :data:`FORMATS`.
        out: the file; its folder is there.
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
    target = Path(out)
    partial = target.with_name(f".{target.name}.partial")
    count = 0
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            for text, answers in FORMATS[format](store, wanted):
                file.write(text)
                count += answers
        partial.replace(target)
    except OSError as error:
        raise SetupError(f"Cannot write {target}: {error.strerror or error}.", hint="Give another --out.") from None
    finally:
        partial.unlink(missing_ok=True)
    return count


Lines: TypeAlias = Iterator[tuple[str, int]]
"""Pieces of a file, each with how many answers it holds."""


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
    metric = _metric(store)
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


def _lmms(store: Store, jobs: Iterable[Job]) -> Lines:
    metric = _metric(store)
    key = "vqa_score" if store.info.dataset in ("vqav2", "okvqa") else "exact_match"
    for number, (example, row) in enumerate(_pairs(store, jobs)):
        about = {"question_id": example.id, "question": example.question, "answer": list(example.gold)}
        shown = {
            "doc_id": number,
            "target": _target(example),
            "filtered_resps": row.prediction,
            "doc_hash": hashlib.sha256(_json(about).encode()).hexdigest(),
            "input": example.question,
            key: metric.score(example, row.prediction) if metric else None,
            "question_id": example.id,
            "image_ids": [image.name for image in example.images],
            "num_images": len(example.images),
            "answers": list(example.gold),
            "groups": dict(example.groups),
            "program": row.program,
            "error": row.error,
            "fallback": row.fallback,
        }
        yield _json(shown) + "\n", 1


def _target(example: Example) -> str:
    """Returns the one answer that stands for all: the most frequent, the first of equals; empty where it is hidden."""
    return max(example.gold, key=example.gold.count) if example.gold else ""


def _metric(store: Store) -> Metric | None:
    try:
        return metric_for(store.info.dataset, store.info.variant)
    except UnknownNameError:  # a data set of the user's own: its rows are written without scores
        return None


FORMATS: Mapping[str, Callable[[Store, Iterable[Job]], Lines]] = {
    "jsonl": _jsonl,
    "gqa": _list(_gqa),
    "vqa": _list(_vqa),
    "nlvr": _csv("true", "false"),
    "nlvr2": _csv("True", "False"),
    "lmms": _lmms,
}
"""What writes each format."""
