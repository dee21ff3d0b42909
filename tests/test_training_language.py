"""Texts of the language model's training are those of inference; packing hides texts from one another; it learns."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from codevqa.mini.questions import UNSEEN  # noqa: E402
from codevqa.pnpvqa import render_reading  # noqa: E402
from codevqa.writer import extract_program, opening_line, render_completion  # noqa: E402
from training import language, language_tokenizer  # noqa: E402
from training.language_data import (  # noqa: E402
    EOS,
    STYLES,
    Pool,
    ReadingPool,
    bank,
    draw_item,
    preamble,
    program_text,
    reading_text,
    sample_program,
)
from training.language_words import general, rename, replace_words  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tokenizer():
    return language_tokenizer.build(questions=400)


@pytest.fixture(scope="module")
def pool():
    return Pool(random.Random(0), 300)


def test_a_program_text_is_the_prompt_of_the_writer_and_then_the_program():
    item = draw_item(random.Random(1), "set")[1]
    shots = bank("set")[:4]
    pieces = program_text(preamble(), shots, item)
    prompt = render_completion(preamble(), shots, item.question, "set")
    text = "".join(piece.text for piece in pieces)
    assert text == f"{prompt}\n{opening_line('set', 5)}\n{item.program}{EOS}"
    assert extract_program(text[len(prompt) :].removesuffix(EOS)) == f"{opening_line('set', 5)}\n{item.program}"


def test_a_reading_text_is_the_prompt_of_the_pipeline_and_then_the_answer():
    block = ([["a red star", "two blue circles"], ["a tree"]], "How many stars are there?", "1")
    pieces = reading_text("set", [block])
    assert "".join(piece.text for piece in pieces[:-1]) == render_reading([], block[0], block[1], "set")
    assert pieces[-1].text == f" 1{EOS}"
    assert [piece.learnt for piece in pieces] == [False, False, True]


def test_pieces_and_whole_texts_have_the_same_tokens(tokenizer, pool):
    rng, readings = random.Random(2), ReadingPool(random.Random(3), 60)
    encode = language.Encoder(tokenizer)
    for _ in range(60):
        pieces = sample_program(rng, pool) if rng.random() < 0.5 else readings.sample(rng)
        whole = tokenizer.backend_tokenizer.encode("".join(piece.text for piece in pieces)).ids
        assert encode(pieces, 1.0)[0] == whole
        assert tokenizer.decode(whole) == "".join(piece.text for piece in pieces)


def test_newlines_and_digits_are_single_tokens_and_strange_words_are_spelt(tokenizer):
    tokens = tokenizer.tokenize('a brolmid\n\n12 "brolmid')
    assert tokens.count("Ċ") == 2 and "1" in tokens and "2" in tokens
    assert [*"brolmid"] == tokens[-7:]
    spelt = "".join(tokens[: tokens.index("Ċ")])
    assert spelt.endswith("brolmid")


def test_training_never_draws_an_unseen_wording(pool):
    items = [item for form in pool.items.values() for family in form.values() for item in family]
    assert items and not any(item.wording.endswith(UNSEEN) for item in items)
    assert draw_item(random.Random(4), "image", unseen=True)[1].wording.endswith(UNSEEN)


def test_renaming_changes_question_and_program_alike():
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
                assert text.lower() in other.question.lower() or item.type in ("verify", "box", "tower")
    assert changed > 150
    assert replace_words("Is there a star?", {"star": "owl"}) == "Is there an owl?"


def program_blank(program: str) -> str:
    return "_".join(program.split('"')[::2])


def quoted(program: str) -> list[str]:
    return program.split('"')[1::2]


@pytest.mark.parametrize("style", STYLES)
def test_other_styles_are_programs_with_the_same_texts(style):
    rng = random.Random(6)
    for _ in range(60):
        program = draw_item(rng, rng.choice(("image", "set")))[1].program
        compile(style(program), "<program>", "exec")
        assert sorted(quoted(style(program))) == sorted(quoted(program))


def test_a_general_question_is_passed_on():
    item = general(random.Random(7), "image")
    assert item.program == f'answer = query(img, "{item.question}")'


def test_packed_texts_do_not_see_each_other(tokenizer, pool, tmp_path):
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


def test_a_few_steps_lower_the_loss(tokenizer, tmp_path):
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


def test_the_script_runs_and_what_it_writes_can_be_loaded(tmp_path):
    command = [sys.executable, "-m", "training.language", "--out", str(tmp_path), "--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(tmp_path)("# Image 1: Is there a star?", return_tensors="pt")
    assert model(input_ids=ids["input_ids"]).logits.isfinite().all()
    assert "programs" in (tmp_path / "figures.json").read_text()
