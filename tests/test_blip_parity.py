"""The BLIP back end gives the numbers that LAVIS gives, through the same calls that the library makes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden" / "lavis-blip"

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"LAVIS's golden results are not at {GOLDEN}")


def test_the_numbers_are_those_of_lavis(tmp_path: Path) -> None:
    script: Any = importlib.import_module("benchmarks.parity")
    parity = script.measure(GOLDEN, tmp_path)
    assert max(parity.itm) < 5e-3 and max(parity.itm[0], parity.itm[2]) < 1e-4
    assert max(parity.itc) < 1e-3
    for maps in (parity.gradcam, parity.relevance):
        assert max(maps) < 1e-2 and max(maps[0], maps[2]) < 1e-5
    assert max(parity.logits) < 1e-2
    assert parity.captions == [True] * 3
    # Too small a difference for the figures above to tell.
    for kind in ("matcher", "captioner"):
        config = json.loads((tmp_path / kind / "config.json").read_text())
        assert config["vision_config"]["layer_norm_eps"] == 1e-6
