"""What is installed: the package with its two mapped folders, locked requirements, the container."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from configparser import ConfigParser
from pathlib import Path

import pytest

import codevqa
from codevqa.prompts import available

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("torch", "base", "smoke", "demo", "test", "release", "site")
SETUP = ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
USE = """
import sys
sys.modules.pop("__editable___codevqa_0_1_0_finder", None)  # this checkout's own
sys.meta_path[:] = [one for one in sys.meta_path if "__editable__" not in getattr(one, "__module__", "")]
sys.path.insert(0, sys.argv[1])
import __editable___codevqa_0_1_0_finder as made
made.install()
import codevqa.eval.datasets, codevqa.prompts
print(codevqa.eval.datasets.__file__, *codevqa.prompts.available())
"""


# -- the package -------------------------------------------------------------------------------------------------------


def test_importing_the_package_warns_of_nothing_and_loads_nothing_heavy() -> None:
    code = "import sys, codevqa; sys.exit(bool({'torch', 'PIL', 'numpy', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0


def test_public_names_are_sorted_and_importable() -> None:
    assert list(codevqa.__all__) == sorted(codevqa.__all__)
    for name in codevqa.__all__:
        assert getattr(codevqa, name).__name__ == name


def test_every_package_is_listed() -> None:
    folders = {path.parent for top in ("codevqa", "prompts", "eval") for path in (ROOT / top).rglob("__init__.py")}
    names = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    expected = {name if name.startswith("codevqa") else f"codevqa.{name}" for name in names}
    assert set(SETUP["options"]["packages"].split()) == expected


@pytest.mark.slow
def test_a_wheel_built_through_the_sdist_holds_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"}, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    inside = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    for name in available():
        for file in ("prompt.json", "preamble.txt", "examples.jsonl", "reading.jsonl"):
            assert f"codevqa/prompts/{name}/{file}" in inside
    files = [path for path in (ROOT / "codevqa/mini/weights").rglob("*") if path.is_file()]
    weights = {path.relative_to(ROOT).as_posix() for path in files}
    assert weights and weights <= inside
    assert "codevqa/py.typed" in inside and not any(name.startswith("examples/") for name in inside)


@pytest.mark.slow
def test_a_checkout_without_symbolic_links_can_be_installed_as_the_container_does(tmp_path: Path) -> None:
    # As Git on Windows checks links out: files that hold the place they point to.
    checkout = tmp_path / "checkout"
    skipped = shutil.ignore_patterns("__pycache__", "weights")
    for name in copied():
        place = checkout / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, symlinks=True, ignore=skipped)
        else:
            shutil.copy(ROOT / name, place)
    for name in ("eval", "prompts"):
        link = checkout / "codevqa" / name
        link.unlink()
        link.write_text(f"../{name}")
    command = [sys.executable, "-W", "ignore", "-c", BUILD, str(tmp_path)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(site)
    used = subprocess.run([sys.executable, "-P", "-c", USE, str(site)], capture_output=True, text=True, cwd=tmp_path)
    assert used.returncode == 0, used.stderr
    assert used.stdout.split() == [str(checkout / "eval/datasets/__init__.py"), *available()]


# -- locked requirements -----------------------------------------------------------------------------------------------


def entries(name: str) -> dict[str, str]:
    """Each package's lines in a file of the lock."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return {one.partition("==")[0]: one for one in re.split(r"^(?=\w)", text, flags=re.MULTILINE) if "==" in one}


@pytest.mark.parametrize("name", [*LOCKS, "torch-cpu"])
def test_everything_is_locked_with_a_hash(name: str) -> None:
    locked = entries(name)
    assert locked and all("--hash=sha256:" in one for one in locked.values())
    assert "://" not in "".join(locked.values())


def test_each_package_is_locked_once_within_its_bound() -> None:
    found = Counter(package for name in LOCKS for package in entries(name))
    assert [package for package, times in found.items() if times > 1] == []
    version = re.compile(r"torch==([\d.]+)")
    assert version.findall(entries("torch")["torch"]) == version.findall(entries("torch-cpu")["torch"])
    wanted = [SETUP["options"]["install_requires"], *SETUP["options.extras_require"].values()]
    locked = {package: one for name in LOCKS for package, one in entries(name).items()}
    for line in "\n".join(wanted).split():
        package, least = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<\d+)?", line).groups()  # type: ignore[union-attr]
        here = locked[package].partition("==")[2].split()[0]
        assert [*map(int, here.split("."))] >= [*map(int, least.split("."))], line


# -- the container -----------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile with its words."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def copied() -> set[str]:
    """What the Dockerfile copies."""
    return {name for kind, words in instructions() if kind == "COPY" for name in words.split()[:-1]}


def test_the_container_copies_what_is_there_and_not_ignored() -> None:
    taken = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if "!" in line}
    assert copied() == taken and all((ROOT / name).exists() for name in taken)
    needed = {name for kind, words in instructions() if kind == "RUN" for name in re.findall(r"-r (\S+)", words)}
    assert needed == {f"requirements/{name}.txt" for name in ("torch-cpu", "base", "demo")}
    assert all((ROOT / name).is_file() for name in needed)
