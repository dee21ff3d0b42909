"""The paper's table by one command: what it takes is said before, and figures stand beside the paper's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_kit import CommandLine

from codevqa.eval.run.store import Store
from codevqa.miniworld.export import write

PARTS = [
    *("--set", "matcher=blip:@mini/weights/matcher", "--set", "matcher.block=2"),
    *("--set", "captioner=blip:@mini/weights/captioner", "--set", "retriever=sentence:@mini/weights/retriever"),
    *("--lm", "transformers:@mini/weights/lm"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "data"
    write(folder, images=4, seed=3, splits=["test"], force=False, progress=lambda line: None)
    return folder


def test_a_plan_says_what_is_missing_and_asks_nothing(data: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    done = codevqa(
        *("reproduce", "gqa", "--data", data, "--plan", "--lm", "openai-completion:some", "--out", tmp_path / "run")
    )
    assert done.returncode == 0, done.stderr
    assert "the paper asked 12,578, of testdev_balanced" in done.stdout
    assert "not downloaded yet: needs the network once  blip:https://" in done.stdout
    assert "about 5.6 GB to fetch" in done.stdout and "hours on one H200" in done.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_table_stands_beside_the_paper_s_and_a_run_goes_on(
    data: Path, tmp_path: Path, codevqa: CommandLine
) -> None:
    words = ["reproduce", "covr", "--data", data, "--out", tmp_path / "run", *PARTS]
    first = codevqa(*words, "--limit", "2")
    assert first.returncode == 0, first.stderr
    done = codevqa(*words, "--limit", "3")
    assert done.returncode == 0, done.stderr
    assert "paper: covr test_paraphrased  7,024      54.11 %" in done.stdout
    assert (tmp_path / "run" / "report.html").is_file()
    with Store.open(tmp_path / "run") as store:
        assert store.counts()[("codevqa", 0)] == 3
        assert store.info.variant == "release" and store.info.preset == "paper"
        assert store.info.parts["matcher"]["spec"] == "blip:@mini/weights/matcher"


def test_pictures_that_are_missing_are_told_before_models_are_loaded(
    data: Path, tmp_path: Path, codevqa: CommandLine
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data / "gqa", copy / "gqa")
    gone = sorted((copy / "gqa" / "images").iterdir())[-3:]
    for picture in gone:
        picture.unlink()
    done = codevqa("reproduce", "gqa", "--data", copy, "--lm", "openai-completion:some", "--out", tmp_path / "run")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "pictures are missing, first" in done.stderr and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [(["vqav2", "--lm", "openai:x"], "no table of 'vqav2'"), (["gqa"], "has no language model of its own")],
)
def test_what_cannot_be_set_up_is_one_line(
    words: list[str], said: str, data: Path, tmp_path: Path, codevqa: CommandLine
) -> None:
    done = codevqa("reproduce", *words, "--data", data, "--out", tmp_path / "run")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and said in done.stderr, done.stderr
