"""Every question of a run with its program and calls, for the page that lists them: one block of JSON in gzip."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from ...core.answer import Answer
from ...core.trace import Call, Evidence, Method
from ...pages.words import clean, seconds
from ..metrics import Metric
from ..metrics.steps import JudgedStep, judge_steps
from ..task import METHODS, Example, Row
from .examples import Shown
from .figures import RunFigures
from .reading import answer_of, first_pairs
from .tables import METHOD_LABELS

MOST = 20_000
"""Questions of one page at most."""
ROOM = 900_000
"""Characters of them at most: where there are more, every second, third, ... question is listed."""
MOST_CALLS = 100
MAX_TEXT = 2000
"""Characters of a program or an answer shown."""
MAX_CALL = 300
"""Characters of a call, and of the captions that it read."""


def packed(runs: Sequence[RunFigures], examples: Sequence[Sequence[Shown]]) -> str:
    """Returns all that ``report.js`` lists, packed to be text of the page.

    Args:
        runs: the runs.
        examples: those questions of each that the page shows in full.
    """
    total = sum(len(one.store) for one in runs)
    asked = ((place, one, *found) for place, one in enumerate(runs) for found in first_pairs(one.store))
    full = {
        (place, one.example.id): f"example-{place}-{number}"
        for place, found in enumerate(examples)
        for number, one in enumerate(found)
    }
    methods = [method for method in METHODS if any(method in one.summary.methods for one in runs)]
    keys, lines, least = dict[str, None](), list[str](), max(1, -(-total // MOST))
    for place, run, example, rows in islice(asked, 0, None, least):
        keys |= dict.fromkeys(example.groups)
        steps = {method: judge_steps(run.graphs, example, row.trace) for method, row in rows.items()}
        line = {
            "run": place,
            **_line(run.metric, example, rows, methods, steps.get("codevqa", ())),
            "groups": [example.groups.get(key) for key in keys],
            "pictures": ", ".join(image.name for image in example.images[:MOST_CALLS]),
            "full": full.get((place, example.id)),
            "trace": _json([_told(answer_of(example, row), steps[method]) for method, row in rows.items()]),
        }
        lines.append(_json(line))
    head: dict[str, Any] = {
        "methods": [[method, METHOD_LABELS[method]] for method in methods],
        "runs": [one.name for one in runs],
        "keys": list(keys),
        "total": total,
    }
    every = 1
    while True:
        whole = f'{{"rows":[{",".join(lines[::every])}],{_json({**head, "every": every * least})[1:]}'
        text = base64.b64encode(gzip.compress(whole.encode(), 6, mtime=0)).decode()
        if len(text) <= ROOM or every >= len(lines):
            return text
        every = math.ceil(every * len(text) / ROOM)


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


def _told(answer: Answer, steps: Iterable[JudgedStep]) -> dict[str, Any]:
    """Returns what is shown of one method's answer when its question is opened."""
    verdicts = {step.index: step for step in steps if step.right is not None}
    numbered = enumerate(answer.trace.calls, 1)
    calls = [_call(call, verdicts.get(place)) for place, call in numbered if not call.name.startswith("open_image")]
    error = answer.error
    return {
        "method": METHOD_LABELS[answer.method],
        "facts": f"{seconds(answer.seconds)}, {answer.tokens:,} tokens",
        "error": _cut(f"{error.type}: {error.message}") if error else "",
        "program": _cut(answer.program.source) if answer.program else "",
        "calls": calls[:MOST_CALLS],
        "attempts": [[_cut(one.source), _cut(f"{why.type}: {why.message}")] for one, why in answer.trace.attempts],
        "read": _read(answer.trace.baseline),
    }


def _call(call: Call, verdict: JudgedStep | None) -> dict[str, Any]:
    told: dict[str, Any] = {"text": _cut(str(call), MAX_CALL), "read": _read(call.evidence)}
    return told if verdict is None else {**told, "right": verdict.right, "truth": verdict.truth}


def _read(evidence: Iterable[Evidence]) -> str:
    """Returns the captions that were read."""
    return _cut("; ".join(text for one in evidence for captions in one.captions for text in captions), MAX_CALL)


def _cut(text: str, most: int = MAX_TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} more)"
