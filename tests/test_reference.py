"""The benchmarks' reference, which computes as the paper's release does, gives the library's answers."""

import random
import sys
from pathlib import Path

import pytest
import torch

from codevqa import Answer, CodeVQA, Question
from codevqa.mini.questions import sample_question
from codevqa.mini.sampling import sample_scene
from codevqa.mini.sets import sample_set
from codevqa.mini.world import draw_scene

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import reference

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="compares to the last digits; on a GPU the library computes in bfloat16"
    ),
]


def test_answers_are_the_same(mini: CodeVQA) -> None:
    asked: list[Question] = []
    shown = []
    for number in range(24):
        rng = random.Random(f"answers {number}")
        scenes = [sample_scene(rng, split="test")] if number % 3 else sample_set(rng, split="test")
        item = sample_question(rng, scenes if number % 3 == 0 else scenes[0])
        shown.append([draw_scene(scene) for scene in scenes])
        asked.append(Question(shown[-1], item.question, None if number % 3 else "set"))
    answers: list[Answer] = mini.ask_many(asked)
    with reference.from_preset("mini", numbers=reference.Numbers(drawn=12)) as release:
        release.seeds = reference.engine_seeds(mini.settings.seed)
        theirs = [
            release.ask(pictures, question.text, form=question.form)
            for pictures, question in zip(shown, asked, strict=True)
        ]
    pairs = [(answer.question, answer.text, other) for answer, other in zip(answers, theirs, strict=True)]
    differing = [pair for pair in pairs if pair[1] != pair[2]]
    assert not differing
    assert len({answer.text for answer in answers}) > 4
    assert {call.name for answer in answers for call in answer.trace.calls} >= {"query", "get_pos"}
