"""What README and pages show is so: commands, programs, files and outputs."""

import csv
import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_kit import ROOT, CommandLine, Engines
from docs_kit import (
    OURS,
    Block,
    Reader,
    answer_for_photographs,
    blocks,
    draw_photographs,
    inline_commands,
    read,
    run_python,
)
from hub_kit import know_only, serve_hub
from openai_kit import Serve
from PIL import Image

sys.path.insert(0, str(ROOT / "benchmarks"))
from doctor import Fault, serving

from codevqa import Answer, CodeVQA, CodeVQAError, Settings, Writer, plugins
from codevqa.cli.main import app
from codevqa.core.images import load_pictures
from codevqa.models.fakes import ScriptedLM
from codevqa.models.protocols import GenerationRequest
from codevqa.pages import trace_page
from codevqa.prompts import load_prompt_set as load_prompts

README = read("README.md")
PAGE = ROOT / "docs" / "examples" / "answer.html"
GENERATED = ("docs/cli.md", "docs/primitives.md")
TEXTS = ["README.md", *sorted({f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - {*GENERATED})]
REPORTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "reports").glob("*.md"))
BLOCKS = {block.name: block for page in TEXTS for block in blocks(page)}
NOT_RUN = {
    "docs/architecture.md 1": "a diagram",
    "docs/demo.md 2": "tests/test_demo_api.py runs it, beside a demo",
}
"""Blocks that are not run here, with the reason: a page and which of its blocks it is. All others are."""
SLOW = ("make", "pip", *(f"codevqa {name}" for name in ("demo", "mini-data", "eval", "report", "diff", "export")))
"""Lines that begin so are run by a slow test, which runs their whole page."""
PHOTOGRAPHS = ("photos/", "summer/", "winter/", "NAME", "my.toml")
"""Commands with these need a model of photographs: a server on this machine stands for it."""
SAYS = {
    "make demo": "6 questions, ",
    "codevqa ask examples/pictures/shelf": "2\n",
    "codevqa download base --dry-run": "5.4 GB to download:",
    "codevqa report runs/gqa": "accuracy [95 %]",
    'codevqa table photos/ --ask "dog: Is there a dog?" --label 40': "Say the truth of 9 random",
    'codevqa table photos/ --ask "dog: Is there a dog?" --labels': "dog = yes: 9 of 9 pictures, 9 to 9",
    "codevqa doctor": ": passed",
}
"""What a page says, beside a line that begins so or in other words, that the line prints."""
LEFT_OPEN = re.compile(r"\.\.\.|(?<!--model) [A-Z]{2,}|codevqa [a-z-]+$| --[a-z-]+$")
"""Commands within the text that leave something to the reader. Only their options are checked."""
PRESET = 'preset = "api"\nlanguage_model = "openai:NAME"\neyes = "openai:NAME"\n'


def commands(lines: list[str]) -> set[str]:
    """What follows ``codevqa`` in lines of a shell, without what goes into it and comes out of it."""
    found = [OURS.fullmatch(line.rpartition(" | ")[2]) for line in lines]
    return {re.split(" [<>]", command[2])[0] for command in found if command}


def subcommand(name: str) -> Any:
    return typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]


TYPED = {
    command
    for page in TEXTS + REPORTS
    for block in blocks(page)
    for command in commands(block.lines + [line for line, _ in block.sessions])
}


@pytest.mark.parametrize("command", sorted(TYPED))
def test_each_command_has_the_options_that_are_shown(command: str) -> None:
    words = shlex.split(command)
    with subcommand(words[0]).make_context(words[0], words[1:]):
        pass


@pytest.mark.parametrize("page", TEXTS + REPORTS)
def test_each_name_within_the_text_is_there(page: str) -> None:
    """Commands have their options, files of benchmarks are there and have theirs, and what is imported exists."""
    for command in commands(inline_commands(page)):
        name, *words = shlex.split(command)
        known = {option for parameter in subcommand(name).params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, command
    text = " ".join(read(page).split())
    for name, words in re.findall(r"`python (benchmarks/\w+\.py)([^`]*)`", text):
        source = (ROOT / name).read_text("utf-8")
        assert [word for word in re.findall(r" (--[\w-]+)", words) if f'"{word}"' not in source] == [], name
    for line in re.findall(r"`(from [\w.]+ import [^`]*)`", text):
        exec(line, {})


@pytest.fixture
def prompts(engines: Engines, mini: CodeVQA, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the language model of ``base`` is sent. All else of ``base`` is real, but for its models."""
    sent: list[str] = []

    def write(request: GenerationRequest) -> str:
        sent.append(str(request.prompt))
        return 'answer = "yes" if brightness(img) < 0.3 else "no"'

    def open_preset(name: str, **options: Any) -> CodeVQA:
        if name != "base":
            return engines.build(name, **options) if options else engines(name)
        writer = Writer(ScriptedLM(write), load_prompts("gqa"), mini.writer.retriever)
        return CodeVQA(writer, mini.models, Settings(workers=1), **options)

    monkeypatch.setattr(CodeVQA, "from_preset", open_preset)
    return sent


def forget_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes plugins be looked for anew, as each process does."""
    importlib.invalidate_caches()
    for name in ("my", "brightness"):  # what docs/own-primitive.md includes and installs
        sys.modules.pop(name, None)
    for name, value in {"_parts": {}, "_looked": False, "included": []}.items():
        monkeypatch.setattr(plugins, name, value)


@pytest.fixture
def typist(
    tmp_path: Path, codevqa: CommandLine, prompts: list[str], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    """Somebody in a folder with the examples, some pictures and a program, and with a server for photographs."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for picture in (ROOT / "examples" / "pictures").iterdir():
        shutil.copy(picture, tmp_path)
    for name in ("photos", "summer", "winter"):
        draw_photographs(tmp_path / name)
    shutil.copy(tmp_path / "photos" / "0.png", tmp_path / "photo.jpg")
    (tmp_path / "program.py").write_text('answer = query(open_image("Image1.jpg"), "Is there a house?")')
    (tmp_path / ".venv").symlink_to(sys.prefix)

    monkeypatch.chdir(tmp_path)
    forget_plugins(monkeypatch)
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    monkeypatch.syspath_prepend(str(tmp_path / "pip"))
    (preset := tmp_path / "photographs.toml").write_text(PRESET)
    photographs = {"OPENAI_BASE_URL": serve(answer_for_photographs).url, "CODEVQA_PRESET": str(preset)}
    monkeypatch.setenv("OPENAI_BASE_URL", photographs["OPENAI_BASE_URL"])  # for Python: commands do not see it
    with ExitStack() as stack:
        cards = {"OPENAI_BASE_URL": stack.enter_context(serving(Fault(""))).url}

        def variables(line: str) -> dict[str, str]:
            if line.startswith("codevqa doctor"):
                return cards
            return photographs if any(word in line for word in PHOTOGRAPHS) else {}

        yield Reader(tmp_path, codevqa, variables, steps_between(tmp_path, codevqa, stack, monkeypatch), SAYS)


def steps_between(
    folder: Path, codevqa: CommandLine, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Callable[[], object]]:
    """What a page leaves to its reader to do before a line that begins so."""

    def shorten() -> None:
        for path in folder.glob("DATA/**/testdev_balanced_questions.json"):
            kept = dict([*json.loads(path.read_text()).items()][:8])
            path.write_text(json.dumps(kept))

    def label() -> None:
        rows = list(csv.DictReader((folder / "rows.csv").read_text("utf-8").splitlines()))
        with (folder / "rows.csv").open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows({**row, "dog_truth": "yes"} for row in rows)

    def serve_table() -> None:
        hub_tables = pytest.importorskip("test_hub_tables", reason="needs codevqa[hub]")
        row = {"IMAGE": hub_tables.cell(), "QUESTION": "Is there a house?", "ANSWER": "no"}
        files = {"data/test-00000-of-00001.parquet": hub_tables.table(row)}
        hub = stack.enter_context(serve_hub(folder / "hub", {"datasets/OWNER/NAME": files}))
        know_only(hub, monkeypatch)

    def draw_covr() -> None:
        codevqa("mini-data", "drawn", "--only", "covr", "--images", "4")
        (folder / "drawn" / "covr").rename(folder / "covr")

    return {
        "codevqa eval brightness/": lambda: forget_plugins(monkeypatch),
        "codevqa eval hf://": serve_table,
        "codevqa eval gqa": shorten,
        "codevqa report runs/gqa runs/other": lambda: shutil.copytree(folder / "runs/gqa", folder / "runs/other"),
        'codevqa table photos/ --ask "dog: Is there a dog?" --labels': label,
        "codevqa eval covr": draw_covr,
        "codevqa run --include": lambda: (folder / "my.py").write_text(BLOCKS["docs/own-primitive.md 1"].text),
    }


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS.values()}))
def test_what_a_page_shows_is_what_comes(page: str, typist: Reader) -> None:
    for block in blocks(page):
        if block.name not in NOT_RUN:
            typist.follow(block, leave_out=SLOW)
    for line in inline_commands(page):
        if not line.startswith(SLOW) and not LEFT_OPEN.search(line):
            typist.run(line)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS.values() if block.has(SLOW)}))
def test_what_a_page_shows_is_what_comes_of_its_slow_lines_too(page: str, typist: Reader) -> None:
    for block in blocks(page):
        if block.name not in NOT_RUN:
            typist.follow(block)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("yaml", "a: 1"),
        ("", " A ─► B"),
        ("sh", "codevqa frobnicate"),
        ("sh", "codevqa ask garden.png -q 'Is there a red house?' --trces out.html"),
        ("sh", "codevqa ask elsewhere.png -q 'Is there a red house?'"),
        ("text", "$ codevqa ask garden.png -q 'Is there a red house?' --quiet\nno\n"),
        ("text", "what no program printed\n"),
        ("python", "print(1 + 1)  # in all: 3"),
        ("python", "CodeVQA.from_preset('mini')"),
        ("toml", "[query]\ncaption = 3"),
    ],
)
def test_a_block_that_is_new_and_false_fails(kind: str, text: str, typist: Reader) -> None:
    with pytest.raises((AssertionError, NameError, CodeVQAError)):
        typist.follow(Block("docs/new.md", 1, kind, text, ""))


def test_every_block_that_is_not_run_is_there() -> None:
    assert [name for name in NOT_RUN if name not in BLOCKS] == []


def test_make_targets_are_there() -> None:
    assert README.count("\n") <= 100
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


@pytest.mark.usefixtures("typist")
def test_the_primitive_of_the_page_is_called_by_ask(prompts: list[str]) -> None:
    run_alone, *steps, answer = run_python(BLOCKS["docs/own-primitive.md 1"]).splitlines()
    assert run_alone == answer == "no"
    assert [step.partition("(")[0] for step in steps] == ["brightness"]
    assert "brightness(img: Image) -> float: Returns how bright the image is" in prompts[0]
    nearest = prompts[0].partition("# Image 1: ")[2].partition("# Image 2: ")[0]
    assert nearest.startswith("Is it dark in the picture?") and 'if brightness(img) < 0.3 else "no"' in nearest


def test_no_blank_line_ends_a_table() -> None:
    pages = [
        path.name
        for path in (ROOT / "docs").glob("**/*.md")
        if re.search(r"^\|.*\n\n\|", path.read_text("utf-8"), re.M)
    ]
    assert pages == []


@pytest.mark.usefixtures("typist")
def test_the_page_about_questions_asks_them() -> None:
    many, *rest = run_python(BLOCKS["docs/questions.md 2"]).splitlines()
    assert many == "yes red" and sorted(rest[:2]) == ["0 yes", "1 red"]
    assert rest[2].startswith("img = open_image(") and rest[-2:] == ["yes", "red"]
    assert any(line.startswith("query(image 1, ") for line in rest)


SITE = ROOT / "build" / "site"
TAGS = "script|img|iframe|source|object|link(?![^>]*canonical)"
LOADS = rf"""<(?:{TAGS})\b[^>]*\s(?:src|href|data)=["']?((?:https?:)?//[^\s>]+)"""
IMPORTS = r"""url\(\s*["']?(?:https?:)?//"""


@pytest.mark.skipif(not SITE.is_dir(), reason="there is no site: make site")
def test_no_page_loads_anything_from_another_machine() -> None:
    for kind, fewest, pattern in (("html", 20, LOADS), ("css", 0, IMPORTS)):
        files = [file.read_text(encoding="utf-8") for file in SITE.rglob(f"*.{kind}")]
        assert len(files) > fewest and [url for text in files for url in re.findall(pattern, text)] == []
