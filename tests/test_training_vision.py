"""The training of the mini vision models: texts, the fast forward pass, and a few real steps."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

torch = pytest.importorskip("torch")


@pytest.fixture
def pair() -> Any:
    from training.vision_model import Pair

    torch.manual_seed(0)
    made = Pair().eval()
    with torch.no_grad():  # away from initial values, so that a swapped weight shows
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return made


@pytest.fixture
def batch() -> dict[str, Any]:
    from training.vision_data import Maker

    return Maker(3).batch(3)


def test_fast_forward_equals_transformers(pair: Any, batch: dict[str, Any]) -> None:
    matcher, captioner = pair.matcher, pair.captioner
    pixels = (batch["pixels"].permute(0, 3, 1, 2).float() / 255 - pair.shift) / pair.spread
    with torch.no_grad():
        seen = matcher.vision_model(pixel_values=pixels).last_hidden_state
        fast = pair.see(batch["pixels"], torch.float32)
        torch.testing.assert_close(fast, seen, rtol=1e-4, atol=1e-4)

        ids = batch["itm"].flatten(0, 1)
        mask = (ids != 0).long()
        rows = seen.repeat_interleave(batch["itm"].shape[1], 0)
        hidden = matcher.text_encoder(input_ids=ids, attention_mask=mask, encoder_hidden_states=rows).last_hidden_state
        fast_hidden = pair.read(matcher.text_encoder, ids, pair.keys(matcher.text_encoder, seen), torch.float32)
        torch.testing.assert_close(fast_hidden[:, 0], hidden[:, 0], rtol=1e-3, atol=1e-3)

        text = matcher.text_encoder(input_ids=batch["contrast"], attention_mask=(batch["contrast"] != 0).long())
        fast_text = pair.read(matcher.text_encoder, batch["contrast"], None, torch.float32)
        torch.testing.assert_close(fast_text[:, 0], text.last_hidden_state[:, 0], rtol=1e-3, atol=1e-3)

        told = batch["captions"][:, 0]
        logits = captioner.text_decoder(input_ids=told, encoder_hidden_states=seen, use_cache=False).logits
        fast_logits = pair.write(told, pair.keys(captioner.text_decoder.bert, seen), torch.float32)
        torch.testing.assert_close(fast_logits, logits, rtol=1e-3, atol=1e-3)


def test_relevance_equals_the_package(pair: Any, batch: dict[str, Any], tmp_path: Path) -> None:
    from codevqa.images import load_picture
    from codevqa.mini.world import draw, sample_scene
    from codevqa.models.base import CaptionRequest, MatchRequest
    from codevqa.models.blip_captioner import BlipCaptioner
    from codevqa.models.blip_matcher import BlipMatcher
    from training.vision import export
    from training.vision_data import PROMPT, Maker
    from training.vision_texts import query

    rng = random.Random(5)
    scenes = [sample_scene(rng) for _ in range(3)]
    texts = [query(rng, scene) for scene in scenes]
    pictures = [load_picture(draw(scene)) for scene in scenes]
    maker = Maker(0)
    ids = torch.zeros(3, 20, dtype=torch.long)
    pixels = torch.stack([torch.frombuffer(bytearray(draw(scene).tobytes()), dtype=torch.uint8) for scene in scenes])
    for row, text in enumerate(texts):
        maker._put(ids[row].numpy(), 6, text)
    pair.half().float()  # what is exported is in half precision
    seen = pair.see(pixels.view(3, 128, 128, 3), torch.float32).detach()
    mine = pair.relevance(ids, seen)
    export(pair, tmp_path)
    matcher = BlipMatcher.from_pretrained(str(tmp_path / "matcher"), block=2, average="all")
    found = matcher.match([MatchRequest(picture, text) for picture, text in zip(pictures, texts, strict=True)])
    theirs = torch.stack([torch.from_numpy(one.relevance.copy()).flatten() for one in found])
    torch.testing.assert_close(mine, theirs, rtol=2e-3, atol=float(theirs.max()) * 2e-3)
    captioner = BlipCaptioner.from_pretrained(str(tmp_path / "captioner"), prompt=PROMPT, min_length=0, max_length=20)
    assert len(captioner.caption([CaptionRequest(pictures[0], (1, 2, 3))])) == 1


def test_encoder_gives_the_tokenizer_s_ids(tmp_path: Path) -> None:
    from transformers import BertTokenizer

    from training.vision_words import Encoder, write_vocabulary

    write_vocabulary(tmp_path / "vocab.txt")
    tokenizer = BertTokenizer(vocab=str(tmp_path / "vocab.txt"), do_lower_case=True)
    encoder = Encoder()
    for text in ("Is there a red star?", "two large umbrellas, one key", "a zebra's tail", "3 x-rays", "red-and-blue"):
        assert encoder.pieces(text) == tokenizer(text)["input_ids"][1:-1]
        assert 1 not in encoder.pieces(text)


def test_texts_tell_the_truth() -> None:
    from codevqa.mini.truth import is_true
    from codevqa.mini.world import sample_scene
    from training.vision_texts import contrast, in_question, keeps_out, matching, mentions, query, shows, statements

    rng = random.Random(1)
    statement = {True: 0, False: 0}
    for _ in range(300):
        scene = sample_scene(rng, max_things=8)
        texts, labels = matching(rng, scene, 4)
        assert sum(labels) == 4
        assert all(keeps_out(text) for text in texts)
        for text, label in zip(texts, labels, strict=True):
            if label:
                assert shows(scene, text), text
        asked = query(rng, scene)
        assert shows(scene, asked)
        assert in_question(scene, asked)
        assert contrast(rng, scene).fits(scene)
        told = statements(rng, scene)
        if told:
            for text, truth in zip(told, (True, False), strict=True):
                bare = text.removeprefix("a picture of ").removeprefix("there is ").removeprefix("there are ")
                assert is_true(scene, bare) is truth, text
                statement[truth] += 1
    assert min(statement.values()) > 200
    assert [spec.name for spec in mentions("is the small red star above the blocks")] == ["small red star", "block"]


def test_smoke_run_trains_and_saves(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "training.vision", "--smoke", "--limit", "6", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run.json").read_text())["steps"] == 6
    assert (tmp_path / "matcher.safetensors").stat().st_size < 16_000_000
    assert (tmp_path / "captioner.safetensors").stat().st_size < 16_000_000
