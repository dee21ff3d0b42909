"""Right for the right reason: whether the calls of a program returned what is true of the picture.

Where there are scene graphs, each call of ``query``, ``get_pos`` and ``find_matching_image`` is compared with what the
graph says (:mod:`.truth` lists what it can tell). A right answer that rests on a false value is right for the wrong
reason. What cannot be told is left out, and the share that was judged is reported beside every figure. The judgement
comes after the answer and never takes part in it.

A question whose program failed is not judged: its answer came from the baseline.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from ..statistics import Interval, mean
from ..task import Example, Row
from .scene_graphs import SceneGraphs
from .truth import Gold, SceneJudge, Truth, gold_of

__all__ = ["STEPS", "JudgedStep", "Outcome", "StepJudge", "StepSummary", "image_id", "outcome", "summarize_steps"]

STEPS = ("query", "get_pos", "find_matching_image")
"""Primitives whose values are judged."""

Outcome: TypeAlias = Literal["right, steps right", "right, a step wrong", "wrong, steps right", "wrong, a step wrong"]
"""Of the answer and of those of its steps that could be judged."""


@dataclass(frozen=True)
class JudgedStep:
    """One call with its verdict."""

    index: int
    """Place in the trace, counted from 1."""
    name: str
    text: str
    """The question or phrase."""
    value: Any
    truth: str = ""
    """What the graph says; empty where it says nothing."""
    right: bool | None = None
    """None where it cannot be told."""


@dataclass
class StepSummary:
    """How a run's right answers came about."""

    questions: int = 0
    """Programs that ran to their end and whose answer could be scored."""
    failed: int = 0
    """Questions left out because the program failed or nothing was answered."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """Questions with a judged step, by :data:`Outcome`."""
    several: dict[str, int] = field(default_factory=dict)
    """The same, of those with two judged steps or more: in the others a false value can hardly do no harm."""
    calls: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By primitive: calls, how many could be judged, how many of these were right."""
    wrong_reason: Interval | None = None
    """Of the right answers with a judged step: the share with a false one."""
    wrong_reason_several: Interval | None = None
    step_accuracy: Interval | None = None
    """Of the calls that were judged: the share that is right."""
    call_accuracy: dict[str, Interval] = field(default_factory=dict)
    """The same by primitive."""
    examples: list[str] = field(default_factory=list)
    """Ids of questions right for the wrong reason, the first of them."""

    @property
    def judged(self) -> int:
        """Questions with a judged step."""
        return sum(self.outcomes.values())

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON-ready data."""
        return asdict(self) | {"judged": self.judged}


class StepJudge:
    """Judges the calls of programs by scene graphs.

    Args:
        graphs: graphs by image id. The id of a picture is its file's name without the ending.
        complete: whether the graphs list everything in their pictures, so that absence and number can be told.
    """

    def __init__(self, graphs: SceneGraphs, *, complete: bool = False) -> None:
        self.graphs = graphs
        self.complete = complete

    def steps(self, example: Example, trace: Mapping[str, Any]) -> list[JudgedStep]:
        """Judges the calls of a trace, as :meth:`codevqa.Answer.to_dict` writes them; others are left out."""
        gold = gold_of(example.record.get("semantic") or ())
        found = []
        for index, call in enumerate(trace.get("calls") or (), 1):
            name, arguments = call.get("name"), call.get("arguments") or {}
            if name in STEPS and not call.get("error"):
                text = str(arguments.get({"query": "question", "get_pos": "object"}.get(name, "phrase"), ""))
                truth = self._truth(example, gold, name, arguments, text)
                value = call.get("value")
                verdict = (truth.text, truth.holds(value)) if truth else ("", None)
                found.append(JudgedStep(index, name, text, value, *verdict))
        return found

    def _truth(self, example: Example, gold: Gold, name: str, arguments: Mapping[str, Any], text: str) -> Truth | None:
        if name == "find_matching_image":
            return self._matching(example, gold, arguments.get("images") or (), text)
        scene = self._scene(example, gold, arguments.get("img"))
        if scene is None:
            return None
        return scene.question(text) if name == "query" else scene.position(text)

    def _matching(self, example: Example, gold: Gold, images: Sequence[Any], text: str) -> Truth | None:
        scenes = [(image, self._scene(example, gold, image)) for image in images]
        shown = [(image, scene.shows(text) if scene else None) for image, scene in scenes]
        right = [image["image"] for image, there in shown if there]
        if not right or len(right) == len(shown) or None in [there for _, there in shown]:
            return None
        says = " or ".join(f"image {number}" for number in right)
        return Truth(says, lambda value: isinstance(value, Mapping) and value.get("image") in right)

    def _scene(self, example: Example, gold: Gold, reference: Any) -> SceneJudge | None:
        number = reference.get("image") if isinstance(reference, Mapping) else None
        if not isinstance(number, int) or not 1 <= number <= len(example.images):
            return None
        graph = self.graphs.get(image_id(example.images[number - 1].name))
        return SceneJudge(graph, self.graphs, gold, self.complete) if graph else None


def image_id(name: str) -> str:
    """Returns the id of a picture, its file's name without the ending; empty for a part of a picture."""
    return "" if "@" in name else PurePath(name).stem


def outcome(right: bool, steps: Iterable[JudgedStep]) -> Outcome | None:
    """Returns how an answer came about; None where no step could be judged."""
    verdicts = [step.right for step in steps if step.right is not None]
    if not verdicts:
        return None
    if right:
        return "right, steps right" if all(verdicts) else "right, a step wrong"
    return "wrong, steps right" if all(verdicts) else "wrong, a step wrong"


def summarize_steps(
    judge: StepJudge, answered: Iterable[tuple[Example, Row, bool | None]], *, keep: int = 20
) -> StepSummary:
    """Judges the programs of a run.

    Args:
        judge: the judge.
        answered: each example with its row and whether the answer is right; None where the gold answer is hidden.
        keep: how many ids of questions right for the wrong reason to keep.
    """
    result, calls = StepSummary(), Counter[tuple[str, str]]()
    outcomes, several = Counter[str](), Counter[str]()
    shares: defaultdict[str, list[tuple[bool, str]]] = defaultdict(list)  # of what, with what goes together
    for example, row, right in answered:
        if right is None or row.method != "codevqa":
            continue
        if row.fallback or row.error:
            result.failed += 1
            continue
        result.questions += 1
        steps, cluster = judge.steps(example, row.trace), example.cluster or example.id
        for step in steps:
            if step.right is not None:
                shares[step.name].append((step.right, cluster))
                shares["all"].append((step.right, cluster))
            calls[step.name, "all"] += 1
            calls[step.name, "judged"] += step.right is not None
            calls[step.name, "right"] += step.right is True
        found = outcome(right, steps)
        if found is not None:
            outcomes[found] += 1
            several[found] += (twice := sum(step.right is not None for step in steps) > 1)
            if right:
                wrong = found == "right, a step wrong", cluster
                shares["wrong"].append(wrong)
                shares["wrong, several"] += [wrong] * twice
            if found == "right, a step wrong" and len(result.examples) < keep:
                result.examples.append(example.id)
    result.outcomes, result.several = dict(outcomes), {name: n for name, n in several.items() if n}
    result.calls = {
        name: (calls[name, "all"], calls[name, "judged"], calls[name, "right"]) for name in STEPS if calls[name, "all"]
    }
    found_shares = {
        name: mean([one[0] for one in found], clusters=[one[1] for one in found])
        for name, found in shares.items()
        if found
    }
    result.wrong_reason, result.wrong_reason_several = (found_shares.get(f"wrong{more}") for more in ("", ", several"))
    result.step_accuracy = found_shares.get("all")
    result.call_accuracy = {name: share for name, share in found_shares.items() if name in STEPS}
    return result
