"""A warm question runs through few files and calls: who reads or mends its course has to know them."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST = {"positions": (58, 2_640), "captions": (68, 3_900)}
"""Files and calls of each question of benchmarks/path.py, at most."""


def test_a_warm_question_takes_a_short_path() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/path.py")], capture_output=True, text=True, timeout=300, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"^(\w+): (\d+) files, \d+ functions, ([\d,]+) calls", done.stdout, re.MULTILINE)
    paths = {name: (int(files), int(calls.replace(",", ""))) for name, files, calls in lines}
    assert paths.keys() == MOST.keys()
    assert [name for name, (files, calls) in paths.items() if files > MOST[name][0] or calls > MOST[name][1]] == [], (
        paths
    )
