"""Texts of the language model's training are those of inference; packing hides texts from one another."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from codevqa.miniworld.questions import UNSEEN  # noqa: E402
from codevqa.primitives.reading import render_reading  # noqa: E402
from codevqa.writing.prompt_forms import extract_program, opening_line, render_completion  # noqa: E402
from training import language, language_tokenizer  # noqa: E402
from training.language_data import (  # noqa: E402
    EOS,
    Pool,
    bank,
    draw_item,
    preamble,
    program_text,
    reading_text,
)

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return language_tokenizer.build(questions=150)


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(random.Random(0), 150)


def test_a_program_text_is_the_prompt_of_the_writer_and_then_the_program() -> None:
    item = draw_item(random.Random(1), "set")[1]
    shots = bank("set")[:4]
    prompt = render_completion(preamble(), shots, item.question, "set")
    text = "".join(piece.text for piece in program_text(preamble(), shots, item))
    assert text == f"{prompt}\n{opening_line('set', 5)}\n{item.program}{EOS}"
    assert extract_program(text[len(prompt) :].removesuffix(EOS)) == f"{opening_line('set', 5)}\n{item.program}"


def test_a_reading_text_is_the_prompt_of_the_pipeline_and_then_the_answer() -> None:
    block = ([["a red star", "two blue circles"], ["a tree"]], "How many stars are there?", "1")
    pieces = reading_text("set", [block])
    assert "".join(piece.text for piece in pieces[:-1]) == render_reading([], block[0], block[1], "set")
    assert pieces[-1].text == f" 1{EOS}"
    assert [piece.learnt for piece in pieces] == [False, False, True]


def test_training_never_draws_an_unseen_wording(pool: Pool) -> None:
    items = [item for form in pool.items.values() for family in form.values() for item in family]
    assert items and not any(item.wording.endswith(UNSEEN) for item in items)
    assert draw_item(random.Random(4), "image", unseen=True)[1].wording.endswith(UNSEEN)


def test_packed_texts_do_not_see_each_other(tokenizer: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = language.build_model(tokenizer, width=32, layers=2, heads=2).eval()
    tokenizer.save_pretrained(tmp_path)
    ids, texts, weights = next(iter(language.Texts(tmp_path, 1, 900, 0, pool=30)))
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


@pytest.mark.slow
def test_the_script_runs_and_what_it_writes_can_be_loaded(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "training.language", "--out", str(tmp_path), "--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(tmp_path)("# Image 1: Is there a star?", return_tensors="pt")
    assert model(input_ids=ids["input_ids"]).logits.isfinite().all()
