"""Texts of the language model's training are those of inference; packing hides texts from one another; it learns."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from codevqa.miniworld.questions import UNSEEN  # noqa: E402
from codevqa.miniworld.world import Scene, Thing  # noqa: E402
from codevqa.primitives.pnpvqa import render_reading  # noqa: E402
from codevqa.writing.prompt_forms import extract_program, opening_line, render_completion  # noqa: E402
from training import language, language_tokenizer  # noqa: E402
from training.language_data import (  # noqa: E402
    EOS,
    SPATIAL,
    STYLES,
    Pool,
    ReadingPool,
    bank,
    draw_item,
    draw_question,
    draw_spatial,
    preamble,
    program_text,
    reading_text,
    sample_program,
)
from training.language_facts import Fact, facts_of, missing, telling  # noqa: E402
from training.language_words import general, misspell, rename, replace_words  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return language_tokenizer.build(questions=400)


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(random.Random(0), 300)


def test_a_program_text_is_the_prompt_of_the_writer_and_then_the_program() -> None:
    item = draw_item(random.Random(1), "set")[1]
    shots = bank("set")[:4]
    pieces = program_text(preamble(), shots, item)
    prompt = render_completion(preamble(), shots, item.question, "set")
    text = "".join(piece.text for piece in pieces)
    assert text == f"{prompt}\n{opening_line('set', 5)}\n{item.program}{EOS}"
    assert extract_program(text[len(prompt) :].removesuffix(EOS)) == f"{opening_line('set', 5)}\n{item.program}"


def test_a_reading_text_is_the_prompt_of_the_pipeline_and_then_the_answer() -> None:
    block = ([["a red star", "two blue circles"], ["a tree"]], "How many stars are there?", "1")
    pieces = reading_text("set", [block])
    assert "".join(piece.text for piece in pieces[:-1]) == render_reading([], block[0], block[1], "set")
    assert pieces[-1].text == f" 1{EOS}"
    assert [piece.learnt for piece in pieces] == [False, False, True]


def test_pieces_and_whole_texts_have_the_same_tokens(tokenizer: Any, pool: Pool) -> None:
    rng, readings = random.Random(2), ReadingPool(random.Random(3), 60)
    encode = language.Encoder(tokenizer)
    for _ in range(60):
        pieces = sample_program(rng, pool) if rng.random() < 0.5 else readings.sample(rng)
        whole = tokenizer.backend_tokenizer.encode("".join(piece.text for piece in pieces)).ids
        assert encode(pieces, 1.0)[0] == whole
        assert tokenizer.decode(whole) == "".join(piece.text for piece in pieces)


def test_newlines_and_digits_are_single_tokens_and_strange_words_are_spelt(tokenizer: Any) -> None:
    tokens = tokenizer.tokenize('a brolmid\n\n12 "brolmid')
    assert tokens.count("Ċ") == 2 and "1" in tokens and "2" in tokens
    assert [*"brolmid"] == tokens[-7:]
    spelt = "".join(tokens[: tokens.index("Ċ")])
    assert spelt.endswith("brolmid")


def test_training_never_draws_an_unseen_wording(pool: Pool) -> None:
    items = [item for form in pool.items.values() for family in form.values() for item in family]
    assert items and not any(item.wording.endswith(UNSEEN) for item in items)
    assert draw_item(random.Random(4), "image", unseen=True)[1].wording.endswith(UNSEEN)


def test_renaming_changes_question_and_program_alike() -> None:
    rng = random.Random(5)
    changed = 0
    for _ in range(200):
        item = draw_item(rng, rng.choice(("image", "set")))[1]
        other = rename(rng, item, nouns=1.0, adjectives=1.0)
        changed += other.question != item.question
        blank = program_blank(item.program)
        assert program_blank(other.program) == blank
        for text in quoted(other.program):
            if text not in ("yes", "no") and not text.endswith("?") and text not in quoted(item.program):
                assert text.lower() in other.question.lower() or item.type in (
                    "verify",
                    "box",
                    "tower",
                    "joined",
                    "tower_end",
                )
    assert changed > 150
    assert replace_words("Is there a star?", {"star": "owl"}) == "Is there an owl?"


def program_blank(program: str) -> str:
    return "_".join(program.split('"')[::2])


def quoted(program: str) -> list[str]:
    return program.split('"')[1::2]


@pytest.mark.parametrize("style", STYLES)
def test_other_styles_are_programs_with_the_same_texts(style: Callable[[str], str]) -> None:
    rng = random.Random(6)
    for _ in range(60):
        program = draw_item(rng, rng.choice(("image", "set")))[1].program
        compile(style(program), "<program>", "exec")
        assert sorted(quoted(style(program))) == sorted(quoted(program))


def test_a_general_question_is_passed_on() -> None:
    item = general(random.Random(7), "image")
    assert item.program == f'answer = query(img, "{item.question}")'


def test_packed_texts_do_not_see_each_other(tokenizer: Any, pool: Pool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = language.build_model(tokenizer, width=32, layers=2, heads=2).eval()
    tokenizer.save_pretrained(tmp_path)
    ids, texts, weights = next(iter(language.Texts(tmp_path, 1, 900, 0, pool=60)))
    assert int(texts.max()) > 1
    packed = language.loss_of(model, ids, texts, weights)
    total = torch.zeros(())
    for number in range(1, int(texts.max()) + 1):
        part = texts[0] == number
        alone = ids[:, part]
        logits = model(input_ids=alone).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(logits[0], alone[0, 1:], reduction="none")
        total = total + (losses * weights[:, part][0, 1:]).sum()
    count = (weights[:, 1:] * (texts[:, 1:] == texts[:, :-1])).sum()
    assert packed.item() == pytest.approx((total / count).item(), rel=1e-4)


def scene_of(*things: tuple[str, str, float, float]) -> Scene:
    return Scene(
        tuple(Thing(kind, color, "small", x, y, 8.0) for color, kind, x, y in things), "plain", (200, 200, 200)
    )


SCENE = scene_of(("red", "star", 20, 100), ("red", "star", 60, 20), ("blue", "fish", 100, 60))


@pytest.mark.parametrize(
    ("fact", "told", "open_"),
    [
        (Fact(0, "How many red stars are there?"), ["two red stars"], False),
        (Fact(0, "How many red stars are there?"), ["a blue fish"], True),
        (Fact(0, "How many stars are there?"), ["two stars"], False),
        (Fact(0, "How many stars are there?"), ["two red stars"], True),
        (Fact(0, "How many stars are there?"), ["two red stars and a blue fish"], False),
        (Fact(0, "Is there a red star?"), ["two red stars"], False),
        (Fact(0, "Is there a red fish?"), ["two red stars"], True),
        (Fact(0, "Is there a red fish?"), ["two red stars and a blue fish"], False),
        (Fact(0, "What color is the fish?"), ["two red stars"], True),
        (Fact(0, "What color is the fish?"), ["a blue fish on the right"], False),
        (Fact(0, "What size is the fish?"), ["a blue fish"], True),
        (Fact(0, "What size is the fish?"), ["a small blue fish"], False),
        (Fact(0, "fish", "", "x"), ["a blue fish"], True),
        (Fact(0, "fish", "", "x"), ["a blue fish on the right"], False),
        (Fact(0, "fish", "", "y"), ["a blue fish on the right"], True),
    ],
)
def test_what_captions_tell_is_known(fact: Fact, told: list[str], open_: bool) -> None:
    assert bool(missing([fact], [SCENE], [told])) is open_


def test_relations_are_told_by_relations_or_by_places() -> None:
    scene = scene_of(("red", "star", 20, 100), ("blue", "fish", 100, 60))
    fact = Fact(0, "star", "blue fish", "x")
    assert missing([fact], [scene], [["a red star", "a blue fish above a red star"]])
    assert not missing([fact], [scene], [["a blue fish to the right of a red star"]])
    assert not missing([fact], [scene], [["a red star at the bottom left", "a blue fish on the right"]])
    near = scene_of(("red", "star", 20, 100), ("blue", "fish", 40, 60))
    assert missing([fact], [near], [["a red star at the bottom left", "a blue fish on the left"]])


def test_walls_are_told_by_what_touches_them() -> None:
    things = (Thing("circle", "black", "small", 8, 60, 8.0), Thing("circle", "blue", "small", 60, 60, 8.0))
    scene = Scene(things, "box", (211, 211, 211))
    fact = Fact(0, "Is there a black circle touching the wall?")
    assert missing([fact], [scene], [["a black circle and a blue circle"]])
    assert not missing([fact], [scene], [["a black circle touching the left wall"]])
    fact = Fact(0, "How many circles touch the left wall?")
    assert missing([fact], [scene], [["two circles"]])
    assert not missing([fact], [scene], [["a black circle touching the left wall", "a blue circle"]])


def test_the_facts_of_a_program_are_what_it_asks() -> None:
    program = 'x1, y1 = get_pos(img, "star")\nx2, y2 = get_pos(img, "fish")\nanswer = "yes" if y1 > y2 else "no"'
    scene = scene_of(("red", "star", 20, 100), ("blue", "fish", 100, 60))
    assert facts_of(program, [scene], "image") == [Fact(0, "star", "fish", "y")]
    program = 'img = find_matching_image(images, "fish")\nanswer = query(img, "What color is the star?")'
    facts = facts_of(program, [scene_of(("red", "key", 20, 20)), scene], "set")
    assert set(facts) == {
        Fact(1, "What color is the star?"),
        Fact(0, "Is there a fish?"),
        Fact(1, "Is there a fish?"),
    }


def test_captions_that_tell_are_found_for_most_questions() -> None:
    rng = random.Random(8)
    found = []
    for _ in range(60):
        form = rng.choice(("image", "set"))
        scenes, item = draw_item(rng, form)
        facts = facts_of(item.program, scenes, form)
        told = telling(rng, facts, scenes, [[] for _ in scenes])
        found.append(told is not None)
        assert told is None or not missing(facts, scenes, told)
    assert sum(found) > 45


def test_spatial_questions_are_read_often() -> None:
    rng = random.Random(9)
    assert draw_spatial(rng)[1].type in (*SPATIAL, "half_choice")
    words = {"left", "right", "above", "below", "higher", "lower", "top", "bottom", "over", "under"}
    texts = [draw_question(rng) for _ in range(400)]
    plain = [one for one in texts if one.form == "image" and one.scenes[0].style == "plain"]
    spatial = [one for one in plain if words & set(re.findall("[a-z]+", one.text.lower()))]
    assert len(spatial) > 0.24 * len(plain)
    assert any(one.enough for one in spatial)


def test_a_misspelt_question_keeps_its_program() -> None:
    rng, changed = random.Random(10), 0
    for _ in range(100):
        item = draw_item(rng, "set")[1]
        other = misspell(rng, item)
        changed += other.question != item.question
        assert (other.program, other.answer) == (item.program, item.answer)
        assert len(other.question.split()) == len(item.question.split())
    assert changed > 50


def test_a_few_steps_lower_the_loss(tokenizer: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    tokenizer.save_pretrained(tmp_path)
    model = language.build_model(tokenizer, width=32, layers=1, heads=2)
    seen: list[str] = []
    texts = language.Texts(tmp_path, 2, 700, 0, pool=60)
    before = language.loss_of(model, *next(iter(texts))).item()
    language.train(model, texts, seconds=60, steps=15, peak=5e-3, workers=0, log=seen.append)
    after = language.loss_of(model, *next(iter(texts))).item()
    assert after < 0.9 * before
    assert seen


@pytest.mark.slow
def test_the_script_runs_and_what_it_writes_can_be_loaded(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "training.language", "--out", str(tmp_path), "--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(tmp_path)("# Image 1: Is there a star?", return_tensors="pt")
    assert model(input_ids=ids["input_ids"]).logits.isfinite().all()
