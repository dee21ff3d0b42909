"""Cold start, warm latency and memory of a preset, each measured in a process of its own.

``python benchmarks/latency.py [PRESET]`` (``make bench``). Times depend on the machine; targets for ``mini`` on two
cores: first answer within 10 s of a cold start, later ones within 1.5 s, under 1.5 GB resident; help within 0.3 s.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CHILD = """
import time, json, sys, resource
started = time.perf_counter()
from pathlib import Path
from codevqa import CodeVQA
folder = Path(sys.argv[2])
asked = [json.loads(line) for line in (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
def ask(vqa, one):
    before = time.perf_counter()
    vqa.ask([folder / name for name in one["images"]], one["question"])
    return time.perf_counter() - before
with CodeVQA.from_preset(sys.argv[1]) as vqa:
    loaded = time.perf_counter() - started
    ask(vqa, asked[0])
    first = time.perf_counter() - started
    later = [ask(vqa, one) for one in asked[1:]]  # each once: what was asked before is remembered
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"loaded": loaded, "first": first, "later": later, "peak_mb": peak}))
"""


def best_of(command: list[str], times: int = 5) -> float:
    """Returns the shortest wall time of a command, in seconds."""
    measured = []
    for _ in range(times):
        before = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        measured.append(time.perf_counter() - before)
    return min(measured)


def main() -> None:
    """Measures and prints one table."""
    preset = sys.argv[1] if len(sys.argv) > 1 else "mini"
    helped = best_of([str(Path(sys.executable).parent / "codevqa"), "--help"])
    command = [sys.executable, "-c", CHILD, preset, str(ROOT / "examples")]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(3)]
    later = sorted(seconds for run in runs for seconds in run["later"])
    print(f"preset {preset}, {len(runs)} cold starts, {len(later)} later questions")
    print(f"codevqa --help                 {helped:.2f} s (best of 5)")
    print(f"models loaded after            {statistics.median(run['loaded'] for run in runs):.2f} s")
    print(f"first answer after             {statistics.median(run['first'] for run in runs):.2f} s")
    print(f"later answers: median, longest {statistics.median(later):.2f} s, {later[-1]:.2f} s")
    print(f"peak resident memory           {max(run['peak_mb'] for run in runs):.0f} MB")


if __name__ == "__main__":
    main()
