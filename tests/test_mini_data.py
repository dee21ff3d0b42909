"""Data sets of the drawn world: the official formats, programs that reach their answers, even odds, clean errors."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine
from data_files import seen

from codevqa.core.errors import SetupError
from codevqa.eval.datasets import open_dataset
from codevqa.miniworld import export
from codevqa.miniworld.export import write

IMAGES = 16


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "mini"
    write(out, images=IMAGES)
    return out


def test_the_files_of_a_seed_stay_what_they_are(data: Path) -> None:
    # Figures of the mini models are of these questions, so a change of any of them is a change of the figures.
    whole = hashlib.sha256()
    for path in sorted(data.rglob("*.json*")):
        whole.update(path.relative_to(data).as_posix().encode() + path.read_bytes())
    assert whole.hexdigest()[:16] == "4d08f5c32c8a982b"


def test_every_data_set_opens_with_its_pictures(data: Path) -> None:
    for name, split in (("gqa", "val_balanced"), ("covr", "val"), ("nlvr2", "dev")):
        examples = list(open_dataset(name, data, split))
        assert len(examples) >= IMAGES and len({one.id for one in examples}) == len(examples)
        assert all(one.gold and len(seen(one)) == len(one.images) > 0 for one in examples)


def test_only_what_is_asked_for_is_written(tmp_path: Path, codevqa: CommandLine) -> None:
    out = tmp_path / "few"
    done = codevqa("mini-data", out, "--limit", 4, "--only", "nlvr2", "--splits", "val")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["4"] and not (out / "gqa").exists()
    assert "No data set gqo." in codevqa("mini-data", tmp_path / "none", "--only", "gqo").stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_seed_gives_the_same_bytes_whatever_else_is_written(tmp_path: Path) -> None:
    for name, seed, splits, hashes in (("a", 3, "val", "1"), ("b", 3, "val,test", "2"), ("c", 4, "val", "1")):
        words = ["mini-data", str(tmp_path / name), "--images", "8", "--seed", str(seed), "--splits", splits]
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        subprocess.run([sys.executable, "-m", "codevqa", *words], check=True, capture_output=True, env=environment)
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert len(a) > 20
    assert {name for name in a if a[name] != b[name]} == {export.ABOUT}
    assert sum(a[name] == c.get(name) for name in a) < len(a) * 0.1


def test_larger_sets_have_files_of_their_own(tmp_path: Path, codevqa: CommandLine) -> None:
    """They open as the others do, and share no picture with them."""
    done = codevqa("mini-data", str(tmp_path / "out"), "--images", "4", "--splits", "val", "--sets", "7,12")
    assert "covr/val_12.jsonl" in done.stdout
    pictures: list[str] = []
    for split, size in (("val_7", 7), ("val_12", 12)):
        examples = list(open_dataset("covr", tmp_path / "out", split))
        assert [len(one.images) for one in examples] == [size] * 4
        pictures += [picture.name for one in examples for picture in one.images]
    assert len({*pictures}) == len(pictures)


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fails(*words: Any) -> None:
        raise failure

    monkeypatch.setitem(export.WRITERS, "nlvr2", fails)
    with pytest.raises(SetupError if isinstance(failure, OSError) else KeyboardInterrupt):
        write(tmp_path / "out", images=4, splits=["val"])
    assert list(tmp_path.iterdir()) == []
