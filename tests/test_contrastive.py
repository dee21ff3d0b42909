"""CLIP and SigLIP as matchers: scores are the networks' own, whatever else is asked, and pictures are embedded once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import noise_picture, write_blip
from tiny_contrastive import write_clip, write_siglip

from codevqa.core.errors import SetupError
from codevqa.models.base import SimilarityRequest, grounds
from codevqa.models.contrastive import ContrastiveMatcher
from codevqa.presets.assembly import load

WRITERS = {"clip": write_clip, "siglip": write_siglip}
PICTURES = [noise_picture(0), noise_picture(1), noise_picture(2, 60, 30)]
TEXTS = ["a picture of a cat", "A Dog", "cat " * 100, ""]
REQUESTS = [SimilarityRequest(picture, text) for picture in PICTURES for text in TEXTS]


@pytest.fixture(scope="module", params=WRITERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return WRITERS[request.param](tmp_path_factory.mktemp(request.param))


def test_scores_are_the_network_s_own(folder: str) -> None:
    matcher = load("matcher", f"contrastive:{folder}", device="cpu")
    network, siglip = matcher._network, "siglip" in folder
    texts = [TEXTS[0], TEXTS[1].lower()]
    given = matcher._processor(
        images=[one.pixels for one in PICTURES],
        text=texts,
        padding="max_length" if siglip else True,
        max_length=64 if siglip else 16,
        truncation=True,
        padding_side="right",
        return_tensors="pt",
    )
    if siglip:
        # "a▁dog", its end, and padding up to the place that is read.
        assert given["input_ids"][1].tolist() == [5, 4, 8, 19, 11, 1] + [0] * 58
        del given["attention_mask"]
    with torch.inference_mode():
        logits = network(**given).logits_per_image
        bias = network.logit_bias if siglip else 0
        expected = (logits - bias) / network.logit_scale.exp()
    asked = [SimilarityRequest(picture, text) for picture in PICTURES for text in TEXTS[:2]]
    np.testing.assert_allclose(matcher.similarity(asked), expected.ravel().tolist(), atol=1e-5)
    assert expected.std() > 0.01 and not grounds(matcher) and matcher.name == Path(folder).name


def test_a_score_does_not_depend_on_what_else_is_asked_and_a_picture_is_embedded_once(folder: str) -> None:
    matcher = ContrastiveMatcher.from_pretrained(folder, device="cpu")
    matcher.batch = 2
    alone = [ContrastiveMatcher.from_pretrained(folder, device="cpu").similarity([one])[0] for one in REQUESTS]
    seen: list[int] = []
    embed = matcher._network.get_image_features

    def counting(pixel_values: torch.Tensor) -> object:
        seen.append(len(pixel_values))
        return embed(pixel_values=pixel_values)

    matcher._network.get_image_features = counting
    np.testing.assert_allclose(matcher.similarity(REQUESTS), alone, atol=1e-5)
    np.testing.assert_allclose(matcher.similarity(REQUESTS[::-1]), alone[::-1], atol=1e-5)
    assert seen == [2, 1] and len(set(np.round(alone, 4))) > 6


def test_what_does_not_compare_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="'blip' network"):
        ContrastiveMatcher.from_pretrained(write_blip(tmp_path, "captioner"))
