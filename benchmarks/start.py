"""How long commands take to start, as ratios to ``import torch`` in processor seconds.

    python benchmarks/start.py [--rounds 3]

All run in turns, each in a process of its own. ``eval`` answers 20 questions of both methods over data drawn first. The
page is usable when it answers; what its processes have computed until then counts. Peak memory is that of ``ask``.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
GARDEN = ROOT / "examples" / "pictures" / "garden.png"
CODEVQA = (sys.executable, "-m", "codevqa")
PORT = 7868
TORCH = "import torch"


def spent(*command: str) -> float:
    """Returns the processor seconds of a command.

    Raises:
        CalledProcessError: it failed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def page() -> float:
    """Returns the processor seconds until the demo's page answers."""
    command = [*CODEVQA, "demo", "--port", str(PORT), "--no-browser"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        process = psutil.Process(server.pid)
        while server.poll() is None:
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=60).read()
                break
            time.sleep(0.05)
        times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
        server.terminate()
    return float(sum(one.user + one.system for one in times))


def peak() -> float:
    """Returns the megabytes that ``ask`` takes at most."""
    script = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, capture_output=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    ask = [*CODEVQA, "ask", str(GARDEN), "-q", "What color is the house?"]
    return float(
        subprocess.run([sys.executable, "-c", script, *ask], capture_output=True, text=True, check=True).stdout
    )


def main() -> None:
    """Measures, and prints seconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "2")
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/data"
        spent(*CODEVQA, "mini-data", data, "--images", "20", "--splits", "test")
        for number in range(rounds):
            found[TORCH].append(spent(sys.executable, "-c", TORCH))
            found["codevqa ask"].append(spent(*CODEVQA, "ask", str(GARDEN), "-q", "What color is the house?"))
            found["codevqa eval --help"].append(spent(*CODEVQA, "eval", "--help"))
            found["demo's page"].append(page())
            run = ("--split", "testdev_balanced", "--limit", "20", "--out", f"{folder}/run{number}")
            found["codevqa eval, 20 questions"].append(spent(*CODEVQA, "eval", "gqa", "--data", data, *run))
    torch = statistics.median(found[TORCH])
    for name, seconds in found.items():
        middle = statistics.median(seconds)
        each = " ".join(f"{one:.2f}" for one in seconds)
        print(f"{name:28} {middle:6.2f} s   {middle / torch:5.2f} times   ({each})")
    print(f"peak memory of ask: {peak():.0f} MB")


if __name__ == "__main__":
    main()
