"""What the README shows is so: its programs run, and its commands run as printed from the folder of the checkout."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_kit import ROOT, Engines, environment

import codevqa
from codevqa import CodeVQA, Settings, Writer
from codevqa.cli.main import app
from codevqa.models.base import GenerationRequest
from codevqa.models.fakes import ScriptedLM
from codevqa.prompts import load as load_prompts

README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PROGRAMS = [text for kind, text in FENCED if kind == "python"]
OWN_PRIMITIVE = (ROOT / "docs" / "own-primitive.md").read_text(encoding="utf-8")
BLOCKS = [
    [line.split("  #")[0].strip() for line in block.splitlines()]
    for kind, block in FENCED
    if not kind and "codevqa " in block
]
COMMANDS = [line for block in BLOCKS for line in block if "codevqa " in line]
ELSEWHERE = ("--preset large",)
"""Commands with these need a network, models or files that the package does not have: only their words are checked."""


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a line in a shell where the environment of ``make`` is on."""
    return subprocess.run(
        ["bash", "-c", f". .venv/bin/activate\n{command}"],
        cwd=folder,
        env={**environment(), "PYTHONPATH": str(ROOT)},
        input="What color is the house?\n",
        capture_output=True,
        text=True,
        timeout=1500,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder that looks like the checkout, where commands leave what they write."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def test_the_first_program_prints_something_else(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = next(text for kind, text in FENCED if kind == "text")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(codevqa.CodeVQA, "from_preset", engines)
    exec(compile(PROGRAMS[0], "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == printed


def test_the_primitive_is_not_shown_with_its_example_or_not_called_by_ask(
    mini: CodeVQA, engines: Engines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = OWN_PRIMITIVE.partition("```python\n")[2].partition("```")[0]
    seen: list[str] = []

    def write(request: GenerationRequest) -> str:
        seen.append(str(request.prompt))
        return 'answer = "yes" if brightness(img) < 0.3 else "no"'

    def open_preset(name: str, **options: Any) -> CodeVQA:
        if name == "mini":
            return engines.build(name, **options)
        # The models of base are not here. All but its language model is real: retrieval, prompt, check, sandbox, call.
        writer = Writer(ScriptedLM(write), load_prompts("gqa"), mini.writer.retriever)
        return CodeVQA(writer, mini.models, Settings(workers=1), **options)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(CodeVQA, "from_preset", open_preset)
    exec(compile(source, "own-primitive.md", "exec"), {"__name__": "__main__"})
    run_alone, *steps, answer = capsys.readouterr().out.splitlines()
    assert run_alone == answer == "no"
    assert [step.partition("(")[0] for step in steps] == ["brightness"]
    (prompt,) = seen
    assert "brightness(img: Image) -> float: Returns how bright the image is" in prompt
    nearest = prompt.partition("# Image 1: ")[2].partition("# Image 2: ")[0]
    assert nearest.startswith("Is it dark in the picture?") and 'if brightness(img) < 0.3 else "no"' in nearest


def test_the_page_of_docs_trace_is_written(engines: Engines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    shutil.copy(ROOT / "examples" / "pictures" / "garden.png", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(codevqa.CodeVQA, "from_preset", engines)
    exec(compile(source, "trace.md", "exec"), {"CodeVQA": codevqa.CodeVQA})
    assert "<title" in (tmp_path / "out.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_an_option_that_there_is_not(command: str) -> None:
    words = [word for word in shlex.split(command[command.index("codevqa ") :]) if not word.startswith("<")]
    group = typer.main.get_command(app)
    subcommand = group.commands[words[1]]  # type: ignore[attr-defined]
    with subcommand.make_context(words[1], words[2:]):
        pass


def test_a_make_target_that_there_is_not() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_command_fails_as_printed(block: list[str], checkout: Path) -> None:
    for command in block:
        if any(words in command for words in ELSEWHERE):
            continue
        done = run(command, checkout)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout or not command.startswith("codevqa ask"), command


@pytest.mark.slow
def test_the_command_that_make_demo_ends_with_fails_as_printed() -> None:
    words = [sys.executable, str(ROOT / "examples" / "demo.py")]
    demo = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=500)
    assert demo.returncode == 0, demo.stderr
    command = demo.stdout.splitlines()[-1]
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment(), input="Is it day?\n", capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout, f"{command}\n{done.stderr}"
