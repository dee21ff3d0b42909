"""Measures a sample of the mini models' table again, on the shipped weights, with the very commands that print it.

Seeds are fixed, so a figure moves only with weights, code or rounding. A floor lies under the figure of the full table
by about what a sample of this size may miss it by; a model that got worse falls through.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1800)
ROOT = Path(__file__).resolve().parents[1]
WEIGHTS = ROOT / "codevqa" / "mini" / "weights"

VISION = {
    "pointing, block 2, all, plain: phrase": 0.95,
    "pointing, block 2, all, box: phrase": 0.93,
    "pointing, block 2, all, held-out: phrase": 0.93,
    "ITC, which of four, plain": 0.95,
    "ITC, which of four near-twins, plain": 0.90,
    "ITC, which of four near-twins, box": 0.90,
    "ITM, relation, things exchanged: not matching": 0.93,
    "caption, whole picture, greedy, plain: things named are there": 0.97,
    "8 captions for a question, there, plain: things named are there": 0.97,
    "8 captions for a question, count in a crowd: their commonest number is right": 0.90,
}
PROGRAMS = {"seen wording": 0.95, "new color-kind pairs": 0.95, "made-up nouns": 0.88, "unseen wording": 0.75}
READING = {"query, captions that tell": 0.9, "image, captions that tell": 0.8, "set, captions that tell": 0.8}


def measured(module: str, out: Path, *options: str) -> dict[str, object]:
    """Runs one of the commands of the table and returns the figures it wrote."""
    run = subprocess.run(
        [sys.executable, "-m", f"training.{module}", *options, "--json", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    figures: dict[str, object] = json.loads(out.read_text())
    return figures


def below(figures: dict[str, float], floors: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Figures under their floors; a figure that is not there is under any."""
    return {name: (figures.get(name, -1.0), floor) for name, floor in floors.items() if figures.get(name, -1.0) < floor}


@pytest.mark.slow
def test_vision(tmp_path: Path) -> None:
    figures = measured("evaluate_vision", tmp_path / "vision.json", "--scenes", "25", "--device", "cpu")
    found = {row["what"]: row["share"] for row in figures["rows"]}  # type: ignore[attr-defined]
    assert not below(found, VISION)


@pytest.mark.slow
def test_programs_and_reading(tmp_path: Path) -> None:
    figures = measured(
        "evaluate_language",
        tmp_path / "language.json",
        str(WEIGHTS / "lm"),
        *("--retriever", str(WEIGHTS / "retriever"), "--questions", "30"),
    )
    programs = {name: one["right"]["value"] for name, one in figures["programs"].items()}  # type: ignore[attr-defined]
    reading = {name: one["value"] for name, one in figures["reading"].items() if one}  # type: ignore[attr-defined]
    assert not below(programs, PROGRAMS)
    assert not below(reading, READING)


@pytest.mark.slow
def test_counting_through_captions(tmp_path: Path) -> None:
    figures = measured("evaluate_counts", tmp_path / "counts.json", "--scenes", "8")
    assert figures["both, 0 to 5"]["value"] >= 0.8  # type: ignore[index]


def test_a_figure_that_fell_or_is_missing_is_noticed() -> None:
    assert below({"a": 0.9, "b": 0.5}, {"a": 0.9, "b": 0.6, "c": 0.1}) == {"b": (0.5, 0.6), "c": (-1.0, 0.1)}


def test_the_weights_are_small_enough_to_ship() -> None:
    sizes = {path: path.stat().st_size for path in WEIGHTS.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= 40e6
    assert max(sizes.values()) < 16e6
