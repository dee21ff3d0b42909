"""What somebody sees first is today's: the answer that the README shows, who to cite, the container."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import venv
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from PIL import Image
from server_kit import Server, free_port, wait_for_page

import codevqa
from codevqa import Answer, CodeVQA
from codevqa.core.images import load_pictures
from codevqa.pages import trace_page

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "examples" / "answer.html"
GARDEN = ROOT / "examples" / "pictures" / "garden.png"
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shown() -> Answer:
    data = re.search(r'<script type="application/json" id="cv-answer-data">(.*?)</script>', PAGE.read_text("utf-8"))
    assert data is not None
    return Answer.from_json(data[1])


def test_the_page_is_drawn_otherwise_today(shown: Answer) -> None:
    page = trace_page(shown, load_pictures(GARDEN))
    assert PAGE.read_text(encoding="utf-8") == page, "make screenshot"
    assert len(page) < 400_000


def test_the_question_is_answered_otherwise_today(shown: Answer, mini: CodeVQA) -> None:
    asked = mini.ask(GARDEN, shown.question)
    assert (asked.text, asked.program) == (shown.text, shown.program), "make screenshot"
    assert [str(call) for call in asked.trace.calls] == [str(call) for call in shown.trace.calls]
    assert shown.program is not None and shown.program.source in README


def test_the_picture_of_it_is_missing_or_heavy() -> None:
    path = ROOT / "docs" / "pictures" / "answer.png"
    assert f"]({path.relative_to(ROOT).as_posix()})" in README and f"]({PAGE.relative_to(ROOT).as_posix()})" in README
    with Image.open(path) as picture:
        assert picture.width >= 900
    assert path.stat().st_size < 200_000


def test_the_readme_is_long_or_names_a_page_that_is_not_there() -> None:
    assert README.count("\n") <= 110
    links = re.findall(r"\]\(([^)#:]+)", README)
    assert len(links) > 15
    assert [link for link in links if link != "https" and not (ROOT / link).is_file()] == []


def test_the_citation_is_not_of_this_version_or_not_of_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()  # what its schema wants
    assert cited["version"] == codevqa.__version__
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert (cited["license"], cited["authors"]) == (
        setup["metadata"]["license"],
        [{"name": setup["metadata"]["author"]}],
    )
    paper = cited["preferred-citation"]
    assert {"type", "title", "authors"} <= paper.keys() and len(paper["authors"]) == 9
    assert paper["url"] in README and paper["url"] in setup["metadata"]["project_urls"]


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile with its words."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def test_the_container_copies_what_is_not_there_or_ignored() -> None:
    taken = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if "!" in line}
    copied = {name for kind, words in instructions() if kind == "COPY" for name in words.split()[:-1]}
    assert copied == taken and all((ROOT / name).exists() for name in copied)
    needed = {name for kind, words in instructions() if kind == "RUN" for name in re.findall(r"-r (\S+)", words)}
    assert needed == {f"requirements/{name}.txt" for name in ("torch-cpu", "base", "demo")}
    assert all((ROOT / name).is_file() for name in needed)


def test_the_container_is_root_or_starts_something_that_there_is_not() -> None:
    said: dict[str, Any] = dict(instructions())
    order = [kind for kind, _ in instructions()]
    assert said["USER"] != "root" and order.index("USER") < order.index("CMD")
    command = json.loads(said["CMD"])
    options = (
        (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("## codevqa demo")[2].partition("\n## ")[0]
    )
    assert command[:2] == ["codevqa", "demo"] and said["EXPOSE"] == command[command.index("--port") + 1]
    assert all(word in options for word in command if word.startswith("--"))
    published = next(line for line in README.splitlines() if "docker run" in line)
    assert f"-p 127.0.0.1:{said['EXPOSE']}:{said['EXPOSE']} " in published


@pytest.mark.slow
def test_what_the_container_runs_installs_or_serves_nothing(tmp_path: Path) -> None:
    if "+cpu" not in version("torch"):
        pytest.skip("PyTorch is no build for CPUs here, which the container would fetch")
    home, made = tmp_path / "codevqa", tmp_path / "made"
    venv.create(made, with_pip=True)
    # What is installed already is not fetched. Of a folder named so, .pth files are passed over: codevqa's own, too.
    packages = next(made.glob("lib/*/site-packages"))
    (packages / "here.pth").write_text(str(Path(pytest.__file__).parents[1]))
    for old in packages.glob("setuptools*"):  # Python's own, in the way of the one that is locked
        shutil.rmtree(old)
    clean = {name: one for name, one in os.environ.items() if not name.startswith(("CODEVQA", "PYTHON", "HF_"))}
    environment = {**clean, "PATH": f"{made / 'bin'}{os.pathsep}{clean['PATH']}", "HF_ENDPOINT": "http://127.0.0.1:9"}
    port = free_port()
    for kind, words in instructions():
        if kind == "COPY":
            *names, target = words.split()
            for name in names:
                place = home / target / name if target == "./" else home / target
                place.parent.mkdir(parents=True, exist_ok=True)
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, place, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / name, place)
        elif kind == "RUN" and not words.startswith("useradd"):
            done = subprocess.run(["bash", "-c", words], cwd=home, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        elif kind == "CMD":
            command = [str(port) if word == "7860" else word for word in json.loads(words)]
            with (tmp_path / "output").open("wb") as output:
                process = subprocess.Popen(command, cwd=home, env=environment, stdout=output, stderr=output)
            try:
                wait_for_page(Server(f"http://127.0.0.1:{port}/", process, tmp_path))
            finally:
                process.terminate()
                process.wait(30)
    where = subprocess.run(
        ["python", "-P", "-c", "import codevqa; print(codevqa.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert where.stdout.strip() == str(home / "codevqa" / "__init__.py"), where.stderr
