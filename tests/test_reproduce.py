"""The paper's table by one command: what it takes is said before, and figures stand beside the paper's."""

import json
import re
from pathlib import Path

import pytest
from cli_kit import CommandLine, assert_one_clear_line
from data_files import PHONES, dump, lines, paint

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
    write(folder, images=4, seed=3, splits=["test"])
    return folder


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder laid out as a checkout of the release, with examples of our own."""
    folder = tmp_path / "release"
    folder.mkdir()
    programs = {str(k): {"question": f"Is it {k}?", "program": "answer = query(images[0], 'a?')"} for k in range(8)}
    for end in ("", "_find"):
        (folder / f"covr_programs_and_questions50b{end}.json").write_text(json.dumps(programs))
    reading = [{"question_id": k, "question": "a?", "answer": "no", "captions": [["b"]]} for k in range(9)]
    (folder / "covr_examples50.json").write_text(json.dumps(reading))
    return folder


def test_an_empty_table_is_refused_before_the_run(release: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    dump(tmp_path / "covr" / "test.jsonl", lines(PHONES | {"answer": None}))
    paint(tmp_path / "covr" / "images" / "VG_100K" / "7.jpg")
    words = ["reproduce", "covr", "--data", tmp_path, "--lm", "openai-completion:some", "--out", tmp_path / "run"]
    done = codevqa(*words)
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    assert "No question of covr test_paraphrased has an answer: the table would be empty." in done.stderr
    assert "put test_paraphrased.json of the paper's authors beside it" in done.stderr
    assert "prompts: covr, of this project, not of the release" in done.stderr
    (release / "covr_preamble.py").write_text("query(img, question)")
    told = codevqa(*words, "--release", release, "--set", "detector=zero-shot:some").stderr
    assert "prompts: covr_programs_and_questions50b_find," in told and "the preamble of covr_preamble.py" in told


@pytest.mark.slow
def test_the_table_stands_beside_the_paper_s(data: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    words = ["reproduce", "covr", "--data", data, "--out", tmp_path / "run", *PARTS]
    first = codevqa(*words, "--limit", "2")
    assert first.returncode == 0, first.stderr
    done = codevqa(*words, "--limit", "3")
    assert done.returncode == 0, done.stderr
    assert re.search(r"paper: covr test_paraphrased +7,024 +54\.11 %", done.stdout)
    assert (tmp_path / "run" / "report.html").is_file()
    with Store.open(tmp_path / "run") as store:
        assert store.counts()[("codevqa", 0)] == 3
        assert store.info.variant == "release" and store.info.preset == "paper"
        assert store.info.parts["matcher"]["spec"] == "blip:@mini/weights/matcher"


def test_a_folder_that_is_no_release_is_one_line(data: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    words = ("gqa", "--lm", "openai:x", "--release", "/nowhere", "--data", data, "--out", tmp_path / "run")
    said = "/nowhere has no gqa_programs_and_questions_nocomments3b"
    assert_one_clear_line(codevqa("reproduce", *words), said)
