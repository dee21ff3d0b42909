"""Questions of the drawn world: true answers, even odds, wordings kept for testing, and the truth they rest on."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Literal

import pytest

from codevqa.miniworld.questions import Item, sample_question, sample_set
from codevqa.miniworld.truth import find_matching_image, get_pos, query, run_program
from codevqa.miniworld.world import Scene, Thing, sample_scene

Drawn = list[tuple[list[Scene], Item]]


def draw(count: int, seed: int = 0, split: Literal["train", "test"] = "train") -> Drawn:
    rng = random.Random(seed)
    found: Drawn = []
    while len(found) < count:
        single = rng.random() < 0.5
        scenes = [sample_scene(rng, split=split)] if single else sample_set(rng, split=split)
        found.append((scenes, sample_question(rng, scenes[0] if single else scenes)))
    return found


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return draw(800)


def test_yes_and_no_are_equally_likely(drawn: Drawn) -> None:
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for _, item in drawn:
        if item.answer in ("yes", "no"):
            answers[item.type][item.answer] += 1
    total = sum(answers.values(), Counter())
    assert 0.44 < total["yes"] / total.total() < 0.56
    assert len(answers) > 20
    assert all(0.25 < one["yes"] / one.total() < 0.75 for one in answers.values() if one.total() > 40)


def scene_of(*things: tuple[str, str, float, float]) -> Scene:
    return Scene(
        tuple(Thing(kind, color, "small", x, y, 8.0) for color, kind, x, y in things), "plain", (200, 200, 200)
    )


def test_the_truth_is_what_a_hand_check_finds() -> None:
    scene = scene_of(("red", "star", 20, 100), ("red", "star", 60, 20), ("blue", "fish", 100, 60))
    other = scene_of(("black", "hat", 50, 50))
    assert query(scene, "How many red stars are there?") == "2"
    assert query(scene, "Is there a blue star?") == "no"
    assert query(scene, "What is the blue object?") == "fish"
    assert get_pos(scene, "blue fish") == pytest.approx((100 / 128 * 24, 68 / 128 * 24))
    assert find_matching_image([other, scene], "fish") is scene
    for wrong in (lambda: get_pos(scene, "red star"), lambda: find_matching_image([other], "fish")):
        with pytest.raises(ValueError, match=r"2 things|0 scenes"):
            wrong()
    with pytest.raises(ValueError, match="no elementary question"):
        query(scene, "Why is it red?")


def test_of_a_tower_and_its_walls_the_truth_is_known() -> None:
    blocks = [Thing("square", color, "medium", 64, 115 - 27 * at, 12.8) for at, color in enumerate(("black", "blue"))]
    tower = Scene(tuple(blocks), "box", (211, 211, 211))
    asked = {
        "How many blocks are in the tower?": "2",
        "What color is the block at the top of the tower?": "blue",
        "Is there a blue block above a black block?": "yes",
        "Is there a black block above a blue block?": "no",
        "Is there a black block touching the bottom?": "yes",
        "How many blocks touch the wall?": "1",
        "Are all the blocks black?": "no",
    }
    assert {question: query(tower, question) for question in asked} == asked


@pytest.mark.parametrize("reaching", ["open('setup.cfg').read()", "__import__('os').listdir('/')", "query.__globals__"])
def test_a_program_reaches_nothing_but_the_truth(reaching: str) -> None:
    scene = scene_of(("black", "circle", 20, 20))
    with pytest.raises((PermissionError, NameError, AttributeError)):
        run_program(f"answer = {reaching}", [scene], "image")
