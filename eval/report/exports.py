"""Runs in the formats that others read: the official prediction files, a log of inspect_ai, and one of our own.

===========  ========================================================================================================
``jsonl``    one row of the run a line, with question, answers, program, error and score
``gqa``      GQA's ``[{"questionId": "…", "prediction": "…"}]``
``vqa``      VQAv2's and OK-VQA's ``[{"question_id": 1, "answer": "…"}]``
``nlvr``     NLVR's CSV, ``dev-0-0-0.png,true`` a line
``nlvr2``    NLVR2's CSV, ``dev-0-0-0,True`` a line
``inspect``  a log of inspect_ai, ``NAME.eval``: see :mod:`.inspect_log`
===========  ========================================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from ...core.errors import InputError, SetupError, UnknownNameError
from ..metrics import Metric
from ..run.store import Store
from ..task import Example, Job, Method, Row
from . import inspect_log
from .inspect_log import known_metric

__all__ = ["FORMATS", "export"]


def export(store: Store, format: str, out: Path | str, *, method: Method | None = None, repeat: int = 0) -> int:
    """Writes a run; the file appears complete or not at all.

    Args:
        store: the run.
        format: a name in :data:`FORMATS`.
        out: the file; its folder exists.
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
    try:
        count = FORMATS[format](store, wanted, partial)
        partial.replace(target)
    except OSError as error:
        raise SetupError(f"Cannot write {target}: {error.strerror or error}.", hint="Give another --out.") from None
    finally:
        with suppress(OSError):  # nothing is there where nothing could be
            partial.unlink(missing_ok=True)
    return count


Writer: TypeAlias = Callable[[Store, Sequence[Job], Path], int]
"""Writes some rows of a run to a path where nothing is yet; returns how many answers."""
Line: TypeAlias = Callable[[Example, Row, Metric | None], str]


def _lines(line: Line, before: str = "", between: str = "\n", after: str = "\n") -> Writer:
    """Returns what writes an answer a line."""

    def write(store: Store, jobs: Sequence[Job], path: Path) -> int:
        metric, count = known_metric(store.info), 0
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for method, repeat in jobs:
                for example, row in store.pairs(method, repeat):
                    file.write((between if count else before) + line(example, row, metric))
                    count += 1
            file.write(after)
        return count

    return write


def _jsonl(example: Example, row: Row, metric: Metric | None) -> str:
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
    return json.dumps(shown, ensure_ascii=False)


def _gqa(example: Example, row: Row, metric: Metric | None) -> str:
    return json.dumps({"questionId": example.id, "prediction": row.prediction}, ensure_ascii=False)


def _vqa(example: Example, row: Row, metric: Metric | None) -> str:
    if not example.id.isdecimal():
        raise InputError(f"The id {example.id!r} is no number, as VQA's are.", hint="Choose another format.")
    return json.dumps({"question_id": int(example.id), "answer": row.prediction}, ensure_ascii=False)


def _csv(true: str, false: str) -> Line:
    """Returns what writes ``id,judgement``. What is no judgement stays as it is, and counts as wrong there."""
    words = {"yes": true, "true": true, "no": false, "false": false}

    def line(example: Example, row: Row, metric: Metric | None) -> str:
        said = " ".join(row.prediction.replace(",", " ").split()).lower()
        return f"{example.id},{words.get(said, said or 'none')}"

    return line


_LIST = ("[\n", ",\n", "\n]\n")

FORMATS: Mapping[str, Writer] = {
    "jsonl": _lines(_jsonl),
    "gqa": _lines(_gqa, *_LIST),
    "vqa": _lines(_vqa, *_LIST),
    "nlvr": _lines(_csv("true", "false")),
    "nlvr2": _lines(_csv("True", "False")),
    "inspect": inspect_log.write,
}
"""What writes each format."""
