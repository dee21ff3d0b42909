"""The locked requirements: every file with its hashes, each package once, no index, and what is built to go with it."""

from __future__ import annotations

import re
from collections import Counter
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("torch", "base", "smoke", "demo", "test", "release", "site")


def entries(name: str) -> dict[str, str]:
    """Each package's lines in a file of the lock."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return {one.partition("==")[0]: one for one in re.split(r"^(?=\w)", text, flags=re.MULTILINE) if "==" in one}


@pytest.mark.parametrize("name", [*NAMES, "torch-cpu"])
def test_something_is_installed_without_a_hash(name: str) -> None:
    locked = entries(name)
    assert locked and all("--hash=sha256:" in one for one in locked.values())
    assert "://" not in "".join(locked.values())


def test_a_package_is_locked_twice_or_torch_differs_between_builds() -> None:
    found = Counter(package for name in NAMES for package in entries(name))
    assert [package for package, times in found.items() if times > 1] == []
    version = re.compile(r"torch==([\d.]+)")
    assert version.findall(entries("torch")["torch"]) == version.findall(entries("torch-cpu")["torch"])


def test_a_requirement_is_not_locked_or_below_its_bound() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    wanted = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    locked = {package: one for name in NAMES for package, one in entries(name).items()}
    for line in "\n".join(wanted).split():
        package, least = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<\d+)?", line).groups()  # type: ignore[union-attr]
        version = locked[package].partition("==")[2].split()[0]
        assert [*map(int, version.split("."))] >= [*map(int, least.split("."))], line


def test_a_package_that_is_installed_has_no_licence_in_the_list() -> None:
    text = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    listed = {re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(r"^\| ([\w.-]+) +\| +\w", text, re.MULTILINE)}
    everywhere = {name for part in ("base", "demo") for name, one in entries(part).items() if ";" not in one}
    assert everywhere - {"setuptools"} <= listed
