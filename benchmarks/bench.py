"""Measures this tree beside another commit, in turns, and fails where it became slower.

    make bench BASE=COMMIT [LM=FOLDER] [RETRIEVER=FOLDER]

benchmarks/README.md says what the rows are and how to read them. Exit status: 0, 1 where a row is slower, 2 where
the bench could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_rows import EVAL_DATA, KINDS, BenchRow, draw_rows

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("now", "then")
LIMIT = 0.9
CODEVQA = (sys.executable, "-P", "-m", "codevqa")
GARDEN = ROOT / "examples" / "pictures" / "garden.png"
TURNS_OF_STARTS = 3


class BenchError(Exception):
    """The bench cannot run; the message is one line for the user."""


@dataclass(frozen=True)
class Result:
    """What a row measured: a pair of seconds a round, and how many answers of both sides are equal."""

    name: str
    pairs: tuple[tuple[float, float], ...]
    count: int
    """Questions a round; 0 where a whole command was measured."""
    equal: int = 0
    failed: tuple[int, int] = (0, 0)
    torch: float = 0.0
    """Seconds of ``import torch``, where a command was measured."""

    @property
    def ratios(self) -> list[float]:
        """Speed now over speed then, for each round; above 1 is faster."""
        return [then / now for now, then in self.pairs]


def verdict(ratios: Sequence[float]) -> str:
    """Says what the ratios of a row mean: ``slower``, ``unsure``, or nothing.

    A row is slower if the median of its ratios is under 0.9 and no round was as fast as before. Where a round was,
    the noise is larger than the difference, and the row is unsure. So is one of fewer than three rounds.
    """
    if statistics.median(ratios) >= LIMIT:
        return ""
    return "slower" if max(ratios) < 1 and len(ratios) >= 3 else "unsure"


def say(line: str) -> None:
    """Tells the user what is under way."""
    print(line, file=sys.stderr, flush=True)


def git(*arguments: str) -> str:
    """Returns what git prints.

    Raises:
        BenchError: git failed.
    """
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"git {' '.join(arguments)}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()


@contextmanager
def checkout(commit: str, folder: Path) -> Iterator[Path]:
    """Lends a work tree of a commit, and removes it afterwards."""
    try:
        git("worktree", "add", "--detach", str(folder), commit)
        yield folder
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave the work tree behind
        if folder.exists():
            git("worktree", "remove", "--force", str(folder))


class BenchProcess:
    """A process that answers questions over one tree; it lives until the bench ends."""

    def __init__(self, name: str, tree: Path, engines: dict[str, dict[str, str]], log: Path) -> None:
        self.name, self._tree, self._log = name, tree, log
        script = Path(__file__).with_name("bench_side.py")
        with log.open("w") as errors:
            # A session of its own: Ctrl-C reaches the bench alone, which then ends the process with its workers.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(script), json.dumps(engines)],
                env=tree_environment(tree),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Waits until the models are loaded."""
        package = Path(self._reply()["package"])
        if not package.is_relative_to(self._tree):
            raise BenchError(f"The side '{self.name}' imported {package}, which is not in {self._tree}.")

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs a round there."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            end = " | ".join(self._log.read_text().splitlines()[-3:])
            raise BenchError(f"The side '{self.name}' ended: {end}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        """Ends the process, and the workers that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def tree_environment(tree: Path) -> dict[str, str]:
    """Returns the environment in which ``codevqa`` is that of a tree."""
    return {**os.environ, "PYTHONPATH": str(tree)}


def measure_row(row: BenchRow, sides: Sequence[BenchProcess]) -> Result:
    """Warms both sides up, then has them take turns."""
    for side in sides:
        side.ask(row.request(row.warm_up))
    pairs, equal, failed = [], 0, [0, 0]
    for number, questions in enumerate(row.rounds, 1):
        replies = [side.ask(row.request(questions)) for side in sides]
        now, then = (reply["seconds"] for reply in replies)
        pairs.append((now, then))
        equal += sum(map(str.__eq__, *(reply["answers"] for reply in replies)))
        failed = [total + reply["failed"] for total, reply in zip(failed, replies, strict=True)]
        say(f"{row.name}: round {number} of {len(row.rounds)}: {then / now:.2f}")
    return Result(row.name, tuple(pairs), len(row.rounds[0]), equal, (failed[0], failed[1]))


def spent(command: Sequence[str], tree: Path) -> float:
    """Returns the processor seconds of a command.

    Raises:
        BenchError: it failed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=tree_environment(tree), capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise BenchError(f"{' '.join(command)} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def starts(trees: Sequence[Path], work: Path, rounds: int) -> list[Result]:
    """Measures whole commands of both trees, in turns with ``import torch``."""
    commands: dict[str, Callable[[str], tuple[str, ...]]] = {
        "start: ask": lambda _: ("ask", str(GARDEN), "-q", "What color is the house?"),
        "start: eval of 20": lambda run: (
            *("eval", "gqa", "--data", str(work / EVAL_DATA), "--split", "testdev_balanced"),
            *("--limit", "20", "--out", str(work / run)),
        ),
    }
    torch = []
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(rounds):
        torch.append(spent((sys.executable, "-c", "import torch"), trees[0]))
        for name, command in commands.items():
            runs = [
                spent((*CODEVQA, *command(f"run-{side}-{number}")), tree)
                for side, tree in zip(SIDES, trees, strict=True)
            ]
            pairs[name].append((runs[0], runs[1]))
            say(f"{name}: round {number + 1} of {rounds}: {runs[1] / runs[0]:.2f}")
    return [Result(name, tuple(each), 0, torch=statistics.median(torch)) for name, each in pairs.items()]


def result_line(result: Result) -> str:
    """Returns a line of the table."""
    speeds = [statistics.median(side) for side in zip(*result.pairs, strict=True)]
    if result.count:
        columns = "".join(f"{result.count / seconds:9.2f}/s" for seconds in speeds)
        answers = f"{result.equal} of {result.count * len(result.pairs)}"
    else:
        columns = "".join(f"{seconds / result.torch:10.2f}x" for seconds in speeds)
        answers = "-"
    ratios = result.ratios
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    failed = f"  failed: now {result.failed[0]}, then {result.failed[1]}" if any(result.failed) else ""
    middle = statistics.median(ratios)
    return f"{result.name:18}{columns}{middle:8.2f}  {spread:14}{answers:>14}  {verdict(ratios)}{failed}"


def bench(options: argparse.Namespace) -> int:
    """Runs the rows, prints the table, and returns the exit status."""
    try:
        commit = git("rev-parse", "--verify", "--short", f"{options.base}^{{commit}}")
    except BenchError as error:
        raise BenchError(f"No commit named {options.base}.") from error
    parts = {}
    for name, kind, folder in (
        ("language_model", "transformers", options.language_model),
        ("retriever", "sentence", options.retriever),
    ):
        if folder and not (Path(folder) / "config.json").is_file():
            what = name.replace("_", " ")
            raise BenchError(f"No {what} at {folder}: it must be a {kind} folder with a config.json.")
        if folder:
            parts[name] = f"{kind}:{Path(folder).resolve()}"
    names = (*KINDS, "start")
    if unknown := set(options.only) - {*names}:
        raise BenchError(f"No row named {', '.join(sorted(unknown))}. There are: {', '.join(names)}.")
    if git("status", "--porcelain", "--untracked-files=no"):
        say("This tree has changes that are not committed. They are measured as 'now'.")
    say(f"now: {git('rev-parse', '--short', 'HEAD')}, then: {commit}. Drawing the data.")
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="codevqa-bench-")))
        trees = (ROOT, stack.enter_context(checkout(commit, work / "then")))
        plan, engines = draw_rows(work, options.rounds, options.scale, options.only)
        engines["mini"] = parts
        if plan:
            say("Loading the models of both sides.")
            sides = []
            for name, tree in zip(SIDES, trees, strict=True):
                sides.append(BenchProcess(name, tree, engines, work / f"{name}.log"))
                stack.callback(sides[-1].close)
            for side in sides:
                side.wait()
        results = [measure_row(row, sides) for row in plan]
        if not options.only or "start" in options.only:
            results += starts(trees, work, min(options.rounds, TURNS_OF_STARTS))
    print(f"{'row':18}{'now':>11}{'then':>11}{'ratio':>8}  {'range':14}{'equal answers':>14}")
    for result in results:
        print(result_line(result))
    slower = [result.name for result in results if verdict(result.ratios) == "slower"]
    print(f"Slower than {commit}: {', '.join(slower)}." if slower else f"Nothing is slower than {commit}.")
    return 1 if slower else 0


def main() -> int:
    """Parses the arguments and runs the bench; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="commit to compare with")
    parser.add_argument("--language-model", help="folder of a language model in the place of mini's")
    parser.add_argument("--retriever", help="folder of a sentence-transformers model in the place of mini's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the questions of each row")
    parser.add_argument("--only", nargs="+", help="names of rows, and start", default=())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return bench(parser.parse_args())
    except BenchError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        say("Stopped.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
