"""Right for the right reason: whether the calls of a program returned what is true of the picture.

Each call of ``query`` and ``get_pos`` is compared with the scene graph of its picture (:mod:`.scene_graphs` lists what
a graph can tell). A right answer that rests on a false value is right for the wrong reason.
What a graph does not tell is left out. The judgement comes after the answer and never takes part in it.

A question whose program failed is not judged: its answer came from the baseline.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ..statistics import Interval, mean_of
from ..task import Example, Row
from .scene_graphs import SceneGraphs, SceneJudge

STEPS = ("query", "get_pos")
"""Primitives whose values are judged."""


@dataclass(frozen=True)
class JudgedStep:
    """One call with its verdict."""

    index: int
    """Place in the trace, counted from 1."""
    name: str
    truth: str = ""
    """What the graph says; empty where it says nothing."""
    right: bool | None = None
    """None where the graph does not tell."""


@dataclass(frozen=True)
class StepSummary:
    """How a run's right answers came about."""

    questions: int
    """Programs that ran to their end and whose answer has a score."""
    failed: int
    """Questions left out because the program failed or nothing was answered."""
    outcomes: Counter[str]
    """Questions with a judged step, by how the answer came about, such as ``right, a step wrong``."""
    calls: dict[str, int]
    """By primitive."""
    shares: dict[str, Interval]
    """Of the judged calls, those that are right: by primitive, and of ``all``. Of the right answers with a judged step,
    those with a false one: ``wrong reason``."""

    @property
    def judged_count(self) -> int:
        """Questions with a judged step."""
        return self.outcomes.total()


def judge_steps(graphs: SceneGraphs, example: Example, trace: Mapping[str, Any]) -> list[JudgedStep]:
    """Judges the calls of a trace, as :meth:`codevqa.Answer.to_dict` writes them; others are left out.

    Args:
        graphs: graphs by image id. The id of a picture is its file's name without the ending.
        example: what was asked.
        trace: what came of it.
    """
    verdicts = []
    for index, call in enumerate((graphs and trace.get("calls")) or (), 1):
        name, arguments = call.get("name"), call.get("arguments") or {}
        if name in STEPS and not call.get("error"):
            truth = None
            if scene := _scene(graphs, example, arguments.get("img")):
                read, asked = (scene.question, "question") if name == "query" else (scene.position, "object")
                truth = read(str(arguments.get(asked, "")))
            verdict = (truth.text, truth.holds(call.get("value"))) if truth else ("", None)
            verdicts.append(JudgedStep(index, name, *verdict))
    return verdicts


def _scene(graphs: SceneGraphs, example: Example, reference: Any) -> SceneJudge | None:
    number = reference.get("image") if isinstance(reference, Mapping) else None
    if not isinstance(number, int) or not 1 <= number <= len(example.images):
        return None
    graph = graphs.get(image_id(example.images[number - 1].name))
    return SceneJudge(graph, graphs) if graph else None


def image_id(name: str) -> str:
    """Returns the id of a picture, its file's name without the ending; empty for a part of a picture."""
    return "" if "@" in name else PurePath(name).stem


def summarize_steps(graphs: SceneGraphs, answered: Iterable[tuple[Example, Row, bool | None]]) -> StepSummary:
    """Judges the programs of a run.

    Args:
        graphs: what is true.
        answered: each example with its row and whether the answer is right; None where the gold answer is hidden.
    """
    questions = failed = 0
    outcomes, calls = Counter[str](), Counter[str]()
    verdicts: defaultdict[str, list[tuple[bool, str]]] = defaultdict(list)  # each with its cluster
    for example, row, right in answered:
        if right is None:
            continue
        if row.fallback or row.error:
            failed += 1
            continue
        questions += 1
        cluster = example.cluster or example.id
        known = []
        for step in judge_steps(graphs, example, row.trace):
            calls[step.name] += 1
            if step.right is not None:
                known.append(step.right)
                verdicts[step.name].append((step.right, cluster))
                verdicts["all"].append((step.right, cluster))
        if known:
            outcomes[f"{'right' if right else 'wrong'}, {'steps right' if all(known) else 'a step wrong'}"] += 1
            if right:
                verdicts["wrong reason"].append((not all(known), cluster))
    shares = {name: share for name, shares_of in verdicts.items() if (share := mean_of(shares_of))}
    return StepSummary(questions, failed, outcomes, {name: calls[name] for name in STEPS if calls[name]}, shares)
