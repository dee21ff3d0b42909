"""Questions of the small world: true answers, programs that reach them, even odds, wordings kept for testing."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Literal

import pytest

from codevqa.core.trace import Form
from codevqa.miniworld import oracle
from codevqa.miniworld.questions import Item, Phrase
from codevqa.miniworld.questions_set import sample_set
from codevqa.miniworld.sampling import families, sample_question
from codevqa.miniworld.world import HELD_OUT, Scene, Thing, sample_scene
from codevqa.prompts import load

Drawn = list[tuple[list[Scene], Item]]


def draw(count: int, seed: int = 0, split: Literal["train", "test"] = "train") -> Drawn:
    rng = random.Random(seed)
    found: Drawn = []
    while len(found) < count:
        single = rng.random() < 0.5
        scenes = [sample_scene(rng, split=split)] if single else sample_set(rng, split=split)
        try:
            found.append((scenes, sample_question(rng, scenes[0] if single else scenes)))
        except LookupError:
            continue
    return found


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return draw(3000)


def test_every_program_reaches_the_true_answer(drawn: Drawn) -> None:
    for scenes, item in drawn:
        assert oracle.run_program(item.program, scenes, item.form) == item.answer, item


def test_every_family_of_question_is_drawn(drawn: Drawn) -> None:
    seen = {item.type for _, item in drawn}
    assert {"exist", "relation", "and", "or", "count", "how_many", "find_color", "box", "tower", "two_counts"} <= seen
    assert len(seen) > 35
    assert len({item.wording for _, item in drawn}) > 150


def test_yes_and_no_are_equally_likely(drawn: Drawn) -> None:
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for _, item in drawn:
        if item.answer in ("yes", "no"):
            answers[item.type][item.answer] += 1
    total = sum(answers.values(), Counter())
    assert 0.46 < total["yes"] / total.total() < 0.54
    for family, counter in answers.items():
        if counter.total() > 100:
            assert 0.36 < counter["yes"] / counter.total() < 0.64, family


@pytest.mark.parametrize("form", ["image", "set"])
def test_a_family_can_be_asked_for(form: Form) -> None:
    rng = random.Random(1)
    for name in families(form):
        for _ in range(400):
            scenes = [sample_scene(rng, min_things=3)] if form == "image" else sample_set(rng)
            try:
                item = sample_question(rng, scenes[0] if form == "image" else scenes, name)
            except LookupError:
                continue
            assert item.form == form
            break
        else:
            pytest.fail(f"no question of family {name}")


def test_questions_read_as_sentences(drawn: Drawn) -> None:
    for _, item in drawn:
        assert not item.question[0].islower() and item.question[-1] in "?."
        assert "  " not in item.question and "{" not in item.question
        for wrong in (" a orange", " a umbrella", " a arrow", " a image", " an box", " 1 boxes", " one boxes"):
            assert wrong not in item.question, item.question


def test_sets_keep_held_out_pairs_out_of_training() -> None:
    rng = random.Random(2)
    pairs = [
        {(t.color, t.kind) for s in sample_set(rng, style="plain", split="train") for t in s.things} for _ in range(300)
    ]
    assert not set().union(*pairs) & HELD_OUT
    pairs = [
        {(t.color, t.kind) for s in sample_set(rng, style="plain", split="test") for t in s.things} for _ in range(300)
    ]
    assert set().union(*pairs) & HELD_OUT


def scene_of(*things: tuple[str, str, float, float]) -> Scene:
    return Scene(
        tuple(Thing(kind, color, "small", x, y, 8.0) for color, kind, x, y in things), "plain", (200, 200, 200)
    )


def test_the_oracle_answers_by_hand_checked_truth() -> None:
    scene = scene_of(("red", "star", 20, 100), ("red", "star", 60, 20), ("blue", "fish", 100, 60))
    assert oracle.query(scene, "How many red stars are there?") == "2"
    assert oracle.query(scene, "Is there a blue star?") == "no"
    assert oracle.query(scene, "What is the blue object?") == "fish"
    assert oracle.get_pos(scene, "blue fish") == pytest.approx((100 / 128 * 24, 68 / 128 * 24))
    assert oracle.find_matching_image([scene_of(("black", "hat", 50, 50)), scene], "fish") is scene
    with pytest.raises(ValueError, match="2 things are 'red star'"):
        oracle.get_pos(scene, "red star")
    with pytest.raises(ValueError, match="no elementary question"):
        oracle.query(scene, "Why is it red?")


@pytest.mark.parametrize("reaching", ["open('setup.cfg').read()", "__import__('os').listdir('/')", "query.__globals__"])
def test_a_program_reaches_nothing_but_the_truth(reaching: str) -> None:
    scene = scene_of(("black", "circle", 20, 20))
    with pytest.raises((PermissionError, NameError, AttributeError)):
        oracle.run_program(f"answer = {reaching}", [scene], "image")


def test_phrases() -> None:
    assert Phrase("fish", "orange").one == "an orange fish"
    assert Phrase("cross", "red", "small").many == "small red crosses"
    assert oracle.parse_phrase("small red crosses") == Phrase("cross", "red", "small")
    assert oracle.parse_phrase("blocks") == Phrase("square", noun="block")


def test_the_bank_of_the_mini_prompt_set_runs_and_is_varied() -> None:
    prompts = load("mini")
    assert len(prompts.examples) == 50
    whole = [one for one in prompts.examples if one.program.strip() == f'answer = query(img, "{one.question}")']
    assert len(whole) <= 0.4 * 50
    assert {one.form for one in prompts.examples} == {"image", "set"}
    assert {one.form for one in prompts.reading} == {"image", "set"}
    assert len({one.question for one in prompts.examples}) == 50
