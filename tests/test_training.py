"""The training of the mini models: texts tell the truth and are those of inference, networks, a few steps."""

import json
import random
import re
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_kit import ROOT

from codevqa.core.images import load_picture
from codevqa.core.question_kind import word_question
from codevqa.mini import truth
from codevqa.mini.questions import TABLE, UNSEEN
from codevqa.mini.sampling import sample_scene
from codevqa.mini.training import language, language_tokenizer, vision_texts, vlm, vlm_data
from codevqa.mini.training.captions import draw_captions, is_true, telling
from codevqa.mini.training.language_data import (
    EOS,
    PARAPHRASES,
    ExamplePool,
    bank,
    draw_item,
    draw_scenes,
    preamble,
    program_text,
)
from codevqa.mini.training.language_reading import reading_text
from codevqa.mini.training.vision_model import Pair, export_pair, restore
from codevqa.mini.training.vision_texts import draw_contrast, draw_query, keeps_out, matching, mentions, shows
from codevqa.mini.training.vision_twins import twin
from codevqa.mini.training.vision_words import text_ids
from codevqa.mini.world import HELD_OUT, draw_scene
from codevqa.models.blip.matcher import BlipMatcher
from codevqa.models.protocols import MatchRequest
from codevqa.primitives.reading import render_reading
from codevqa.writing.prompt_forms import opening_line, render_completion
from codevqa.writing.replies import extract_program


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return language_tokenizer.build_language_tokenizer(questions=150)


@pytest.fixture(scope="module")
def pool() -> ExamplePool:
    return ExamplePool(random.Random(0), 150)


def test_a_program_text_is_the_prompt_of_the_writer_and_then_the_program() -> None:
    item = draw_item(random.Random(1), "set")[1]
    shots = bank("set")[:4]
    prompt = render_completion(preamble(), shots, item.question, "set")
    text = "".join(piece.text for piece in program_text(preamble(), shots, item))
    assert text == f"{prompt}\n{opening_line('set', 5)}\n{item.program}{EOS}"
    assert (
        extract_program(text[len(prompt) :].removesuffix(EOS), continued=True)
        == f"{opening_line('set', 5)}\n{item.program}"
    )


def test_a_reading_text_is_the_prompt_of_the_pipeline_and_then_the_answer() -> None:
    block = ([["a red star", "two blue circles"], ["a tree"]], "How many stars are there?", "1")
    pieces = reading_text("set", [block])
    assert "".join(piece.text for piece in pieces[:-1]) == render_reading([], block[0], block[1], "set")
    assert pieces[-1].text == f" 1{EOS}"
    assert [piece.learnt for piece in pieces] == [False, False, True]


def test_training_never_draws_an_unseen_wording(pool: ExamplePool) -> None:
    styles = [style for form in pool.items.values() for style in form.values()]
    items = [item for style in styles for family in style.values() for item in family]
    assert items and not any(item.wording.endswith(UNSEEN) for item in items)
    assert draw_item(random.Random(4), "image", unseen=True)[1].wording.endswith(UNSEEN)


def test_other_wordings_ask_for_the_same_things_and_none_is_held_out() -> None:
    rng = random.Random(3)
    for form, kinds in PARAPHRASES.items():
        for name, others in kinds.items():
            kind = TABLE[form][name]
            held_out = {wording.removeprefix(UNSEEN).lower() for wording in kind.wordings if wording.startswith(UNSEEN)}
            assert held_out.isdisjoint(wording.lower() for wording in others), name
            scenes = draw_scenes(rng, form)
            while scenes[0].style != kind.styles[0] or len(scenes) not in kind.pictures:
                scenes = draw_scenes(rng, form)
            slots = next(filter(None, (kind.draw(rng, scenes) for _ in range(200))), None)
            for other in others:
                assert {*_slots(other)} <= {*kind.slots}, (name, other)
                assert slots is None or "{" not in other.format(**vars(slots)), (name, other)


def _slots(wording: str) -> list[str]:
    return [name.split(".")[0] for _, name, _, _ in string.Formatter().parse(wording) if name]


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
    command = [sys.executable, "-m", "codevqa.mini.training.language", "--out", str(tmp_path), "--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(tmp_path)("# Image 1: Is there a star?", return_tensors="pt")
    assert model(input_ids=ids["input_ids"]).logits.isfinite().all()


@pytest.fixture(scope="module")
def pair() -> Pair:
    torch.manual_seed(0)
    pair = Pair().eval()
    with torch.no_grad():  # away from initial values, so that a swapped weight shows
        for parameter in pair.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return pair


def test_every_caption_is_true_and_most_are_not_true_elsewhere() -> None:
    rng, elsewhere = random.Random(11), []
    for _ in range(150):
        scene, other = (sample_scene(rng, max_things=8) for _ in range(2))
        reported = [
            *draw_captions(scene, rng, 3),
            *draw_captions(scene, rng, 2, {0}),
            *(telling(scene, rng, "touch tower") or []),
        ]
        assert [text for text in reported if is_true(scene, text) is not True] == [], scene
        elsewhere += [is_true(other, text) for text in reported]
    assert np.mean([verdict is False for verdict in elsewhere]) > 0.8


def test_texts_tell_the_truth() -> None:
    rng = random.Random(1)
    for _ in range(100):
        scene = sample_scene(rng, max_things=8)
        texts, labels = matching(rng, scene, 4)
        assert sum(labels) == 4
        assert all(keeps_out(text) for text in texts)
        assert all(shows(scene, text) for text, label in zip(texts, labels, strict=True) if label)
        assert shows(scene, draw_query(rng, scene))
        twins = [other for _ in range(3) if (other := twin(rng, scene)) is not None]
        assert draw_contrast(rng, scene, twins).fits(scene)
        statements = vision_texts.statements(rng, scene)
        bare = [re.sub("^a picture of |^there is |^there are ", "", text) for text in statements or ()]
        assert [is_true(scene, text) for text in bare] == [True, False][: len(bare)]
    assert [what.name for what in mentions("is the small red star above the blocks")] == ["small red star", "block"]


def test_relevance_equals_the_package(pair: Pair, tmp_path: Path) -> None:
    rng = random.Random(5)
    scenes = [sample_scene(rng) for _ in range(3)]
    texts = [draw_query(rng, scene) for scene in scenes]
    ids = torch.zeros(3, 20, dtype=torch.long)
    for row, text in enumerate(texts):
        inputs = [6, *text_ids(text)[:18], 3]
        ids[row, : len(inputs)] = torch.tensor(inputs)
    pixels = torch.from_numpy(np.stack([np.asarray(draw_scene(scene)) for scene in scenes]))
    pair.half().float()  # what is exported is in half precision
    mine = pair.relevance(ids, pair.see(pixels))
    export_pair(pair, tmp_path)
    pair.float()
    matcher = BlipMatcher.from_pretrained(str(tmp_path / "matcher"), block=2, average="all")
    requests = [MatchRequest(load_picture(draw_scene(scene)), text) for scene, text in zip(scenes, texts, strict=True)]
    theirs = torch.stack([torch.from_numpy(match.relevance.copy()).flatten() for match in matcher.match(requests)])
    torch.testing.assert_close(mine, theirs, rtol=2e-3, atol=float(theirs.max()) * 2e-3)


@pytest.mark.slow
def test_a_smoke_run_trains_and_saves(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "codevqa.mini.training.vision", "--smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    again = restore(tmp_path)
    assert again.captioner.vision_model is again.matcher.vision_model


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(truth, "_interpreters", truth._interpreters)  # put back what ``be_quick`` exchanges
    vlm_data.be_quick()
    yield


@pytest.mark.usefixtures("quick")
def test_texts_are_true_known_to_the_tokenizer_and_name_nothing_held_out() -> None:
    rng, tokenizer = random.Random(1), vlm_data.build_tokenizer()
    for pictures in (1, 1, 1, 2, 3, 5) * 4:
        scenes = vlm_data.draw_group(rng, pictures)
        texts = vlm_data.texts(rng, scenes)
        assert len({text.kind for text in texts}) > 2
        for text in texts:
            assert "<unk>" not in tokenizer.tokenize(f"{text.asked} {text.answer}")
            named = {(what.color, what.kind) for what in mentions(text.asked.lower())}
            assert not named & HELD_OUT
            if text.kind == "elementary":
                question = text.asked.removesuffix(vlm_data.SUFFIX)
                assert truth.query_truth(scenes[0], question) == text.answer
        assert tokenizer.decode(tokenizer(texts[-1].answer)["input_ids"]) == texts[-1].answer
    statement = "There is a red cup."
    assert vlm_data.is_it_true(statement, "yes") == word_question(statement, "asked", "set")


@pytest.mark.usefixtures("quick")
def test_a_packed_row_gives_what_the_saved_folder_gives_for_each_prompt(tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    torch.manual_seed(0)
    rng, tokenizer = random.Random(3), vlm_data.build_tokenizer()
    trainee = vlm.Trainee(tokenizer).eval()
    with torch.no_grad():  # away from initial values, so that a swapped weight shows
        for parameter in trainee.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    vlm.save_checkpoint(trainee, tokenizer, tmp_path)
    trainee.network.half().float()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 6_000_000
    processor = AutoProcessor.from_pretrained(tmp_path)
    network = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32).eval()
    scenes = vlm_data.draw_group(rng, 3)
    pictures = [draw_scene(scene) for scene in scenes]
    texts = vlm_data.texts(rng, scenes)
    tokens, segments, weights = vlm_data.row_of(tokenizer.backend_tokenizer, texts, vlm_data.text_length(3))
    pixels = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
    ready = torch.from_numpy(tokens).long()[None], torch.from_numpy(segments)[None]
    with torch.no_grad():
        packed = trainee.read(trainee.see(pixels), *ready)[0]
        for number in (1, 2, 3):
            prompt = processor.apply_chat_template(
                [vlm.user_turn(3, texts[number - 1].asked)], add_generation_prompt=True
            )
            inputs = processor(text=[prompt], images=[pictures], return_tensors="pt")
            alone = network(**inputs).logits[0, -1]
            first = int(np.flatnonzero((segments == number) & (weights > 0))[0])
            torch.testing.assert_close(packed[first - 1], alone, rtol=1e-3, atol=2e-3)


WEIGHTS = ROOT / "codevqa" / "mini" / "weights"

FLOORS = {
    "vision": {
        "pointing, plain": 0.95,
        "pointing, box": 0.93,
        "pointing, held-out": 0.93,
        "ITC, which of four near-twins, plain": 0.85,
        "ITC, which of four near-twins, box": 0.90,
        "caption, whole picture, greedy, plain: things named are there": 0.97,
        "caption, patches for a question, plain: things named are there": 0.97,
        "query, how many in a crowd, plain": 0.80,
    },
    "language": {
        "programs, seen wording": 0.95,
        "programs, new color-kind pairs": 0.95,
        "programs, made-up nouns": 0.88,
        "programs, unseen wording": 0.75,
        "reading, query": 0.9,
        "reading, image": 0.8,
        "reading, set": 0.8,
    },
}


def below(figures: dict[str, dict[str, float]], floors: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Figures under their floors; a figure that is not there is under any."""
    values = {name: figures[name]["value"] if name in figures else -1.0 for name in floors}
    return {name: (values[name], floor) for name, floor in floors.items() if values[name] < floor}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", FLOORS)
def test_the_weights_are_as_good_as_their_table_says(what: str, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", "codevqa.mini.training.evaluate", what, "--cases", "25", "--json", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert not below(json.loads(out.read_text()), FLOORS[what])


def test_the_weights_are_small_enough_to_ship() -> None:
    sizes = {path: path.stat().st_size for path in WEIGHTS.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= 42e6
    assert max(sizes.values()) < 16e6
