"""A tiny BLIP matcher, what is asked of it, and how far its features are from those of transformers."""

from __future__ import annotations

from typing import Any

import torch
from tiny import GRID, noise_picture

from codevqa.core.images import Picture
from codevqa.models.base import MatchRequest
from codevqa.models.blip import BlipMatcher

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
