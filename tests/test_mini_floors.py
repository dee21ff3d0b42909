"""Measures a sample of the mini models' table again, on the shipped weights, with the very commands that print it.

Seeds are fixed, so a figure moves only with weights, code or rounding. A floor lies under the figure of the full table
by about what a sample of this size may miss it by; a model that got worse falls through.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1800)
ROOT = Path(__file__).resolve().parents[1]
WEIGHTS = ROOT / "codevqa" / "mini" / "weights"

FLOORS = {
    "vision": {
        "pointing, plain": 0.95,
        "pointing, box": 0.93,
        "pointing, held-out": 0.93,
        "ITC, which of four near-twins, plain": 0.85,
        "ITC, which of four near-twins, box": 0.90,
        "caption, whole picture, greedy, plain: things named are there": 0.97,
        "caption, patches for a question, plain: things named are there": 0.97,
        "query, how many in a crowd, plain": 0.80,
    },
    "language": {
        "programs, seen wording": 0.95,
        "programs, new color-kind pairs": 0.95,
        "programs, made-up nouns": 0.88,
        "programs, unseen wording": 0.75,
        "reading, query": 0.9,
        "reading, image": 0.8,
        "reading, set": 0.8,
    },
}


def below(figures: dict[str, dict[str, float]], floors: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Figures under their floors; a figure that is not there is under any."""
    found = {name: figures[name]["value"] if name in figures else -1.0 for name in floors}
    return {name: (found[name], floor) for name, floor in floors.items() if found[name] < floor}


@pytest.mark.slow
@pytest.mark.parametrize("what", FLOORS)
def test_the_weights_are_as_good_as_their_table_says(what: str, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", "training.evaluate", what, "--cases", "25", "--json", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert not below(json.loads(out.read_text()), FLOORS[what])


def test_the_weights_are_small_enough_to_ship() -> None:
    sizes = {path: path.stat().st_size for path in WEIGHTS.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= 42e6
    assert max(sizes.values()) < 16e6
