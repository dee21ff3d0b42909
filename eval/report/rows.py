"""Every question of a run with its program and calls, for the page that lists them: one block of JSON in gzip."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ...core.answer import Answer
from ...core.trace import Evidence
from ...pages.words import clean, seconds
from ..metrics.steps import JudgedStep, judge_steps
from ..task import METHODS, Example, Row
from .examples import ExampleView
from .figures import RunFigures
from .labels import METHOD_LABELS, group_label
from .reading import answer_of, first_pairs

MOST = 20_000
"""Questions of one page at most."""
ROOM = 900_000
"""Characters of them at most: where there are more, every second, third, ... question is listed."""
MOST_CALLS = 100
MAX_TEXT = 2000
"""Characters of a program or an answer shown."""
MAX_CALL = 300
"""Characters of a call, and of the captions that it read."""


def pack_rows(runs: Sequence[RunFigures], examples: Sequence[Sequence[ExampleView]]) -> str:
    """Returns all that ``report.js`` lists, packed to be text of the page.

    Args:
        runs: the runs.
        examples: those questions of each that the page shows in full.
    """
    total = sum(len(each.store) for each in runs)
    asked = (
        (place, each, *example_rows) for place, each in enumerate(runs) for example_rows in first_pairs(each.store)
    )
    full = {
        (place, part.example.id): f"example-{place}-{number}"
        for place, example_rows in enumerate(examples)
        for number, part in enumerate(example_rows)
    }
    methods = [method for method in METHODS if any(method in each.summary.methods for each in runs)]
    keys, lines, least = dict[str, None](), list[str](), max(1, -(-total // MOST))
    for place, run, example, rows in islice(asked, 0, None, least):
        keys |= dict.fromkeys(example.groups)
        steps = {method: judge_steps(run.graphs, example, row.trace) for method, row in rows.items()}
        ours = rows.get("codevqa")
        judged = [step for step in steps.get("codevqa", ()) if step.right is not None and ours and not ours.error]
        details = ["\n".join(_detail_lines(answer_of(example, row), steps[method])) for method, row in rows.items()]
        line = {
            "run": place,
            "id": example.id,
            "question": example.question,
            "gold": ", ".join(dict.fromkeys(example.gold)),
            "answers": [_answer_record(run, example, rows.get(method)) for method in methods],
            "false": list(dict.fromkeys(step.name for step in judged if not step.right)) if judged else None,
            "outside": sorted({str(kind) for row in rows.values() for kind in row.trace.get("outside", ())}),
            "groups": [example.groups.get(key) for key in keys],
            "pictures": ", ".join(image.name for image in example.images[:MOST_CALLS]),
            "full": full.get((place, example.id)),
            "trace": "\n\n".join(details),
        }
        lines.append(_json_text(line))
    head: dict[str, Any] = {
        "methods": [[method, METHOD_LABELS[method]] for method in methods],
        "runs": [each.name for each in runs],
        "keys": [group_label(key, runs[0].info.dataset) for key in keys],
        "total": total,
    }
    every = 1
    while True:
        whole = f'{{"rows":[{",".join(lines[::every])}],{_json_text({**head, "every": every * least})[1:]}'
        text = base64.b64encode(gzip.compress(whole.encode(), 6, mtime=0)).decode()
        if len(text) <= ROOM or every >= len(lines):
            return text
        every = math.ceil(every * len(text) / ROOM)


def _json_text(data: Any) -> str:
    """Returns data as JSON; characters that deceive the eye are replaced, as on the pages of answers."""
    return clean(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def _answer_record(run: RunFigures, example: Example, row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    right = run.metric.right(example, row.prediction)
    return {"said": _shorten_text(row.prediction), "right": right, "fallback": row.fallback, "error": row.error or ""}


def _detail_lines(answer: Answer, steps: Iterable[JudgedStep]) -> Iterator[str]:
    """Yields lines on one method's answer, to be read when its question is opened."""
    judged = [step for step in steps if step.right is not None]
    marks = {step.index: "  ✓ right" if step.right else f"  ✗ wrong, true: {step.truth}" for step in judged}
    yield f"{METHOD_LABELS[answer.method]}: {seconds(answer.seconds)}, {answer.tokens:,} tokens"
    if answer.error:
        yield _shorten_text(f"{answer.error.type}: {answer.error.message}")
    for program, why in answer.trace.attempts:
        yield _shorten_text(f"An earlier program failed, {why.type}: {why.message}\n{program.source}")
    if answer.program:
        yield _shorten_text(answer.program.source) + "\n"
    calls = [call for call in enumerate(answer.trace.calls, 1) if not call[1].name.startswith("open_image")]
    for place, call in calls[:MOST_CALLS]:
        yield _shorten_text(str(call), MAX_CALL) + marks.get(place, "")
        yield from _caption_lines(call.evidence)
    yield from _caption_lines(answer.trace.baseline)


def _caption_lines(evidence: Iterable[Evidence]) -> Iterator[str]:
    """Yields the captions that were read, as one line."""
    if read := [text for entry in evidence for captions in entry.captions for text in captions]:
        yield _shorten_text(f"    read: {'; '.join(read)}", MAX_CALL)


def _shorten_text(text: str, most: int = MAX_TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} more)"
