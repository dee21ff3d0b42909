"""Walks a newcomer's first five minutes, and says what each step took and showed.

``python benchmarks/five_minutes.py [FOLDER]``: clones what is committed into an empty folder (a temporary one, which
goes again), installs, asks, opens the page, tries a photograph and a preset without network, evaluates and reports.
Nothing of this environment is used but the interpreter. Beside the seconds stand those of the processor, which a busy
machine changes less. Ends with status 1 where a step shows something else than it should.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOWHERE = "http://127.0.0.1:9"


@dataclass
class Walk:
    """A clone and what was seen in it."""

    home: Path
    failed: list[str] = field(default_factory=list)
    spent: float = 0.0
    """Seconds of the processor in the steps so far."""

    @property
    def environment(self) -> dict[str, str]:
        """Nobody's settings, no models fetched before, and no way to any."""
        ours = ("CODEVQA", "OPENAI", "HF_", "VIRTUAL_ENV", "PYTHON")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**clean, "HF_ENDPOINT": NOWHERE, "HF_HOME": str(self.home / "no-models")}

    def step(self, name: str, command: str, expected: str, status: int = 0) -> None:
        """Runs a line in a shell at the top of the clone, and notes the seconds and the last line it printed."""
        before = time.perf_counter()
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.home, env=self.environment, capture_output=True, text=True, timeout=1200
        )
        said = done.stdout + done.stderr
        self.note(name, time.perf_counter() - before, (done.stdout or done.stderr).strip().splitlines())
        if expected not in said or done.returncode != status:
            self.failed.append(f"{name}: no {expected!r}, or status {done.returncode}:\n{said[-2000:]}")

    def note(self, name: str, seconds: float, lines: Sequence[str]) -> None:
        """Prints a step."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        before, self.spent = self.spent, used.ru_utime + used.ru_stime
        shown = lines[-1][:150] if lines else ""
        print(f"{name:<32}{seconds:7.1f} s {self.spent - before:7.1f} s   {shown}", flush=True)


def walk(home: Path) -> list[str]:
    """Takes every step in a clone; returns what was not as it should be."""
    codevqa, garden = ".venv/bin/codevqa", "examples/pictures/garden.png"
    photograph = ".venv/lib/python3*/site-packages/sklearn/datasets/images/china.jpg"
    one = Walk(home)
    one.step("git clone", f"git clone -q --no-hardlinks {ROOT} . && du -sh --exclude .git . | cut -f1", "M")
    one.step("make demo", "make demo", "Ask yourself")
    one.step("  of this .venv", "du -sh .venv | cut -f1", "")
    one.step("import torch, to compare with", ".venv/bin/python -c 'import torch'", "")
    asked = "Is the red house to the left of the green tree?"
    for name in ("codevqa ask: first", "codevqa ask: again"):
        one.step(name, f"{codevqa} ask {garden} -q '{asked}'", "yes")
    served = "curl -fsS --retry 600 --retry-delay 1 --retry-connrefused -o /dev/null http://127.0.0.1:7867/"
    started = f"{codevqa} demo --port 7867 --no-browser & server=$!"
    one.step("codevqa demo: page", f"{started}; {served}; found=$?; kill $server; wait $server; exit $found", "")
    one.step("a photograph", f"{codevqa} ask {photograph} -q 'What color is the roof?'", "I don't know")
    one.step("--preset base without network", f"{codevqa} ask {garden} -q '{asked}' --preset base", "download base", 2)
    one.step("an option that there is not", f"{codevqa} ask {garden} -q x --set matcher.blok=2", "Did you mean", 2)
    one.step("codevqa config", f"{codevqa} config | grep captions", "captions")
    one.step("codevqa mini-data", f"{codevqa} mini-data DATA && du -sh DATA | cut -f1", "M")
    made = "codevqa eval gqa --data DATA --split testdev_balanced --out runs/gqa --limit 20"
    one.step("codevqa eval, 20 questions", f".venv/bin/{made} && ls runs/gqa | xargs", "")
    one.step("codevqa report", f"{codevqa} report runs/gqa", "report.html")
    return one.failed


def main() -> int:
    """Walks in a folder that goes again, or in the one that is named."""
    with tempfile.TemporaryDirectory(prefix="five-minutes-") as scratch:
        home = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch) / "codevqa"
        home.mkdir(parents=True)
        failed = walk(home)
    for one in failed:
        print(one, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
