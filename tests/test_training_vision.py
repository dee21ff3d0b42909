"""The training of the mini vision models: captions and texts tell the truth, the networks, a few steps."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from codevqa.core.images import load_picture
from codevqa.miniworld.world import draw, sample_scene

ROOT = Path(__file__).resolve().parents[1]

torch = pytest.importorskip("torch")

from codevqa.models.base import MatchRequest  # noqa: E402
from codevqa.models.blip.matcher import BlipMatcher  # noqa: E402
from training import vision_texts  # noqa: E402
from training.captions import captions, is_true, telling  # noqa: E402
from training.vision_model import Pair, export, restore  # noqa: E402
from training.vision_texts import contrast, keeps_out, matching, mentions, query, shows  # noqa: E402
from training.vision_twins import twin  # noqa: E402
from training.vision_words import pieces  # noqa: E402


@pytest.fixture(scope="module")
def pair() -> Pair:
    torch.manual_seed(0)
    made = Pair().eval()
    with torch.no_grad():  # away from initial values, so that a swapped weight shows
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return made


def test_every_caption_is_true_and_most_are_not_true_elsewhere() -> None:
    rng, elsewhere = random.Random(11), []
    for _ in range(150):
        scene, other = (sample_scene(rng, max_things=8) for _ in range(2))
        told = [*captions(scene, rng, 3), *captions(scene, rng, 2, {0}), *(telling(scene, rng, "touch tower") or [])]
        assert [text for text in told if is_true(scene, text) is not True] == [], scene
        elsewhere += [is_true(other, text) for text in told]
    assert np.mean([verdict is False for verdict in elsewhere]) > 0.8


def test_texts_tell_the_truth() -> None:
    rng = random.Random(1)
    for _ in range(100):
        scene = sample_scene(rng, max_things=8)
        texts, labels = matching(rng, scene, 4)
        assert sum(labels) == 4
        assert all(keeps_out(text) for text in texts)
        assert all(shows(scene, text) for text, label in zip(texts, labels, strict=True) if label)
        assert shows(scene, query(rng, scene))
        twins = [other for _ in range(3) if (other := twin(rng, scene)) is not None]
        assert contrast(rng, scene, twins).fits(scene)
        told = vision_texts.statements(rng, scene)
        bare = [re.sub("^a picture of |^there is |^there are ", "", text) for text in told or ()]
        assert [is_true(scene, text) for text in bare] == [True, False][: len(bare)]
    assert [what.name for what in mentions("is the small red star above the blocks")] == ["small red star", "block"]


def test_relevance_equals_the_package(pair: Pair, tmp_path: Path) -> None:
    rng = random.Random(5)
    scenes = [sample_scene(rng) for _ in range(3)]
    texts = [query(rng, scene) for scene in scenes]
    ids = torch.zeros(3, 20, dtype=torch.long)
    for row, text in enumerate(texts):
        given = [6, *pieces(text)[:18], 3]
        ids[row, : len(given)] = torch.tensor(given)
    pixels = torch.from_numpy(np.stack([np.asarray(draw(scene)) for scene in scenes]))
    pair.half().float()  # what is exported is in half precision
    mine = pair.relevance(ids, pair.see(pixels))
    export(pair, tmp_path)
    pair.float()
    matcher = BlipMatcher.from_pretrained(str(tmp_path / "matcher"), block=2, average="all")
    requests = [MatchRequest(load_picture(draw(scene)), text) for scene, text in zip(scenes, texts, strict=True)]
    theirs = torch.stack([torch.from_numpy(one.relevance.copy()).flatten() for one in matcher.match(requests)])
    torch.testing.assert_close(mine, theirs, rtol=2e-3, atol=float(theirs.max()) * 2e-3)


@pytest.mark.slow
def test_a_smoke_run_trains_and_saves(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "training.vision", "--smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    again = restore(tmp_path)
    assert again.captioner.vision_model is again.matcher.vision_model
