"""A guard against slowness by counts, which hold on a busy machine where seconds do not.

A fixed set of questions may cost so much work and no more.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

import pytest

from codevqa import Answer, CodeVQA, Models, Question, Settings, Writer, WriterSettings
from codevqa.core.images import Picture, load_picture
from codevqa.core.text import sentence_case
from codevqa.miniworld.world import draw, sample_scene
from codevqa.models.base import GenerationRequest
from codevqa.models.fakes import ScriptedLM
from codevqa.presets.assembly import load, prompt_sets
from codevqa.presets.presets import preset
from codevqa.prompts import load as load_prompts

PICTURES = 3
COLOR, THERE = "What color is the star?", "Is there a red ball?"
PROGRAMS = {
    "Color?": f'answer = query(img, "{COLOR}")',
    "Left of?": 'x1, y1 = get_pos(img, "star")\nx2, y2 = get_pos(img, "circle")\nanswer = "yes" if x1 < x2 else "no"',
    "Both?": f'first = query(img, "{THERE}")\nsecond = query(img, "{COLOR}")\nanswer = first + " " + second',
    "Color again?": f'answer = query(img, "{COLOR}")',
    "How many?": f'answer = len([img for img in images if query(img, "{THERE}") == "yes"])',
    "Which one?": 'answer = find_matching_image(images, "red star")',
}
CALLS = {"Color?": 1, "Left of?": 2, "Both?": 2, "Color again?": 1, "How many?": PICTURES, "Which one?": 1}
FIRST, SECOND = ("Color?", "Left of?"), ("Both?", "Color again?")
"""Two waves of questions about each picture; the questions about all of them come last."""


def pictures() -> list[Picture]:
    return [load_picture(draw(sample_scene(random.Random(f"counts {n}"), split="test"))) for n in range(PICTURES)]


def program(request: GenerationRequest) -> str:
    header = str(request.prompt).rpartition("\n")[2]
    return "\n" + {sentence_case(one): source for one, source in PROGRAMS.items()}[header.partition(": ")[2]]


def words(request: GenerationRequest) -> str:
    return ["yes", "no"][hashlib.sha256(str(request.prompt).encode()).digest()[0] % 2]


def engine() -> CodeVQA:
    """The mini models of vision, loaded anew, behind scripted language models."""
    chosen = preset("mini")
    matcher = load("matcher", chosen.parts["matcher"], **chosen.options["matcher"])
    captioner = load("captioner", chosen.parts["captioner"], **chosen.options["captioner"])
    writer = Writer(ScriptedLM(program), prompt_sets(chosen, None), settings=WriterSettings(repairs=0))
    # Nothing is late by the clock: a batch waits for whoever may still come.
    return CodeVQA(writer, Models(ScriptedLM(words), matcher, captioner), Settings(batch_wait=5.0))


def ask_all(vqa: CodeVQA) -> list[Answer]:
    shown = pictures()
    waves = [[Question(one, text) for one in shown for text in texts] for texts in (FIRST, SECOND)]
    waves.append([Question(shown, "How many?", "set"), Question(shown, "Which one?", "set")])
    answers = [answer for wave in waves for answer in vqa.ask_many(wave)]
    assert [answer.error for answer in answers] == [None] * len(answers)
    return answers


def done(vqa: CodeVQA, answers: Sequence[Answer]) -> dict[str, int]:
    """What was done, from the counters of each part."""
    matcher: Any = vqa.models.matcher
    captioner: Any = vqa.models.captioner
    return {
        "vision forwards of the matcher": matcher.stats.vision_forwards,
        "vision forwards of the captioner": captioner.stats.vision_forwards,
        "rows of the matcher": matcher.stats.text_rows,
        "rows of the captioner": captioner.stats.text_rows,
        "batches of the matcher": matcher.stats.text_batches,
        "batches of the captioner": captioner.stats.text_batches,
        "host calls": sum(len(answer.trace.calls) for answer in answers),
    }


@pytest.mark.slow
def test_no_work_is_done_twice() -> None:
    with engine() as vqa:
        answers = ask_all(vqa)
        found = done(vqa, answers)
        ask_all(vqa)  # all of it again: every call is remembered
        assert done(vqa, answers) == found
    texts = 4  # two questions and two phrases about each picture, however often they are asked
    exact = {
        "vision forwards of the matcher": PICTURES,
        "vision forwards of the captioner": PICTURES,
        "host calls": PICTURES * sum(CALLS[one] for one in FIRST + SECOND) + CALLS["How many?"] + CALLS["Which one?"],
    }
    at_most = {
        "rows of the matcher": PICTURES * texts + PICTURES,  # a text is compared with several pictures as one row
        "batches of the matcher": 5,
        "rows of the captioner": PICTURES * 2 * load_prompts("mini").caption_draws,
        # Each round of drawing is a batch; a picture goes on to the next where captions repeat.
        "batches of the captioner": 2 * (load_prompts("mini").caption_draws - load_prompts("mini").captions + 1),
    }
    assert {name: found[name] for name in exact} == exact
    assert [name for name, most in at_most.items() if found[name] > most] == [], found
