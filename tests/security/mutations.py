"""Takes guards out of the code that meets hostile input, one at a time, and says where no test fails.

    python tests/security/mutations.py [WORDS of a file or a function ...]

``defences.toml`` names files, or single functions of them, and the tests that guard them. A mutant lacks one guard: a
condition under which a function ends early, an exception, a call made for its effect, or a decision. All of it happens
in a copy of the checkout. First the tests run on the whole code: there they must pass.
"""

import ast
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("defences.toml")
SECONDS = 90
"""One test at most: without its limit, a program may run for ever."""


@dataclass(frozen=True)
class Mutant:
    """One file without one guard."""

    file: str
    function: str
    start: int
    """First line of the function."""
    number: int
    """Which of the function's guards is missing."""
    lacks: str
    tests: tuple[str, ...]

    def source(self, whole: str) -> str:
        """Returns the file's source without the guard."""
        tree = ast.parse(whole)
        match list(_guards(tree, self.start))[self.number]:
            case ast.If() as node:
                node.test = ast.Constant(False)
            case ast.Return(ast.expr() as value) as node:
                node.value = ast.Call(ast.Name("bool", ast.Load()), [ast.UnaryOp(ast.Not(), value)], [])
            case gone:
                for holder in ast.walk(tree):
                    for _, held in ast.iter_fields(holder):
                        if isinstance(held, list) and gone in held:
                            held[held.index(gone)] = ast.Pass()
        return ast.unparse(ast.fix_missing_locations(tree))

    def __str__(self) -> str:
        return f"{self.file} {self.function}: {self.lacks}"


def mutants(table: Path = TABLE, root: Path = ROOT) -> Iterator[Mutant]:
    """Yields every mutant that the table asks for.

    Raises:
        ValueError: a file lacks a function that the table names.
    """
    for target in tomllib.loads(table.read_text("utf-8"))["target"]:
        for name in target["code"]:
            file, _, wanted = name.partition("::")
            tree = ast.parse((root / file).read_text("utf-8"))
            functions = [candidate for candidate in _functions(tree) if not wanted or candidate[0] == wanted]
            if not functions:
                raise ValueError(f"{file} has no function {wanted}. Mend {table.name}.")
            for function, start in functions:
                for number, node in enumerate(_guards(tree, start)):
                    lacks = f"{type(node).__name__} {node.lineno} {ast.unparse(node).splitlines()[0]:.60}"
                    yield Mutant(file, function, start, number, lacks, tuple(target["tests"]))


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node.lineno
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


def _guards(tree: ast.AST, start: int) -> Iterator[ast.stmt]:
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno == start)
    alone = set()
    for node in ast.walk(function):
        match node:
            case ast.If(body=[*_, ast.Raise() | ast.Return() | ast.Continue() | ast.Break() as last], orelse=[]):
                alone.add(last)
                yield node
            case ast.Expr(ast.Call() | ast.Await(ast.Call())):
                yield node
            case ast.Raise(exc=ast.expr()) if node not in alone:
                yield node
            case ast.Return(ast.Compare() | ast.BoolOp() | ast.UnaryOp(ast.Not())) if node not in alone:
                yield node


def run(chosen: Sequence[Mutant], root: Path = ROOT) -> Iterator[tuple[Mutant, bool, str]]:
    """Yields each mutant, whether a test failed, and which.

    Raises:
        ValueError: the tests fail on the whole code.
    """
    with tempfile.TemporaryDirectory(prefix="codevqa-mutations-") as folder:
        listing = ["git", "ls-files", "-coz", "--exclude-standard"]  # new files included
        listed = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=True)
        tree = Path(folder)
        for name in filter(None, listed.stdout.split("\0")):
            if (root / name).exists():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, tree / name, follow_symlinks=False)
        failed, output = _fails(tree, list(dict.fromkeys(test for mutant in chosen for test in mutant.tests)))
        if failed:
            raise ValueError(f"The tests fail on the whole code: {output}")
        for mutant in chosen:
            whole = (tree / mutant.file).read_text("utf-8")
            (tree / mutant.file).write_text(mutant.source(whole), "utf-8")
            yield mutant, *_fails(tree, mutant.tests)
            (tree / mutant.file).write_text(whole, "utf-8")


def _fails(tree: Path, tests: Sequence[str]) -> tuple[bool, str]:
    """Runs tests in a copy; returns whether one fails, and what failed in one line."""
    words = ["-x", "-p", "no:cacheprovider", "--tb=short", f"--timeout={SECONDS}", "--timeout-method=thread"]
    command = [sys.executable, "-m", "pytest", *words, *(f"tests/{test}" for test in tests)]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        # Without a guard, tests may leave processes behind, which would keep a pipe open.
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        status = process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        lines = output.read().splitlines()
    return status != 0, next((line for line in lines if line.startswith(("FAILED ", "+++"))), " ".join(lines[-3:]))


def main(words: Sequence[str]) -> int:
    """Prints each mutant's fate; returns 1 where one survives."""
    chosen = [mutant for mutant in mutants() if not words or any(word in str(mutant) for word in words)]
    caught = 0
    for mutant, failed, output in run(chosen):
        caught += failed
        print(f"{'caught  ' if failed else 'SURVIVED'} {mutant}  [{output:.120}]", flush=True)
    print(f"{caught} of {len(chosen)} mutants are caught.")
    return 0 if chosen and caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
