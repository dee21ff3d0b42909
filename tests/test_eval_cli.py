"""``codevqa eval`` and ``codevqa export`` as a user meets them, and what the exported files hold."""

import dataclasses
import json
import os
import re
import signal
from pathlib import Path

import pytest
from cli_kit import CommandLine, assert_one_clear_line
from data_files import PHONES, dump, lines, paint
from eval_kit import Numbered

from codevqa.cli.terminal import Bar
from codevqa.core.errors import InputError, SetupError, UnknownNameError
from codevqa.eval.report.exports import FORMATS, export_run
from codevqa.eval.run.choices import engine_for, prompts_for
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.run.session import Status
from codevqa.eval.run.store import Store
from codevqa.eval.task import Row
from codevqa.presets.configuration import Layer, configure


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, codevqa: CommandLine) -> Path:
    folder = tmp_path_factory.mktemp("data") / "mini"
    done = codevqa("mini-data", folder, "--images", 6, "--splits", "val,test")
    assert done.returncode == 0, done.stderr
    return folder


def test_from_data_to_table_and_back_again(data: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    words = ("eval", "gqa", "--data", data, "--split", "val_balanced", "--out", tmp_path / "run", "--method", "both")
    done = codevqa(*words, "--limit", 4)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mini-GQA (drawn) val_balanced: 4 questions; exact match\n")
    assert "4 of 4 questions (100.0%)" in done.stderr
    with Store.open(tmp_path / "run") as store:
        before = [row for key in store.counts() for row in store.rows(*key)]
        assert store.counts() == {("codevqa", 0): 4, ("pnpvqa", 0): 4}
        assert store.info.prompts == "mini" and store.info.models["matcher"] == "@mini/weights/matcher"
        assert all(row.prediction and row.tokens > 20 for row in before)

    again = codevqa(*words, "--limit", 4)
    assert again.returncode == 2 and again.stdout == ""
    assert again.stderr.splitlines()[-1].startswith("codevqa: ") and "--resume" in again.stderr
    other = codevqa(*words, "--limit", 4, "--seed", 3, "--resume")
    assert other.returncode == 2 and "settings.seed was 0, now 3" in other.stderr.splitlines()[-1]

    more = codevqa(*words, "--limit", 6, "--resume", "--workers", 2)
    assert more.returncode == 0 and "4 done before" in more.stderr, more.stderr
    with Store.open(tmp_path / "run") as store:
        after = [row for key in store.counts() for row in store.rows(*key)]
    assert len(after) == 12 and all(row in after for row in before)  # the old rows are the same, times included


@pytest.mark.parametrize("more", [(), ("--record",)])
def test_a_server_that_is_not_there_is_told_before_models_are_loaded(
    data: Path, tmp_path: Path, codevqa: CommandLine, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.setattr("codevqa.presets.assembly.quiet_libraries", None)  # called before the first model is loaded
    words = ("eval", "gqa", "--data", data, "--split", "val_balanced", "--out", tmp_path / "run", "--lm", "openai:some")
    done = codevqa(*words, *more, OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert done.returncode == 1 and "Cannot reach the model server at" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_recorded_and_replayed_without_models(data: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    words = ("eval", "gqa", "--data", data, "--split", "val_balanced", "--limit", 2, "--quiet")
    recorded = codevqa(*words, "--out", tmp_path / "a", "--record")
    replayed = codevqa(*words, "--out", tmp_path / "b", "--replay", tmp_path / "a", CODEVQA_LANGUAGE_MODEL="openai:x")
    assert recorded.returncode == replayed.returncode == 0, replayed.stderr
    both = []
    for name in "ab":
        with Store.open(tmp_path / name) as store:
            rows = [row for key in store.counts() for row in store.rows(*key)]
            both.append([(row.id, row.method, row.prediction, row.program, row.tokens) for row in rows])
            assert store.info.preset == "mini"
    assert both[0] == both[1] and len(both[0]) == 4


@pytest.mark.usefixtures("interruptible")
def test_interrupted_from_the_keyboard_it_tells_how_to_go_on(
    data: Path, tmp_path: Path, codevqa: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(bar: Bar, status: Status) -> None:
        if status.examples:
            os.kill(os.getpid(), signal.SIGINT)

    words = ["eval", "gqa", "--data", data, "--split", "val_balanced", "--out", tmp_path / "run", "--workers", 1]
    with monkeypatch.context() as patch:
        patch.setattr(Bar, "__call__", interrupt)
        done = codevqa(*words)
    assert done.returncode == 130 and done.stdout == "", done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("codevqa: stopped; every finished row is kept. ") and last.endswith("--workers 1 --resume")
    with Store.open(tmp_path / "run") as store:
        kept = len(store)
        assert 0 < kept < 30
    done = codevqa(*words, "--limit", kept, "--resume")
    assert done.returncode == 0 and "done before" in done.stderr, done.stderr


def test_the_data_set_s_prompts_give_way_to_a_preset_s_own_and_to_what_is_asked(tmp_path: Path) -> None:
    data = Numbered(tmp_path, 1)
    assert prompts_for(configure("mini"), data) == ()
    for data.prompts in ("nlvr2", "nlvr", "vqav2", "okvqa"):
        (layer,) = prompts_for(configure("base"), data)
        assert layer.values == {"prompts": data.prompts}
    assert prompts_for(configure("base", [Layer("--prompts", {"prompts": "covr"})]), data) == ()


def test_a_replay_excludes_models(tmp_path: Path) -> None:
    for options in ({"record": tmp_path}, {"layers": [Layer("--set", {"matcher.dtype": "float32"})]}):
        with pytest.raises(InputError, match="A replay asks no model"):
            engine_for(Numbered(tmp_path, 1), replay=tmp_path, **options)


def test_progress_is_plain_lines_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with Bar(every=0) as bar:
        for count in (1, 2):
            bar(Status(total=2, examples=count, fallbacks=3 * count, unanswered=count - 1, seconds=1))
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].endswith(" left, 3 fallbacks") and lines[1].endswith(", 6 fallbacks, 1 unanswered"), lines
    assert [text[:14] for text in lines] == ["codevqa: 1 of ", "codevqa: 2 of ", "codevqa: 2 of "]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    examples = list(Numbered(tmp_path, 3))
    store = Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa", "pnpvqa"), seeds=(0, 1)))
    for place, (example, prediction) in enumerate(zip(examples, ("yes", "No", "a, b"), strict=True)):
        error = "ProgramTypeError" if place == 1 else None
        rows = [Row(example.id, "codevqa", 0, prediction, place == 1, error, "", "answer = 1", {}, 0.5, 9)]
        rows += [Row(example.id, "pnpvqa", repeat, f"r{repeat}") for repeat in (0, 1)]
        store.add(example, rows, place=place)
    return store


def test_official_prediction_files(store: Store, tmp_path: Path) -> None:
    with store:
        assert export_run(store, "gqa", tmp_path / "gqa.json") == 3
        assert json.loads((tmp_path / "gqa.json").read_text()) == [
            {"questionId": "000000", "prediction": "yes"},
            {"questionId": "000001", "prediction": "No"},
            {"questionId": "000002", "prediction": "a, b"},
        ]
        assert export_run(store, "vqa", tmp_path / "vqa.json", method="pnpvqa") == 3
        assert json.loads((tmp_path / "vqa.json").read_text()) == [
            {"question_id": number, "answer": "r0"} for number in range(3)
        ]
        export_run(store, "nlvr2", tmp_path / "nlvr2.csv")
        assert (tmp_path / "nlvr2.csv").read_text() == "000000,True\n000001,False\n000002,a b\n"
        export_run(store, "nlvr", tmp_path / "nlvr.csv")
        assert (tmp_path / "nlvr.csv").read_text() == "000000,true\n000001,false\n000002,a b\n"


def test_exports_that_cannot_be_made(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "p.json"
    target.write_text("before")
    with store:
        with pytest.raises(UnknownNameError, match=f"There are: {', '.join(FORMATS)}"):
            export_run(store, "xml", target)
        with pytest.raises(SetupError, match="Cannot write"):
            export_run(store, "gqa", tmp_path / "missing" / "p.json")
        store.add(dataclasses.replace(next(iter(Numbered(tmp_path, 1))), id="n1"), [Row("n1", "codevqa", 0, "x")])
        with pytest.raises(InputError, match="'n1' is not a number"):
            export_run(store, "vqa", target)
    assert target.read_text() == "before" and sorted(tmp_path.glob(".*")) == []
    empty = Store.create(tmp_path / "empty", RunInfo("gqa", "val", ("codevqa",)))
    with empty, pytest.raises(InputError, match="has no rows yet"):
        export_run(empty, "gqa", target)


PARTS = [
    *("--set", "matcher=blip:@mini/weights/matcher", "--set", "matcher.block=2"),
    *("--set", "captioner=blip:@mini/weights/captioner", "--set", "retriever=sentence:@mini/weights/retriever"),
    *("--lm", "transformers:@mini/weights/lm"),
]


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
    errors = codevqa(*words, "--release", release, "--set", "detector=zero-shot:some").stderr
    assert "prompts: covr_programs_and_questions50b_find," in errors and "the preamble of covr_preamble.py" in errors


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
    message = "/nowhere has no gqa_programs_and_questions_nocomments3b"
    assert_one_clear_line(codevqa("reproduce", *words), message)
