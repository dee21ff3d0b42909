"""What README and pages show is so, and what is installed is whole: programs run, packages are listed and locked."""

import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections import Counter
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_kit import GARDEN, ROOT, CommandLine, Engines
from openai_kit import Reply, Serve, turn
from PIL import Image

import codevqa
from codevqa import Answer, CodeVQA, Settings, Writer
from codevqa.cli.main import app
from codevqa.core.images import load_pictures
from codevqa.models.fakes import ScriptedLM
from codevqa.models.protocols import GenerationRequest
from codevqa.pages import trace_page
from codevqa.prompts import load_prompt_set as load_prompts
from codevqa.prompts import prompt_set_names

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = ROOT / "docs" / "examples" / "answer.html"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[str]:
    """The commands in a page's blocks."""
    blocks = "".join(block for kind, block in FENCED.findall(page) if kind in ("", "sh"))
    lines = [re.split("  +#| [<>]", line)[0].strip() for line in blocks.splitlines()]
    return [line for line in lines if re.match(r"(\.venv/bin/)?codevqa ", line)]


COMMANDS = commands(README)
ALL_COMMANDS = sorted(
    {*COMMANDS, *(command for page in (ROOT / "docs").rglob("*.md") for command in commands(page.read_text("utf-8")))}
)
ELSEWHERE = "--preset api"
"""Commands with this need a network: only their words are checked."""


def fenced(page: str) -> str:
    """The first program of a page."""
    return (ROOT / "docs" / page).read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]


def test_the_first_program_prints_what_is_shown(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(codevqa.CodeVQA, "from_preset", engines)
    exec(compile(next(text for kind, text in FENCED.findall(README) if kind == "python"), "README.md", "exec"), {})
    assert capsys.readouterr().out == next(text for kind, text in FENCED.findall(README) if kind == "text")


@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_each_command_has_the_options_that_are_shown(command: str) -> None:
    words = shlex.split(command[command.index("codevqa ") :])
    subcommand = typer.main.get_command(app).commands[words[1]]  # type: ignore[attr-defined]
    with subcommand.make_context(words[1], words[2:]):
        pass


@pytest.mark.slow
def test_the_commands_do_what_they_say(tmp_path: Path, codevqa: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        if ELSEWHERE in command or "codevqa " not in command:
            continue
        piped, _, line = command.rpartition(" | ")
        stdin = shlex.split(piped)[1] if piped else "What color is the house?\n"
        words = [name for word in shlex.split(line) for name in (sorted(map(str, Path().glob(word))) or [word])]
        done = codevqa(*words[1:], stdin=stdin)
        assert done.returncode == 0 and (done.stdout or words[1] == "run"), f"{command}\n{done.stderr}"


def test_make_targets_are_there() -> None:
    assert README.count("\n") <= 110
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


HERO = ROOT / "examples" / "pictures" / "shelf-1.png"


def test_the_answer_page_is_today_s(mini: CodeVQA) -> None:
    page = PAGE.read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="cv-answer-data">(.*?)</script>', page)
    assert data is not None
    shown = Answer.from_json(data[1])
    assert page == trace_page(shown, load_pictures(HERO)), "make screenshot"
    asked = mini.ask(HERO, shown.question)
    assert (asked.text, asked.program) == (shown.text, shown.program), "make screenshot"
    assert [str(call) for call in asked.trace.calls] == [str(call) for call in shown.trace.calls]
    assert shown.program is not None and shown.program.source in README
    path = ROOT / "docs" / "pictures" / "answer.png"
    assert f"]({path.relative_to(ROOT).as_posix()})" in README and f"]({PAGE.relative_to(ROOT).as_posix()})" in README
    with Image.open(path) as picture:
        assert picture.width >= 900
    assert path.stat().st_size < 200_000 and len(page) < 400_000


def test_generated_pages_are_fresh() -> None:
    words = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr


def test_the_files_that_the_page_on_architecture_names_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+/[\w/.]*)`", page))
    assert len(named) > 15
    assert [name for name in named if not (ROOT / "codevqa" / name).exists()] == []


def test_the_primitive_of_the_page_is_called_by_ask(
    mini: CodeVQA, engines: Engines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    exec(compile(fenced("own-primitive.md"), "own-primitive.md", "exec"), {"__name__": "__main__"})
    run_alone, *steps, answer = capsys.readouterr().out.splitlines()
    assert run_alone == answer == "no"
    assert [step.partition("(")[0] for step in steps] == ["brightness"]
    assert "brightness(img: Image) -> float: Returns how bright the image is" in seen[0]
    nearest = seen[0].partition("# Image 1: ")[2].partition("# Image 2: ")[0]
    assert nearest.startswith("Is it dark in the picture?") and 'if brightness(img) < 0.3 else "no"' in nearest


def test_the_page_about_traces_writes_one(engines: Engines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "garden.png").write_bytes(GARDEN.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(codevqa.CodeVQA, "from_preset", engines)
    exec(compile(fenced("trace.md"), "trace.md", "exec"), {})
    page = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
    assert not re.search(r"^\|.*\n\n\|", page, re.M), "a blank line ends a table"
    assert "<title" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_the_page_about_questions_asks_them(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(codevqa.CodeVQA, "from_preset", engines)
    exec(compile(fenced("questions.md"), "questions.md", "exec"), {})
    many, *rest = capsys.readouterr().out.splitlines()
    assert many == "yes red" and sorted(rest[:2]) == ["0 yes", "1 red"]
    assert rest[2].startswith("img = open_image(") and rest[-2:] == ["yes", "red"]
    assert any(line.startswith("query(image 1, ") for line in rest)


def test_the_page_about_presets_asks_a_model_on_a_server(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = 'img = open_image("Image1.jpg")\nanswer = query(img, "Is the dog left of the bench?")'

    def reply(path: str, body: dict[str, Any], number: int) -> Reply:
        assert body["model"] == "NAME"
        return turn("yes" if "image_url" in str(body["messages"]) else f"```python\n{program}\n```")

    monkeypatch.setenv("OPENAI_BASE_URL", serve(reply).url)
    monkeypatch.chdir(tmp_path)
    Image.effect_noise((64, 48), 90).convert("RGB").save("photo.jpg")
    exec(compile(fenced("presets.md"), "presets.md", "exec"), {})
    assert capsys.readouterr().out == f"yes\n{program}\n"


LOCKS = ("torch", "base", "smoke", "demo", "vlm", "test", "release", "site")
SETUP = ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")


def test_every_package_is_listed() -> None:
    tops = ("codevqa", "prompts", "eval", "mini")
    folders = {path.parent for top in tops for path in (ROOT / top).rglob("__init__.py")} - {ROOT / "mini/training"}
    names = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    expected = {name if name.startswith("codevqa") else f"codevqa.{name}" for name in names}
    assert set(SETUP["options"]["packages"].split()) == expected


@pytest.mark.slow
def test_a_wheel_built_through_the_sdist_holds_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    inside = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    for name in prompt_set_names():
        for file in ("prompt.json", "preamble.txt", "examples.jsonl", "reading.jsonl"):
            assert f"codevqa/prompts/{name}/{file}" in inside
    assert {"codevqa/prompts/__init__.py", "codevqa/eval/datasets/__init__.py"} <= inside
    files = [path for path in (ROOT / "mini/weights").rglob("*") if path.is_file()]
    weights = {f"codevqa/{path.relative_to(ROOT).as_posix()}" for path in files}
    assert weights and weights <= inside
    assert "codevqa/py.typed" in inside and not any(name.startswith("examples/") for name in inside)


def entries(name: str) -> dict[str, str]:
    """Each package's lines in a file of the lock."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return {
        entry.partition("==")[0]: entry for entry in re.split(r"^(?=\w)", text, flags=re.MULTILINE) if "==" in entry
    }


def test_each_package_is_locked_once_within_its_bound() -> None:
    counts = Counter(package for name in LOCKS for package in entries(name))
    assert [package for package, times in counts.items() if times > 1] == []
    version = re.compile(r"torch==([\d.]+)")
    assert version.findall(entries("torch")["torch"]) == version.findall(entries("torch-cpu")["torch"])
    wanted = [SETUP["options"]["install_requires"], *SETUP["options.extras_require"].values()]
    locked = {package: entry for name in LOCKS for package, entry in entries(name).items()}
    for line in "\n".join(wanted).split():
        package, least = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<\d+)?", line).groups()  # type: ignore[union-attr]
        here = locked[package].partition("==")[2].split()[0]
        assert [*map(int, here.split("."))] >= [*map(int, least.split("."))], line


SITE = ROOT / "build" / "site"
TAGS = "script|img|iframe|source|object|link(?![^>]*canonical)"
LOADS = rf"""<(?:{TAGS})\b[^>]*\s(?:src|href|data)=["']?((?:https?:)?//[^\s>]+)"""
IMPORTS = r"""url\(\s*["']?(?:https?:)?//"""


@pytest.mark.skipif(not SITE.is_dir(), reason="there is no site: make site")
def test_no_page_loads_anything_from_another_machine() -> None:
    for kind, fewest, pattern in (("html", 20, LOADS), ("css", 0, IMPORTS)):
        files = [file.read_text(encoding="utf-8") for file in SITE.rglob(f"*.{kind}")]
        assert len(files) > fewest and [url for text in files for url in re.findall(pattern, text)] == []
