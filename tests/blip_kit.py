"""Tiny BLIP networks, what is asked of them, and what transformers makes of the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tiny import GRID, noise_picture
from transformers import LogitsProcessor, LogitsProcessorList

from codevqa.core.images import Picture
from codevqa.models.base import CaptionRequest, MatchRequest
from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.blip.sampling import CaptionRules

BLOCK = 1
PICTURES = [noise_picture(seed) for seed in range(5)]
TEXTS = ["a dog", "is there any yellow ball on the large car", "two cats in the park", "red", "the small tree"]
SHAPE = (1 + GRID**2, 32)


def load(name: str, **options: Any) -> BlipMatcher:
    return BlipMatcher.from_pretrained(name, device="cpu", **{"block": BLOCK, **options})


def own_features(matcher: BlipMatcher, pictures: list[Picture]) -> torch.Tensor:
    """What transformers' own processor and vision model say."""
    at = matcher._at
    batch = at.processor(images=[picture.pixels for picture in pictures], return_tensors="pt")
    with torch.no_grad():
        features: torch.Tensor = at.model.vision_model(pixel_values=batch["pixel_values"].to(at.dtype))[0]
    return features


def features_of(matcher: BlipMatcher, pictures: list[Picture]) -> torch.Tensor:
    found = matcher._vision.features(pictures)
    return torch.stack([found[picture.key].float() for picture in pictures])


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def requests_by_layout(layout: str) -> list[MatchRequest]:
    """One text a picture, as many on each, or different numbers; several lengths in each."""
    if layout == "one each":
        return [MatchRequest(picture, text) for picture, text in zip(PICTURES, TEXTS, strict=True)]
    if layout == "even":
        return [MatchRequest(picture, text) for picture in PICTURES[:2] for text in TEXTS]
    return [MatchRequest(PICTURES[index * index % 4], TEXTS[index % 5]) for index in range(7)]


class SeededTopK(LogitsProcessor):  # type: ignore[misc]
    """Samples from the top-k softmax inside greedy decoding, each row that has a seed with the numbers of its seed."""

    def __init__(self, seeds: Sequence[int | None], rules: CaptionRules) -> None:
        self.rows = [row for row, seed in enumerate(seeds) if seed is not None]
        drawn = [np.random.Generator(np.random.PCG64(seed % 2**64)) for seed in seeds if seed is not None]
        self.numbers = [generator.random(rules.steps) for generator in drawn]
        self.rules = rules

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns scores whose only finite entry, in rows with a seed, is the sampled token."""
        step, result = input_ids.shape[1] - len(self.rules.prompt), scores.clone()
        for row, numbers in zip(self.rows, self.numbers, strict=True):
            logits = scores[row].double() / self.rules.temperature
            least = logits.topk(min(self.rules.top_k, len(logits))).values[-1]
            below = logits.masked_fill(logits < least, -torch.inf).softmax(-1).cumsum(-1)
            result[row] = -torch.inf
            result[row, int((below > numbers[step] * below[-1]).int().argmax())] = 0.0
        return result


@torch.inference_mode()
def generate(captioner: BlipCaptioner, requests: Sequence[CaptionRequest]) -> list[list[int]]:
    """The captions' tokens as transformers' ``generate`` writes them, all of equally many patches."""
    rules, decoder = captioner._rules, captioner._at.model.text_decoder
    features = captioner._vision.features([request.picture for request in requests])
    rows = [features[request.picture.key] for request in requests]
    if requests[0].patches is not None:
        chosen = torch.tensor([sorted(request.patches or ()) for request in requests]) + 1
        rows = [row[index] for row, index in zip(rows, chosen, strict=True)]
    prompts = torch.tensor([rules.prompt] * len(requests))
    made = decoder.generate(
        input_ids=prompts,
        attention_mask=torch.ones_like(prompts),
        encoder_hidden_states=torch.stack(rows),
        max_length=rules.max_length,
        min_length=rules.min_length,
        do_sample=False,
        eos_token_id=rules.end,
        pad_token_id=rules.pad,
        logits_processor=LogitsProcessorList([SeededTopK([request.seed for request in requests], rules)]),
    )
    ids: list[list[int]] = made[:, len(rules.prompt) :].tolist()
    # What follows the end pads the batch.
    return [row[: row.index(rules.end) + 1] if rules.end in row else row for row in ids]
