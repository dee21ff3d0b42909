"""The command line: in this process with engines that stay open, or in a process of its own."""

import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codevqa import CodeVQA, plugins
from codevqa.cli.main import main
from codevqa.presets.configuration import Configuration, configure

ROOT = Path(__file__).resolve().parent.parent
GARDEN = ROOT / "examples" / "pictures" / "garden.png"
SHELF = [str(ROOT / "examples" / "pictures" / f"shelf-{number}.png") for number in (1, 2, 3)]
OURS = ("CODEVQA", "OPENAI")
"""What begins like these in the environment changes what a command does."""


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def environment() -> dict[str, str]:
    """Returns the environment without what would change a command."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)}


class Engines:
    """Engines by their configuration: the weights of each are read once, and it is closed after the last test."""

    def __init__(self) -> None:
        self.build: Callable[..., CodeVQA] = CodeVQA.from_preset
        self.make = CodeVQA.from_configuration
        self.open: dict[str, CodeVQA] = {}

    def __call__(self, name: str = "mini", **options: Any) -> CodeVQA:
        """Stands in for ``CodeVQA.from_preset``."""
        return self._kept(f"{name} {options}", lambda: self.build(name, **options))

    def configured(self, configuration: Configuration) -> CodeVQA:
        """Stands in for ``CodeVQA.from_configuration``.

        An engine with another language model, or with parts of one's own, is not kept.
        """
        plain = configure(configuration.preset)
        if plugins.included or configuration.parts.get("language_model") != plain.parts.get("language_model"):
            return self.make(configuration)
        key = f"{configuration.preset} {{}}" if configuration == plain else repr(configuration)
        return self._kept(key, lambda: self.make(configuration))

    def _kept(self, key: str, make: Callable[[], CodeVQA]) -> CodeVQA:
        if key not in self.open:
            self.open[key] = engine = make()
            engine.close = lambda: None  # type: ignore[method-assign]  # it outlives the command that opened it
        return self.open[key]

    def close(self) -> None:
        for engine in self.open.values():
            CodeVQA.close(engine)


class CommandLine:
    """Runs commands as ``codevqa`` does, from its words to its exit status, in this process."""

    def __init__(self, engines: Engines) -> None:
        self.engines = engines

    def __call__(self, *words: object, stdin: str | bytes = "", engine: Any = None, **variables: str) -> Done:
        """Runs a command, with an engine of one's own in place of the one that it would open."""
        output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
            for name in os.environ.keys() - environment().keys():
                patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["codevqa", *map(str, words)])
            data = stdin if isinstance(stdin, bytes) else stdin.encode()
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
            patch.setattr(
                CodeVQA, "from_configuration", self.engines.configured if engine is None else lambda _: engine
            )
            try:
                main()
                status = 0
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
                written = [stream.detach().getvalue().decode() for stream in (output, errors)]
        return Done(status, *written)


def assert_one_clear_line(done: Done, words: str, status: int = 2) -> None:
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("codevqa: loading", "codevqa: ready"))]
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert len(lines) == 1 and lines[0].startswith("codevqa: "), done.stderr
    assert words in lines[0]
