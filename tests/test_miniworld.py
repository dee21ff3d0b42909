"""The small drawn world: scenes and pictures, questions with their truth, and data sets in the official formats."""

import hashlib
import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import numpy as np
import numpy.typing as npt
import pytest
from cli_kit import CommandLine
from data_files import seen

from codevqa.core.errors import SetupError
from codevqa.eval.datasets import open_dataset
from codevqa.mini import export
from codevqa.mini.export import write_datasets
from codevqa.mini.questions import SceneQuestion, sample_question
from codevqa.mini.sampling import sample_scene
from codevqa.mini.sets import sample_set
from codevqa.mini.truth import matching_scene, query_truth, run_program, true_position
from codevqa.mini.world import CANVAS, COLORS, GAP, HELD_OUT, KINDS, RADII, Scene, Thing, draw_scene


def scenes(count: int, **settings: object) -> list[Scene]:
    rng = random.Random(7)
    return [sample_scene(rng, **settings) for _ in range(count)]  # type: ignore[arg-type]


def pixels(scene: Scene, size: int = CANVAS) -> npt.NDArray[np.int64]:
    return np.asarray(draw_scene(scene, size), dtype=np.int64)


def test_kinds_and_their_held_out_pairs_stay() -> None:
    # The shipped weights know kinds by their place and were trained without these pairs.
    assert hashlib.sha256(repr((KINDS, sorted(HELD_OUT))).encode()).hexdigest()[:16] == "614e6ef3a922a5fc"
    assert 0.08 < len(HELD_OUT) / len(KINDS) / len(COLORS) < 0.12


@pytest.mark.parametrize(("style", "fewest"), [("plain", 7), ("box", 1)])
def test_things_stay_inside_and_apart(style: str, fewest: int) -> None:
    for scene in scenes(200, style=style, min_things=fewest, max_things=8):
        for place, figure in enumerate(scene.things):
            assert min(figure.box) >= -1e-6 and max(figure.box) <= CANVAS + 1e-6
            assert style == "box" or figure.radius == RADII[figure.size]
            for other in scene.things[:place]:
                apart = sorted((abs(figure.x - other.x), abs(figure.y - other.y)))
                assert apart[1] > figure.radius + other.radius - 1e-6, (figure, other)
                assert style == "box" or apart[0] >= GAP


def test_held_out_pairs_appear_in_test_only() -> None:
    train = {(figure.color, figure.kind) for scene in scenes(1000) for figure in scene.things}
    test = {(figure.color, figure.kind) for scene in scenes(1000, split="test") for figure in scene.things}
    assert not train & HELD_OUT
    assert test >= HELD_OUT
    assert {color for color, _ in train} == set(COLORS)
    assert {kind for _, kind in train} == set(KINDS)


def test_a_picture_shows_each_thing_in_its_place() -> None:
    for scene in scenes(100, style="plain"):
        changed = np.abs(pixels(scene) - pixels(replace(scene, things=()))).sum(-1) > 60
        for figure in scene.things:
            left, top, right, bottom = (round(edge) for edge in figure.box)
            assert changed[top:bottom, left:right].mean() > 0.1, figure
            changed[top:bottom, left:right] = False
        assert not changed.any()


Drawn = list[tuple[list[Scene], SceneQuestion]]


def draw_questions(count: int, seed: int = 0, split: Literal["train", "test"] = "train") -> Drawn:
    rng = random.Random(seed)
    pairs: Drawn = []
    while len(pairs) < count:
        single = rng.random() < 0.5
        scenes = [sample_scene(rng, split=split)] if single else sample_set(rng, split=split)
        pairs.append((scenes, sample_question(rng, scenes[0] if single else scenes)))
    return pairs


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return draw_questions(800)


def test_yes_and_no_are_equally_likely(drawn: Drawn) -> None:
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for _, item in drawn:
        if item.answer in ("yes", "no"):
            answers[item.type][item.answer] += 1
    total = sum(answers.values(), Counter())
    assert 0.44 < total["yes"] / total.total() < 0.56
    assert len(answers) > 20
    assert all(0.25 < counter["yes"] / counter.total() < 0.75 for counter in answers.values() if counter.total() > 40)


def scene_of(*things: tuple[str, str, float, float]) -> Scene:
    return Scene(
        tuple(Thing(kind, color, "small", x, y, 8.0) for color, kind, x, y in things), "plain", (200, 200, 200)
    )


def test_a_question_about_one_picture_is_put_to_one_of_a_set() -> None:
    rng = random.Random(3)
    for size in (2, 3):
        scenes = sample_set(rng, style="plain", size=size)
        item = sample_question(rng, scenes, "nth_count", lambda item: " right " in item.question)
        assert item.program.startswith("img = images[-1]\n")  # the right one of two and of three
        assert item.answer == run_program(item.program.partition("\n")[2], scenes[-1:], "image")


def test_the_truth_is_what_a_hand_check_finds() -> None:
    scene = scene_of(("red", "star", 20, 100), ("red", "star", 60, 20), ("blue", "fish", 100, 60))
    other = scene_of(("black", "hat", 50, 50))
    assert query_truth(scene, "How many red stars are there?") == "2"
    assert query_truth(scene, "Is there a blue star?") == "no"
    assert query_truth(scene, "What is the blue object?") == "fish"
    assert true_position(scene, "blue fish") == pytest.approx((100 / 128 * 24, 68 / 128 * 24))
    assert matching_scene([other, scene], "fish") is scene
    for wrong in (lambda: true_position(scene, "red star"), lambda: matching_scene([other], "fish")):
        with pytest.raises(ValueError, match=r"2 things|0 scenes"):
            wrong()
    with pytest.raises(ValueError, match="no elementary question"):
        query_truth(scene, "Why is it red?")
    assert query_truth(scene, "What are the red objects?") == "star"
    assert query_truth(scene, "What are the green objects?") == "none"


def test_what_is_counted_whole_is_counted_color_by_color() -> None:
    scene = scene_of(("red", "star", 20, 100), ("red", "star", 60, 20), ("blue", "fish", 100, 60))
    item = sample_question(random.Random(1), scene, "count_all")
    assert (item.answer, 'f"How many {color} objects are there?"' in item.program) == ("3", True)


def test_a_program_may_answer_with_pictures() -> None:
    star, fish = scene_of(("red", "star", 20, 100)), scene_of(("blue", "fish", 100, 60))
    source = 'found = [img for img in images if query(img, "Is there {}?") == "yes"]\nanswer = found or "none"'
    answers = {
        thing: run_program(source.format(thing), [star, fish, star], "set") for thing in ("a star", "a fish", "a hat")
    }
    assert answers == {"a star": "image 1, image 3", "a fish": "image 2", "a hat": "none"}
    assert run_program('answer = find_matching_image(images, "fish")', [star, fish], "set") == "image 2"


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
    assert {question: query_truth(tower, question) for question in asked} == asked


IMAGES = 16


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "mini"
    write_datasets(out, images=IMAGES)
    return out


def test_the_files_of_a_seed_stay_what_they_are(data: Path) -> None:
    # Figures of the mini models are of these questions, so a change of any of them is a change of the figures.
    whole = hashlib.sha256()
    for path in sorted(data.rglob("*.json*")):
        whole.update(path.relative_to(data).as_posix().encode() + path.read_bytes())
    assert whole.hexdigest()[:16] == "5228fa051237fa14"


def test_every_data_set_opens_with_its_pictures(data: Path) -> None:
    for name, split in (("gqa", "val_balanced"), ("covr", "val"), ("nlvr2", "dev")):
        examples = list(open_dataset(name, data, split))
        assert len(examples) >= IMAGES and len({example.id for example in examples}) == len(examples)
        assert all(example.gold and len(seen(example)) == len(example.images) > 0 for example in examples)


def test_only_what_is_asked_for_is_written(tmp_path: Path, codevqa: CommandLine) -> None:
    out = tmp_path / "few"
    done = codevqa("mini-data", out, "--limit", 4, "--only", "nlvr2", "--splits", "val")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["4"] and not (out / "gqa").exists()
    assert "No data set gqo." in codevqa("mini-data", tmp_path / "none", "--only", "gqo").stderr


def test_larger_sets_have_files_of_their_own(tmp_path: Path, codevqa: CommandLine) -> None:
    """They open as the others do, and share no picture with them."""
    done = codevqa("mini-data", str(tmp_path / "out"), "--images", "4", "--splits", "val", "--sets", "7,12")
    assert "covr/val_12.jsonl" in done.stdout
    pictures: list[str] = []
    for split, size in (("val_7", 7), ("val_12", 12)):
        examples = list(open_dataset("covr", tmp_path / "out", split))
        assert [len(example.images) for example in examples] == [size] * 4
        pictures += [picture.name for example in examples for picture in example.images]
    assert len({*pictures}) == len(pictures)


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    monkeypatch.setitem(export.WRITERS, "nlvr2", Mock(side_effect=failure))
    with pytest.raises(SetupError if isinstance(failure, OSError) else KeyboardInterrupt):
        write_datasets(tmp_path / "out", images=4, splits=["val"])
    assert list(tmp_path.iterdir()) == []
