"""The questions a report shows in full: where program and baseline part ways, and where a program failed.

Which of them is shown is drawn at random with a fixed seed in one pass over the run, so that the same run always shows
the same ones and they come from all of it.
"""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ...core.errors import ImageError
from ...core.images import load_picture
from ..metrics import Metric
from ..metrics.steps import JudgedStep, StepJudge, outcome
from ..run.store import Store
from ..task import EvalImage, Example, PictureFile, Row
from .view import Case, ShownCall, Thumbnail

__all__ = ["KINDS", "call_text", "choose", "cut", "judged_calls", "shown_case", "small_jpeg", "thumbnail"]

KINDS = {
    "better": "The program is right, the baseline wrong",
    "worse": "The program is wrong, the baseline right",
    "wrong_reason": "Right for the wrong reason",
    "fallback": "The program failed and the baseline answered",
    "both_wrong": "No method is right",
}
"""Kinds of questions, in the order shown, with their headings."""
SIDE = 240
"""Longest side of a thumbnail in pixels."""
MAX_TEXT = 4000
"""Characters of a program or a value shown."""

Chosen: TypeAlias = tuple[Example, Row, Row | None]


@dataclass
class _Sample:
    """A sample of given size, every member equally likely (Vitter's algorithm R)."""

    size: int
    seen: int = 0
    items: list[tuple[int, Chosen]] = field(default_factory=list)

    def add(self, item: Chosen, rng: random.Random) -> None:
        if len(self.items) < self.size:
            self.items.append((self.seen, item))
        elif (place := rng.randrange(self.seen + 1)) < self.size:
            self.items[place] = (self.seen, item)
        self.seen += 1


def choose(
    store: Store, metric: Metric, judge: StepJudge | None, *, each: int, seed: int = 0
) -> dict[str, tuple[int, list[Chosen]]]:
    """Picks questions to show.

    Args:
        store: the run.
        metric: says what is right.
        judge: judges the steps, where there are scene graphs.
        each: how many of each kind at most.
        seed: of the draw.

    Returns:
        By kind, how many there are in all and those picked, in the order of the data set; kinds without any left out.
    """
    rng, samples = random.Random(seed), {kind: _Sample(each) for kind in KINDS}
    baseline = ("pnpvqa", 0) in store.counts()
    for example, row in store.pairs("codevqa"):
        other = store.row(example.id, "pnpvqa") if baseline else None
        for kind in _kinds(example, row, other, metric, judge):
            samples[kind].add((example, row, other), rng)
    return {
        kind: (sample.seen, [item for _, item in sorted(sample.items, key=lambda pair: pair[0])])
        for kind, sample in samples.items()
        if sample.seen
    }


def _kinds(example: Example, row: Row, other: Row | None, metric: Metric, judge: StepJudge | None) -> Iterator[str]:
    score = metric.score(example, row.prediction)
    if row.error:
        yield "fallback"
    if score is None:
        return
    before = None if other is None else metric.score(example, other.prediction)
    if not row.error and before is not None and score != before:
        yield "better" if score > before else "worse"
    if not row.error and not score and (before is None or not before):
        yield "both_wrong"
    judged = judge is not None and score >= 0.5 and not row.error
    if judge and judged and outcome(True, judge.steps(example, row.trace)) == "right, a step wrong":
        yield "wrong_reason"


def shown_case(
    chosen: Chosen,
    metric: Metric,
    judge: StepJudge | None,
    picture: Callable[[EvalImage], Thumbnail],
) -> Case:
    """Returns a question as a report shows it."""
    example, row, other = chosen
    steps = [
        ShownCall(text, verdict.truth if verdict else "", verdict.right if verdict else None)
        for _, text, verdict in judged_calls(judge, example, row)
    ]
    return Case(
        id=example.id,
        question=example.question,
        gold=", ".join(dict.fromkeys(example.gold)),
        pictures=tuple(map(picture, example.images)),
        answer=row.prediction,
        answer_right=_right(metric.score(example, row.prediction)),
        baseline=other.prediction if other else None,
        baseline_right=_right(metric.score(example, other.prediction)) if other else None,
        program=cut(row.program or ""),
        steps=tuple(steps),
        error=f"{row.error}: {row.message}" if row.error else "",
    )


def judged_calls(
    judge: StepJudge | None, example: Example, row: Row
) -> Iterator[tuple[Mapping[str, Any], str, JudgedStep | None]]:
    """Yields each call of a row but those that open pictures, as text, and with its verdict where there is one."""
    verdicts = {step.index: step for step in judge.steps(example, row.trace)} if judge else {}
    for index, call in enumerate(row.trace.get("calls") or (), 1):
        if not str(call.get("name")).startswith("open_image"):
            yield call, call_text(call), verdicts.get(index)


def _right(score: float | None) -> bool | None:
    return None if score is None else score >= 0.5


def call_text(call: Mapping[str, Any]) -> str:
    """Returns ``query(image 1, 'Is there a star?') -> 'yes'`` for a call of a trace."""
    arguments = call.get("arguments")
    shown = ", ".join(map(_show, arguments.values())) if isinstance(arguments, Mapping) else ""
    error = call.get("error")
    if error:
        value = f"failed: {error.get('message') if isinstance(error, Mapping) else error}"
    else:
        value = _show(call.get("value"))
    return cut(f"{call.get('name')}({shown}) → {value}")


def _show(value: Any) -> str:
    if isinstance(value, Mapping) and value.keys() == {"image"}:
        return f"image {value['image']}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_show, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else repr(value)


def cut(text: str) -> str:
    """Returns a text with no more of it than a page should show."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text) - MAX_TEXT:,} more)"


def thumbnail(image: EvalImage, here: Path | None = None) -> Thumbnail:
    """Returns a small copy of a picture inline, or its name alone where it cannot be read.

    Args:
        image: the picture.
        here: the data set's folder, if it was moved since the run was made.
    """
    small = small_jpeg(image, here)
    if small is None:
        return Thumbnail(image.name)
    return Thumbnail(image.name, "data:image/jpeg;base64," + base64.b64encode(small).decode())


def small_jpeg(image: EvalImage, here: Path | None = None) -> bytes | None:
    """Returns a small copy of a picture, as of :func:`thumbnail`; None where it cannot be read."""
    found = image
    if here is not None and isinstance(image, PictureFile) and not image.path.is_file():
        found = PictureFile(_moved(image.path, here), image.member, image.crop)
    try:
        small = load_picture(found.load()).pixels.copy()
    except ImageError:
        return None
    small.thumbnail((SIDE, SIDE))
    data = io.BytesIO()
    small.save(data, "JPEG", quality=80)
    return data.getvalue()


def _moved(path: Path, here: Path) -> Path:
    """Where a file is now: at the longest end of its path that is there."""
    ends = (here.joinpath(*path.parts[at:]) for at in range(1, len(path.parts)))
    return next((one for one in ends if one.is_file()), path)
