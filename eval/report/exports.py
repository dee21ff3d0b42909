"""Runs in the formats that others read: the official prediction files, and one of our own.

=========  =================================================================================
``jsonl``  one row of the run a line, with question, answers, program, error and score
``gqa``    GQA's ``[{"questionId": "…", "prediction": "…"}]``
``vqa``    VQAv2's and OK-VQA's ``[{"question_id": 1, "answer": "…"}]``
``nlvr``   NLVR's CSV, ``dev-0-0-0.png,true`` a line
``nlvr2``  NLVR2's CSV, ``dev-0-0-0,True`` a line
=========  =================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from ...core.errors import InputError, SetupError, UnknownNameError
from ...core.trace import Method
from ..metrics import Metric
from ..run.store import Store
from ..task import Example, Row
from .reading import metric_of


def export_run(store: Store, format: str, out: Path | str, *, method: Method | None = None) -> int:
    """Writes a run; the file appears complete or not at all.

    Args:
        store: the run.
        format: a name in :data:`FORMATS`.
        out: the file; its folder exists.
        method: whose answers; None takes every method and repetition for ``jsonl``. Other formats hold the first
            repetition of one method, ``codevqa`` where the run has it.

    Returns:
        How many answers were written.

    Raises:
        UnknownNameError: there is no such format.
        InputError: the run has no such rows, or its ids do not fit the format.
        SetupError: the file cannot be written.
    """
    if format not in FORMATS:
        raise UnknownNameError.of("format", format, FORMATS)
    jobs = list(store.counts())
    if not jobs:
        raise InputError(f"The run {store.folder} has no rows yet.")
    if method is not None and (method, 0) not in jobs:
        raise InputError(f"The run {store.folder} has no rows of {method}.", hint=f"There are those of {jobs[0][0]}.")
    if method is not None or format != "jsonl":
        jobs = [(method or ("codevqa" if ("codevqa", 0) in jobs else jobs[0][0]), 0)]
    line, array = FORMATS[format], format in ("gqa", "vqa")
    metric: Metric | None = None
    with suppress(UnknownNameError):  # rows of a data set of the user's own are written without scores
        metric = metric_of(store.info)
    count, target = 0, Path(out)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.write("[\n" if array else "")
            for name, repeat in jobs:
                for example, row in store.pairs(name, repeat):
                    file.write((",\n" if array else "\n") * bool(count) + line(example, row, metric))
                    count += 1
            file.write("\n]\n" if array else "\n")
        partial.replace(target)
    except OSError as error:
        raise SetupError(f"Cannot write {target}: {error.strerror or error}.", hint="Give another --out.") from None
    finally:
        with suppress(OSError):  # nothing is there where nothing could be
            partial.unlink(missing_ok=True)
    return count


def _jsonl(example: Example, row: Row, metric: Metric | None) -> str:
    values = asdict(replace(row, trace={}))
    del values["id"], values["trace"]
    shown = {
        "question_id": example.id,
        "image_ids": [image.name for image in example.images],
        "question": example.question,
        "target": list(example.gold),
        "score": metric.score(example, row.prediction) if metric else None,
        "groups": dict(example.groups),
        "cluster": example.cluster,
    }
    return json.dumps(shown | values, ensure_ascii=False)


def _vqa(example: Example, row: Row, metric: Metric | None) -> str:
    if not example.id.isdecimal():
        raise InputError(
            f"The id {example.id!r} is not a number, and VQA's ids are numbers.", hint="Choose another format."
        )
    return json.dumps({"question_id": int(example.id), "answer": row.prediction}, ensure_ascii=False)


_JUDGED = {"true": "True", "false": "False"}
"""As NLVR2 writes them."""


def _judgement(row: Row) -> str:
    """Returns true or false; what is no judgement stays as it is, and counts as wrong there."""
    text = " ".join(row.prediction.replace(",", " ").split()).lower()
    return {"yes": "true", "no": "false"}.get(text, text or "none")


FORMATS: Mapping[str, Callable[[Example, Row, Metric | None], str]] = {
    "jsonl": _jsonl,
    "gqa": lambda example, row, _: json.dumps(
        {"questionId": example.id, "prediction": row.prediction}, ensure_ascii=False
    ),
    "vqa": _vqa,
    "nlvr": lambda example, row, _: f"{example.id},{_judgement(row)}",
    "nlvr2": lambda example, row, _: f"{example.id},{_JUDGED.get(judgement := _judgement(row), judgement)}",
}
"""What writes an answer, by format."""
