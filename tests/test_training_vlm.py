"""The training of the tiny vision-language model: its texts tell the truth, and a packed row is the prompts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from codevqa.core.wording import put
from codevqa.miniworld import truth
from codevqa.miniworld.world import HELD_OUT, draw

torch = pytest.importorskip("torch")

from training import vlm, vlm_data  # noqa: E402
from training.vision_texts import mentions  # noqa: E402


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(truth, "_interpreters", truth._interpreters)  # put back what ``be_quick`` exchanges
    vlm_data.be_quick()
    yield


def test_texts_are_true_known_to_the_tokenizer_and_name_nothing_held_out() -> None:
    rng, tokenizer = random.Random(1), vlm_data.build_tokenizer()
    for pictures in (1, 1, 1, 2, 3, 5) * 4:
        scenes = vlm_data.draw_group(rng, pictures)
        made = vlm_data.texts(rng, scenes)
        assert len({text.kind for text in made}) > 2
        for text in made:
            assert "<unk>" not in tokenizer.tokenize(f"{text.asked} {text.answer}")
            named = {(what.color, what.kind) for what in mentions(text.asked.lower())}
            assert not named & HELD_OUT
            if text.kind == "elementary":
                question = text.asked.removesuffix(vlm_data.SUFFIX)
                assert truth.query(scenes[0], question) == text.answer
        assert tokenizer.decode(tokenizer(made[-1].answer)["input_ids"]) == made[-1].answer
    statement = "There is a red cup."
    assert vlm_data.is_it_true(statement, "yes") == put(statement, "asked", "set")


def test_a_packed_row_gives_what_the_saved_folder_gives_for_each_prompt(tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    torch.manual_seed(0)
    rng, tokenizer = random.Random(3), vlm_data.build_tokenizer()
    trainee = vlm.Trainee(tokenizer).eval()
    with torch.no_grad():  # away from initial values, so that a swapped weight shows
        for parameter in trainee.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    vlm.save(trainee, tokenizer, tmp_path)
    trainee.network.half().float()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 6_000_000
    processor = AutoProcessor.from_pretrained(tmp_path)
    network = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32).eval()
    scenes = vlm_data.draw_group(rng, 3)
    pictures = [draw(scene) for scene in scenes]
    made = vlm_data.texts(rng, scenes)
    tokens, segments, weights = vlm_data.row_of(tokenizer.backend_tokenizer, made, vlm_data.text_length(3))
    pixels = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
    ready = torch.from_numpy(tokens).long()[None], torch.from_numpy(segments)[None]
    with torch.no_grad():
        packed = trainee.read(trainee.see(pixels), *ready)[0]
        for number in (1, 2, 3):
            prompt = processor.apply_chat_template([vlm.turn(3, made[number - 1].asked)], add_generation_prompt=True)
            given = processor(text=[prompt], images=[pictures], return_tensors="pt")
            alone = network(**given).logits[0, -1]
            first = int(np.flatnonzero((segments == number) & (weights > 0))[0])
            torch.testing.assert_close(packed[first - 1], alone, rtol=1e-3, atol=2e-3)
