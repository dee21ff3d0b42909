"""The BLIP back end gives the numbers that LAVIS gives, through the same calls that the library makes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Parity: TypeAlias = Any  # the dataclass of the script below

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden" / "lavis-blip"
SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "parity.py"

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"LAVIS's golden results are not at {GOLDEN}")


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("converted")


@pytest.fixture(scope="module")
def parity(converted: Path) -> Parity:
    spec = importlib.util.spec_from_file_location("codevqa_parity", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script  # dataclasses look their module up
    spec.loader.exec_module(script)
    return script.measure(GOLDEN, converted)


def test_itm_logits(parity: Parity) -> None:
    assert max(parity.itm) < 5e-3
    assert max(parity.itm[0], parity.itm[2]) < 1e-4


def test_itc_scores(parity: Parity) -> None:
    assert max(parity.itc) < 1e-3


def test_gradcam_of_every_token(parity: Parity) -> None:
    assert max(parity.gradcam) < 1e-2
    assert max(parity.gradcam[0], parity.gradcam[2]) < 1e-5


def test_relevance_is_the_mean_over_words(parity: Parity) -> None:
    assert max(parity.relevance) < 1e-2
    assert max(parity.relevance[0], parity.relevance[2]) < 1e-5


def test_caption_logits_over_chosen_patches(parity: Parity) -> None:
    assert max(parity.logits) < 1e-2


def test_greedy_captions_are_the_same(parity: Parity) -> None:
    assert parity.captions == [True] * 3


def test_converted_vision_towers_divide_as_lavis_does(parity: Parity, converted: Path) -> None:
    # Too small a difference for the figures above to tell.
    for kind in ("matcher", "captioner"):
        config = json.loads((converted / kind / "config.json").read_text())
        assert config["vision_config"]["layer_norm_eps"] == 1e-6
