"""Every question of a run with its trace, for the page that lists them: one block of JSON in gzip."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from ...core.errors import ImageError
from ...core.trace import Method
from ...pages.heat import fitted
from ...pages.pictures import data_uri
from ...pages.words import clean, seconds
from ..metrics import Metric
from ..metrics.steps import JudgedStep, judge_steps
from ..task import METHODS, Example, PictureFile, Row
from .figures import RunFigures
from .reading import first_pairs
from .tables import METHOD_LABELS

MOST = 20_000
"""Questions of one page; of longer runs it lists every second, third, ... one."""
PICTURES = 400
"""Pictures that a page shows; the others it names."""
WEIGHT = 1_500_000
"""Characters of pictures after which it shows no more."""
SIDE = 240
"""Longest side of a picture, in pixels."""
MAX_TEXT = 4000
"""Characters of a program or a value shown."""


def packed(runs: Sequence[RunFigures], here: Path | None = None) -> str:
    """Returns all that ``report.js`` lists, packed to be text of the page.

    Args:
        runs: the runs.
        here: where the pictures are now, if they were moved.
    """
    total = sum(len(one.store) for one in runs)
    step = max(1, -(-total // MOST))
    asked = ((place, one, *found) for place, one in enumerate(runs) for found in first_pairs(one.store))
    album, keys, data = _Album(here), dict[str, None](), io.BytesIO()
    methods = [method for method in METHODS if any(method in one.summary.methods for one in runs)]
    with gzip.GzipFile(fileobj=data, mode="wb", compresslevel=6, mtime=0) as file:
        file.write(b'{"rows":[')
        for number, (place, run, example, rows) in enumerate(islice(asked, 0, None, step)):
            keys |= dict.fromkeys(example.groups)
            steps = {method: judge_steps(run.graphs, example, row.trace) for method, row in rows.items()}
            told = {
                "pictures": [[one.name, album.place(one)] for one in example.images],
                "methods": [_told(row, steps[method]) for method, row in rows.items()],
            }
            line = {
                "run": place,
                **_line(run.metric, example, rows, methods, steps.get("codevqa", ())),
                "groups": [example.groups.get(key) for key in keys],
                "trace": _json(told),  # read when it is opened
            }
            file.write((b"," if number else b"") + _json(line).encode())
        head = {
            "methods": [[method, METHOD_LABELS[method]] for method in methods],
            "runs": [one.name for one in runs],
            "keys": list(keys),
            "pictures": album.pictures,
            "every": step,
            "total": total,
        }
        file.write(b"]," + _json(head).encode()[1:])
    return base64.b64encode(data.getvalue()).decode()


def _json(data: Any) -> str:
    """Returns data as JSON; characters that deceive the eye are replaced, as on the pages of answers."""
    return clean(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def _line(
    metric: Metric, example: Example, rows: Mapping[Method, Row], methods: Iterable[Method], steps: Iterable[JudgedStep]
) -> dict[str, Any]:
    """Returns what is searched and filtered of a question."""
    ours = rows.get("codevqa")
    judged = [step for step in steps if step.right is not None and ours and not ours.error]
    return {
        "id": example.id,
        "question": example.question,
        "gold": ", ".join(dict.fromkeys(example.gold)),
        "answers": [_answer(metric, example, rows.get(method)) for method in methods],
        "program": _cut(ours.program or "" if ours else ""),
        "false": list(dict.fromkeys(step.name for step in judged if not step.right)) if judged else None,
    }


def _answer(metric: Metric, example: Example, row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    right = metric.right(example, row.prediction)
    return {"said": _cut(row.prediction), "right": right, "fallback": row.fallback, "error": row.error or ""}


# -- a trace -----------------------------------------------------------------------------------------------------------


def _told(row: Row, steps: Iterable[JudgedStep]) -> dict[str, Any]:
    verdicts = {step.index: step for step in steps if step.right is not None}
    calls = []
    for index, call in enumerate(row.trace.get("calls") or (), 1):
        if str(call.get("name")).startswith("open_image"):
            continue
        shown: dict[str, Any] = {"text": _call_text(call), "evidence": [*map(_evidence, _items(call.get("evidence")))]}
        if verdict := verdicts.get(index):
            shown |= {"right": verdict.right, "truth": verdict.truth}
        calls.append(shown)
    return {
        "method": METHOD_LABELS[row.method],
        "facts": f"{seconds(row.cost.seconds) if row.cost else seconds(row.seconds)}, {row.tokens:,} tokens",
        "error": f"{row.error}: {row.message}" if row.error else "",
        "program": row.program or "",
        "calls": calls,
        "attempts": [[*map(_cut, _attempt(one))] for one in _items(row.trace.get("attempts"))],
        "printed": _cut(str(row.trace.get("printed") or "")),
        "evidence": [*map(_evidence, _items(row.trace.get("baseline")))],
    }


def _call_text(call: Mapping[str, Any]) -> str:
    """Returns ``query(image 1, 'Is there a star?') → 'yes'`` for a call of a trace."""
    arguments = call.get("arguments")
    shown = ", ".join(map(_show, arguments.values())) if isinstance(arguments, Mapping) else ""
    error = call.get("error")
    if error:
        value = f"failed: {error.get('message') if isinstance(error, Mapping) else error}"
    else:
        value = _show(call.get("value"))
    return _cut(f"{call.get('name')}({shown}) → {value}")


def _show(value: Any) -> str:
    if isinstance(value, Mapping) and value.keys() == {"image"}:
        return f"image {value['image']}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_show, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text) - MAX_TEXT:,} more)"


def _items(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the objects of a list that came from a trace."""
    return (one for one in _list(value) if isinstance(one, Mapping))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _attempt(attempt: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the source of a program that failed, and why it did."""
    program, error = ([*_items([attempt.get(name)]), {}][0] for name in ("program", "error"))
    return str(program.get("source", "")), f"{error.get('type')}: {error.get('message')}"


def _evidence(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Returns evidence without its maps and prompts: the first are pictures of their own, the others long."""
    scores = [f"{one:.4g}" if isinstance(one, float) else str(one) for one in _list(evidence.get("scores"))]
    if choices := _list(evidence.get("choices")):
        scores = [f"{choice} {score}" for choice, score in zip(choices, scores, strict=False)]
    shown = {
        "kind": _cut(str(evidence.get("kind") or "")),
        "text": _cut(str(evidence.get("text") or "")),
        "captions": [[_cut(str(one)) for one in _list(captions)] for captions in _list(evidence.get("captions"))],
        "images": [str(one) for one in _list(evidence.get("images"))],
        "scores": _cut(", ".join(scores)),
        "completion": _cut(str(evidence.get("completion") or "")),
    }
    return {name: value for name, value in shown.items() if value}


# -- pictures ----------------------------------------------------------------------------------------------------------


class _Album:
    """The first pictures asked about, small."""

    def __init__(self, here: Path | None) -> None:
        self.here, self.pictures = here, list[str]()
        self.places: dict[PictureFile, int | None] = {}

    def place(self, image: PictureFile) -> int | None:
        """Returns where a picture is in ``pictures``; None where it is not."""
        room = len(self.places) < PICTURES and sum(map(len, self.pictures)) < WEIGHT
        if image not in self.places and room:
            self.places[image] = None
            with suppress(ImageError):
                picture = self._found(image).load()
                self.places[image] = len(self.pictures)
                self.pictures.append(data_uri(fitted(picture, SIDE), quality=80))
        return self.places.get(image)

    def _found(self, image: PictureFile) -> PictureFile:
        """The picture where it is now, if its data set was moved since the run was made."""
        if self.here is None or image.path.is_file():
            return image
        parts = image.path.parts  # the longest end of its path that is there
        ends = (self.here.joinpath(*parts[at:]) for at in range(1, len(parts)))
        return replace(image, path=next((one for one in ends if one.is_file()), image.path))
