"""The preset ``paper`` has the checkpoints and the numbers that the authors' code has, read off its configurations."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.presets.assembly import prompt_sets
from codevqa.presets.presets import PRESETS

RELEASE = Path(os.environ.get("CODEVQA_RELEASE", "not set"))
PAPER = PRESETS["paper"]

pytestmark = pytest.mark.skipif(not RELEASE.is_dir(), reason="CODEVQA_RELEASE names no work tree of the authors' code")


def read(path: str) -> Any:
    return yaml.safe_load((RELEASE / "lavis" / path).read_text())


def default(model: type[object], role: str, option: str) -> Any:
    """What a model is loaded with: the preset's option, else the model's own."""
    return PAPER.options[role].get(option, inspect.signature(model).parameters[option].default)


def test_the_checkpoints() -> None:
    model = read("configs/models/pnp-vqa/pnp_vqa_gpt3.yaml")["model"]
    assert PAPER.matcher == f"blip:{model['image_question_matching_model']['finetuned']}"
    assert PAPER.captioner == f"blip:{model['image_captioning_model']['finetuned']}"


@pytest.mark.parametrize(("release", "form"), [("gqa", "image"), ("covr", "set"), ("nlvr2", "set")])
def test_the_numbers(release: str, form: str) -> None:
    config = read(f"projects/pnp-vqa/eval/{release}_eval_gpt3_codevqa.yaml")
    model, run = config["model"], config["run"]
    prompts = prompt_sets(PAPER, release)[form]  # type: ignore[index]
    query = PAPER.settings.query
    assert default(BlipMatcher, "matcher", "block") == run["block_num"]
    for option, name in (("min_length", "cap_min_length"), ("max_length", "cap_max_length"), ("top_k", "top_k")):
        assert default(BlipCaptioner, "captioner", option) == run[name]
    assert default(BlipCaptioner, "captioner", "prompt") == run["prompt"]
    assert query.patches == run["num_patches"]
    assert (query.max_draws or prompts.caption_draws) == run["num_captions"]
    assert query.max_tokens == run["max_len"]
    assert (query.captions or prompts.captions) == model.get("captions_per_image", 7)
    assert model["examples"]["example_selection"] == "embedding"
    assert (query.selection, PAPER.settings.writer.selection) == ("question", "nearest")
    assert prompts.shots == prompts.reading_shots == model["examples"]["num_examples"]
