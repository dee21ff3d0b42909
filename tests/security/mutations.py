"""Takes the project's defences out, one at a time, and says where no test fails.

    python tests/security/mutations.py [WORDS of a layer or a defence ...]

``defences.toml`` names for each defence the text that is it, what stands there once it is out, and the tests that must
then fail. All of it happens in copies of the checkout, two at a time; the checkout itself is only read. First the tests
run where nothing is missing: there they must pass.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("defences.toml")
AT_ONCE = 2
SECONDS = 90
"""One test at most: without its limit, a program may go on for ever."""

Outcome = Literal["caught", "survived", "broken"]


@dataclass(frozen=True)
class Defence:
    """One defence, and how it is taken out."""

    layer: str
    what: str
    file: str
    text: str
    """Stands in the file once."""
    instead: str
    tests: tuple[str, ...]
    """Where it is missing, at least one of them fails; paths are those in ``tests/``."""

    def taken_out(self, source: str) -> str:
        """Returns the file without the defence.

        Raises:
            ValueError: the file has changed, and the table has not.
        """
        if (found := source.count(self.text)) != 1:
            raise ValueError(f"{self.what}: {self.file} has its text {found} times, not once")
        return source.replace(self.text, self.instead)


@dataclass(frozen=True)
class Result:
    """What came of taking one out."""

    defence: Defence
    outcome: Outcome
    seconds: float
    said: str
    """Which test failed first, and why, in one line."""


def defences(table: Path = TABLE) -> tuple[Defence, ...]:
    """Reads the table."""
    layers = tomllib.loads(table.read_text("utf-8"))
    return tuple(
        Defence(layer, **{**row, "tests": tuple(row["tests"])}) for layer, rows in layers.items() for row in rows
    )


def run(chosen: Sequence[Defence], root: Path = ROOT) -> Iterator[Result]:
    """Takes each of them out of a copy of the tree and yields what came of it, as they end.

    Raises:
        ValueError: a text is not where the table says, or the tests fail where nothing is missing.
    """
    for one in chosen:
        one.taken_out((root / one.file).read_text("utf-8"))
    with _copies(root) as trees, ThreadPoolExecutor(AT_ONCE) as pool:
        named = list(dict.fromkeys(test for one in chosen for test in one.tests))
        for status, said in pool.map(lambda share: _whole(trees, share), _shares(named)):
            if status != 0:
                raise ValueError(f"The tests fail where nothing is missing: {said}")
        yield from pool.map(lambda one: _without(trees, one), chosen)


@contextmanager
def _copies(root: Path) -> Iterator[SimpleQueue[Path]]:
    """Copies of what git has of a tree, new files included."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True
    )
    trees: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="codevqa-mutations-") as folder:
        for number in range(AT_ONCE):
            tree = Path(folder) / str(number)
            for name in filter(None, listed.stdout.split("\0")):
                if (root / name).exists():
                    (tree / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(root / name, tree / name, follow_symlinks=False)
            trees.put(tree)
        yield trees


def _shares(named: Sequence[str]) -> list[Sequence[str]]:
    """Returns the tests in as many parts as run at once, each file's together."""
    size = -(-len(named) // AT_ONCE)
    return [share for place in range(AT_ONCE) if (share := sorted(named)[place * size : (place + 1) * size])]


def _whole(trees: SimpleQueue[Path], tests: Sequence[str]) -> tuple[int, str]:
    tree = trees.get()
    try:
        return _pytest(tree, tests)
    finally:
        trees.put(tree)


def _without(trees: SimpleQueue[Path], one: Defence) -> Result:
    began = time.monotonic()
    tree = trees.get()
    file = tree / one.file
    whole = file.read_text("utf-8")
    try:
        file.write_text(one.taken_out(whole), "utf-8")
        status, said = _pytest(tree, one.tests)
    finally:
        file.write_text(whole, "utf-8")
        trees.put(tree)
    outcomes: dict[int, Outcome] = {0: "survived", 1: "caught"}
    return Result(one, outcomes.get(status, "broken"), time.monotonic() - began, said)


def _pytest(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Runs tests in a copy; returns the exit status, and which failed and why in one line."""
    words = ["-x", "-p", "no:cacheprovider", "--tb=short", f"--timeout={SECONDS}", "--timeout-method=thread"]
    command = [sys.executable, "-m", "pytest", *words, *(f"tests/{test}" for test in tests)]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        # Where a defence is out, tests may leave processes behind, which would keep a pipe open.
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        status = process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        lines = output.read().splitlines()
    return status, next((line for line in lines if line.startswith(("FAILED ", "+++"))), " ".join(lines[-3:]))


def main(words: Sequence[str]) -> int:
    """Prints the table; returns 1 where a defence can be taken out and no test fails."""
    known = defences()
    chosen = [one for one in known if not words or any(word in f"{one.layer}: {one.what}" for word in words)]
    results = []
    for result in run(chosen):
        results.append(result)
        one = result.defence
        print(f"{result.outcome:8} {result.seconds:5.1f} s  {one.layer}: {one.what}  [{result.said:.160}]", flush=True)
    kinds = [result.outcome for result in results]
    print(f"{kinds.count('caught')} of {len(kinds)} defences cannot be taken out without a test that fails.")
    return 0 if results and set(kinds) == {"caught"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
