"""What is public and what is packed is whole, and generated pages are fresh."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import codevqa
from codevqa.prompts import available

ROOT = Path(__file__).resolve().parent.parent


def test_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr


def test_public_names_are_sorted_complete_and_importable() -> None:
    assert list(codevqa.__all__) == sorted(codevqa.__all__)
    assert set(codevqa.__all__) == set(codevqa._HOMES)
    for name in codevqa.__all__:
        assert getattr(codevqa, name).__name__ == name


@pytest.mark.slow
def test_every_package_is_listed_and_a_wheel_built_through_the_sdist_holds_everything(tmp_path: Path) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    folders = {path.parent for top in ("codevqa", "prompts", "eval") for path in (ROOT / top).rglob("__init__.py")}
    names = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    expected = {name if name.startswith("codevqa") else f"codevqa.{name}" for name in names}
    assert listed == expected
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = next(tmp_path.glob("*.whl"))
    inside = set(zipfile.ZipFile(wheel).namelist())
    for name in available():
        for file in ("prompt.json", "preamble.txt", "examples.jsonl", "reading.jsonl"):
            assert f"codevqa/prompts/{name}/{file}" in inside
    files = [path for path in (ROOT / "codevqa/mini/weights").rglob("*") if path.is_file()]
    weights = {path.relative_to(ROOT).as_posix() for path in files}
    assert weights and weights <= inside
    assert "codevqa/py.typed" in inside and not any(name.startswith("examples/") for name in inside)
