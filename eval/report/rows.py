"""Every question of a run, for the page that lists them: what is searched at once, and what one opens.

A page holds chunks, each JSON in gzip: the list in parts of some thousand questions, traces by the hundred, which are
unpacked when one of them is opened, and pictures where there are few.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...pages.words import clean, seconds
from ..metrics import Metric
from ..metrics.steps import StepJudge
from ..run.store import Store
from ..task import METHODS, EvalImage, Example, Method, Row
from .cases import cut, judged_calls, small_jpeg
from .parts import METHOD_LABELS
from .summary import joined

__all__ = ["Listing", "Question", "as_json", "detail", "head", "line", "part", "questions_of", "write_chunks"]

PART = 2_000
"""Questions of one part of the list: the first is on the screen before the next is read."""
TRACES = 100
"""Questions whose traces are one chunk; some of these make a part."""
PICTURES = 400
"""Where a report is about more pictures than these, it names them and shows none but those of its cases."""

Question = tuple[Example, Mapping[Method, Row]]


@dataclass(frozen=True)
class Listing:
    """A run whose questions are listed."""

    name: str
    store: Store
    metric: Metric
    judge: StepJudge | None = None


def questions_of(store: Store) -> Iterator[Question]:
    """Yields each example with its row of each method, of the first repetition."""
    return joined(store.examples(), {method: store.rows(method) for method, repeat in store.counts() if repeat == 0})


def head(listings: Sequence[Listing]) -> dict[str, Any]:
    """Returns what the list needs to know of all questions."""
    return {"methods": [METHOD_LABELS[method][0] for method in METHODS], "runs": [one.name for one in listings]}


def line(run: int, listing: Listing, question: Question) -> tuple[list[Any], Mapping[str, str]]:
    """Returns a question as the list has it, and its groups; ``rows.js`` reads the fields in this order."""
    example, rows = question
    ours = rows.get("codevqa")
    false: list[str] | None = None
    if listing.judge is not None and ours is not None and not ours.error:
        judged = [step for step in listing.judge.steps(example, ours.trace) if step.right is not None]
        false = list(dict.fromkeys(step.name for step in judged if not step.right)) if judged else None
    answers = [_answer(listing.metric, example, rows.get(method)) for method in METHODS]
    program = ours.program or "" if ours else ""
    fields = [run, example.id, example.question, _gold(example), answers, cut(program), false]
    return fields, example.groups


def _gold(example: Example) -> str:
    return ", ".join(dict.fromkeys(example.gold))


def _answer(metric: Metric, example: Example, row: Row | None) -> list[Any] | None:
    if row is None:
        return None
    return [cut(row.prediction), metric.score(example, row.prediction), int(row.fallback), row.error or ""]


def part(lines: Iterable[tuple[list[Any], Mapping[str, str]]]) -> dict[str, Any]:
    """Returns a part of the list; groups are numbers in it, since thousands of questions share them."""
    keys: dict[str, dict[str, int]] = {}
    rows = []
    for fields, groups in lines:
        for key in groups:
            keys.setdefault(key, {})
        codes = [values.setdefault(groups[key], len(values)) if key in groups else -1 for key, values in keys.items()]
        rows.append([*fields, codes])
    return {"keys": [[key, list(values)] for key, values in keys.items()], "rows": rows}


def detail(
    listing: Listing, question: Question, picture: Callable[[int, EvalImage], str] = lambda number, image: ""
) -> dict[str, Any]:
    """Returns what the page shows of a question that is opened.

    Args:
        listing: its run.
        question: the question.
        picture: says where the page finds a picture of the question, counted from 0; empty where it does not.
    """
    example, rows = question
    return {
        "pictures": [[one.name, picture(number, one)] for number, one in enumerate(example.images)],
        "methods": [_told(listing, example, row) for row in rows.values()],
    }


def _told(listing: Listing, example: Example, row: Row) -> dict[str, Any]:
    calls = []
    for call, text, verdict in judged_calls(listing.judge, example, row):
        shown: dict[str, Any] = {"text": text, "evidence": [*map(_evidence, _items(call.get("evidence")))]}
        if verdict is not None and verdict.right is not None:
            shown |= {"right": verdict.right, "truth": verdict.truth}
        calls.append(shown)
    return {
        "method": METHOD_LABELS[row.method][0],
        "facts": f"{seconds(row.seconds)}, {row.tokens:,} tokens",
        "error": f"{row.error}: {row.message}" if row.error else "",
        "program": row.program or "",
        "calls": calls,
        "attempts": [[*map(cut, _attempt(one))] for one in _items(row.trace.get("attempts"))],
        "printed": cut(str(row.trace.get("printed") or "")),
        "evidence": [*map(_evidence, _items(row.trace.get("baseline")))],
    }


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
    scores = (f"{one:.4g}" if isinstance(one, float) else str(one) for one in _list(evidence.get("scores")))
    shown = {
        "kind": cut(str(evidence.get("kind") or "")),
        "text": cut(str(evidence.get("text") or "")),
        "captions": [[cut(str(one)) for one in _list(captions)] for captions in _list(evidence.get("captions"))],
        "images": [str(one) for one in _list(evidence.get("images"))],
        "scores": cut(", ".join(scores)),
        "completion": cut(str(evidence.get("completion") or "")),
    }
    return {name: value for name, value in shown.items() if value}


# -- chunks ------------------------------------------------------------------------------------------------------------


def write_chunks(listings: Sequence[Listing], put: Callable[[str, bytes], None], here: Path | None = None) -> None:
    """Hands over every chunk of a page by name.

    Args:
        listings: the runs.
        put: takes a chunk.
        here: where the pictures are now, if they were moved.
    """
    places = {image: f"picture-{number}" for number, image in enumerate(_pictures(listings))}
    for image, name in list(places.items()):
        if (small := small_jpeg(image, here)) is None:
            del places[image]
        else:
            put(name, small)

    def where(number: int, image: EvalImage) -> str:
        return places.get(image, "")

    asked = ((run, one, question) for run, one in enumerate(listings) for question in questions_of(one.store))
    parts = 0
    while some := list(islice(asked, PART)):
        put(f"part-{parts}", packed(part(line(*one) for one in some)))
        for at in range(0, len(some), TRACES):
            told = (detail(one, question, where) for _, one, question in some[at : at + TRACES])
            put(f"trace-{(parts * PART + at) // TRACES}", packed(list(told)))
        parts += 1
    put("head", packed({**head(listings), "parts": parts, "traces": TRACES}))


def as_json(data: Any) -> bytes:
    """Returns data as JSON; what deceives the eye is replaced, as on the pages of answers."""
    return clean(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))).encode()


def packed(data: Any) -> bytes:
    """Returns data as JSON in gzip."""
    return gzip.compress(as_json(data), 6, mtime=0)


def _pictures(listings: Sequence[Listing]) -> list[EvalImage]:
    """Returns the pictures of all questions, each once; none where they are too many."""
    found: dict[EvalImage, None] = {}
    for listing in listings:
        for example in listing.store.examples():
            found |= dict.fromkeys(example.images)
            if len(found) > PICTURES:
                return []
    return list(found)
