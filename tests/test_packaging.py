"""What is installed is whole: packages are listed and locked, and the wheel holds all files."""

import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from configparser import ConfigParser
from pathlib import Path

import pytest
from cli_kit import ROOT

from codevqa.prompts import prompt_set_names

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
