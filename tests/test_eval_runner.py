"""Runs over fake models and a real sandbox: what a failure makes of a row or of the run, its cost, the time left."""

import asyncio
import heapq
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import CommandLine
from eval_kit import PROGRAM, Broken, Numbered, fake_engine
from PIL import Image

from codevqa import CodeVQA
from codevqa.core.errors import EngineClosedError, ImageError, InputError, ModelError
from codevqa.core.trace import Method
from codevqa.eval import Store, evaluate, open_dataset
from codevqa.eval.report.reading import summary_of
from codevqa.eval.run.session import Status
from codevqa.eval.task import DataSet, DatasetPicture, Example
from codevqa.models.protocols import GenerationRequest


def test_both_methods_on_the_same_questions(tmp_path: Path) -> None:
    seen: list[Status] = []
    note: Callable[[Status], None] = lambda status: seen.append(replace(status))  # noqa: E731
    with fake_engine() as vqa, evaluate(vqa, Numbered(tmp_path, 9), tmp_path / "run", progress=note) as store:
        assert store.counts() == {("codevqa", 0): 9, ("pnpvqa", 0): 9}
        assert [example.id for example in store.examples()] == [f"{n:06}" for n in range(9)]
        ours, theirs = store.row("000003", "codevqa"), store.row("000003", "pnpvqa")
        info, cost, pace = store.info, summary_of(store).methods["codevqa"].cost, store.pace()
    assert ours is not None and theirs is not None and ours.cost is not None and theirs.cost is not None
    assert (ours.prediction, ours.program, ours.error, ours.fallback) == ("yes", PROGRAM, None, False)
    assert (theirs.prediction, theirs.program) == ("yes", None)
    assert ours.seconds > 0 and ours.tokens > theirs.tokens > 20  # the reader's prompt and answer; ours a program more
    assert [call["name"] for call in ours.trace["calls"]] == ["open_image", "query"]
    (evidence,) = ours.trace["calls"][1]["evidence"]
    assert len(evidence["captions"][0]) == 2 and evidence["completion"] == " yes"
    assert not {"prompt", "patches"} & evidence.keys() and "prompt" not in ours.trace["written"]
    assert {type(level) for map in evidence["relevance"] for line in map for level in line} == {int}
    assert theirs.trace["baseline"][0]["captions"]
    assert (seen[-1].examples, seen[-1].rows, seen[-1].total) == (9, 18, 9)
    assert (seen[-1].fallbacks, seen[-1].unanswered) == (0, 0)
    assert (info.dataset, info.prompts, info.models["writer"]) == ("gqa", "image: gqa, set: covr", "writer")
    assert ours.cost.calls == {"caption": 2, "match": 1, "read": 1, "write": 1} and "write" not in theirs.cost.calls
    assert ours.cost.prompt_tokens + ours.cost.completion_tokens == ours.tokens
    assert ours.cost.program_seconds > 0 == theirs.cost.program_seconds and ours.cost.model_seconds > 0
    assert ours.cost.seconds < ours.seconds
    assert cost is not None and cost.rows == 9 and cost.calls == ours.cost.calls
    assert pace is not None and pace.questions == 9 and pace.rate is not None


def test_a_fallback_is_no_error_and_what_has_no_answer_is_counted(tmp_path: Path) -> None:
    seen: list[Status] = []
    with fake_engine("answer = 1 / 0") as vqa:
        data = Broken(tmp_path, 9)
        evaluate(
            vqa, data, tmp_path / "run", methods=["codevqa"], progress=seen.append, missing_pictures="skip"
        ).close()
    assert (seen[-1].examples, seen[-1].fallbacks, seen[-1].unanswered) == (9, 5, 4)


def test_seeds_repeat_the_sampling_of_captions(tmp_path: Path) -> None:
    def captions(store: Store, method: str, repeat: int) -> str:
        (row,) = store.rows(method, repeat)  # type: ignore[arg-type]
        return json.dumps([row.trace["baseline"], [call["evidence"] for call in row.trace["calls"]]])

    with fake_engine(seed=5) as vqa, evaluate(vqa, Numbered(tmp_path, 1), tmp_path / "run", seeds=3) as store:
        assert store.info.seeds == (5, 6, 7)
        assert store.counts() == {(method, repeat): 1 for method in ("codevqa", "pnpvqa") for repeat in range(3)}
        for method in ("codevqa", "pnpvqa"):
            assert len({captions(store, method, repeat) for repeat in range(3)}) == 3
        second, repeats = captions(store, "codevqa", 1), summary_of(store).methods["codevqa"].repeats
        assert repeats is not None and repeats.values == (1.0, 1.0, 1.0)
    with fake_engine(seed=6) as vqa, evaluate(vqa, Numbered(tmp_path, 1), tmp_path / "other") as store:
        assert captions(store, "codevqa", 0) == second  # a repetition is a run with that seed


def test_what_cannot_be_asked_is_a_row_with_its_error_and_counted_apart_from_what_went_wrong(tmp_path: Path) -> None:
    with fake_engine() as vqa, evaluate(vqa, Broken(tmp_path, 6), tmp_path / "run", missing_pictures="skip") as store:
        for method in ("codevqa", "pnpvqa"):
            rows = list(store.rows(method))
            errors = [None, "ImageError", "ImageError", "QuestionError", "InputError", None]
            assert [row.error for row in rows] == errors
            assert [row.prediction for row in rows] == ["yes", "", "", "", "", "yes"]
        coverage = summary_of(store).coverage
    # Two pictures; an empty question and two pictures for one are the data set's.
    assert (coverage.questions, coverage.unasked, coverage.reasons) == (6, 2, {"ImageError": 4})
    assert str(coverage) == "2 of 6 could not be asked (ImageError 4)" and coverage.share == 1 / 3


def test_a_model_that_fails_for_every_question_ends_the_run_which_may_go_on(tmp_path: Path) -> None:
    def read(request: GenerationRequest) -> str:
        if fails:
            raise ModelError("Out of memory.")
        return "yes"

    fails, data, out = True, Numbered(tmp_path, 100), tmp_path / "run"
    with fake_engine(read=read) as vqa:
        with pytest.raises(ModelError, match=r"Out of memory\. Stopped with \d+ rows kept; --resume --retry-errors"):
            evaluate(vqa, data, out)
        with Store.open(out) as store:
            assert 16 <= len(store) < 40 and {row.error for row in store.rows("pnpvqa")} == {"ModelError"}
        fails = False
        with evaluate(vqa, data, out, resume=True, retry_errors=True) as store:
            assert [row.prediction for row in store.rows("codevqa")] == ["yes"] * 100


def test_a_run_may_be_made_within_a_running_loop(tmp_path: Path) -> None:
    async def main() -> dict[tuple[Method, int], int]:
        with fake_engine() as vqa, evaluate(vqa, Numbered(tmp_path, 3), tmp_path / "run") as store:
            return dict(store.counts())

    assert asyncio.run(main()) == {("codevqa", 0): 3, ("pnpvqa", 0): 3}


def test_an_engine_that_is_made_here_is_closed_here(tmp_path: Path) -> None:
    engines: list[CodeVQA] = []

    def make() -> CodeVQA:
        engines.append(fake_engine())
        return engines[0]

    evaluate(make, Numbered(tmp_path, 2), tmp_path / "run").close()
    with pytest.raises(EngineClosedError):
        engines[0].ask(Numbered(tmp_path, 1).picture, "A?")
    with pytest.raises(InputError, match="is there already"):
        evaluate(make, Numbered(tmp_path, 2), tmp_path / "run")
    assert len(engines) == 1  # no model is loaded for a run that cannot begin


@pytest.mark.parametrize("wrong", [{"methods": []}, {"seeds": 0}, {"offset": -1}, {"limit": 0}])
def test_what_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    data: DataSet = Numbered(tmp_path, 1)
    with pytest.raises(InputError):
        evaluate(fake_engine, data, tmp_path / "run", **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("total", "window", "load", "took"),
    [
        pytest.param(60, 64, 10.0, 2.0, id="all at once, as small runs are"),
        pytest.param(400, 16, 0.0, 2.0, id="a steady run"),
        pytest.param(1000, 32, 20.0, 2.0, id="models that load slowly"),
        pytest.param(50, 1, 0.0, 1.0, id="one after another"),
    ],
)
def test_a_tenth_tells_the_rest(total: int, window: int, load: float, took: float) -> None:
    status, estimates = Status(total=total), list[tuple[float, float]]()
    ends: list[tuple[float, int]] = []
    for number in range(min(window, total)):
        heapq.heappush(ends, (load + took * (0.9 + number % 7 / 20), number))
    while ends:
        now, _ = heapq.heappop(ends)
        status.examples, status.seconds, status.under_way = status.examples + 1, now, len(ends)
        if status.examples == 1:
            status.first = now, status.work
        if status.examples >= total / 10 and now > status.first[0] and status.seconds_left is not None:
            estimates.append((now, status.seconds_left))
        if (following := window + status.examples - 1) < total:
            heapq.heappush(ends, (now + took * (0.9 + following % 7 / 20), following))
    whole = estimates[-1][0]
    assert estimates[-1][1] == 0
    assert all(abs(at + left - whole) <= 0.2 * whole for at, left in estimates), (estimates[0], whole)


class Lost(Numbered):
    """Each question has a picture of its own; those of the odd ones were never unpacked."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder, count)
        for number in range(0, count, 2):
            Image.new("RGB", (8, 8), "red").save(folder / f"{number}.png")

    def __iter__(self) -> Iterator[Example]:
        for number, example in enumerate(super().__iter__()):
            yield replace(example, images=(DatasetPicture(self.folder / f"{number}.png"),))


def no_models() -> CodeVQA:
    raise AssertionError("models were loaded")


def test_pictures_that_are_missing_end_the_run_before_models_load(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^4 of 8 pictures are missing, first: .*1\.png\. .*--missing-pictures skip"):
        evaluate(no_models, Lost(tmp_path, 8), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_no_picture_is_found_in_folders_and_archives(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "good.png")
    (tmp_path / "text.png").write_text("no picture")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("good.png", "text.png"):
            archive.write(tmp_path / name, name)
    os.mkfifo(tmp_path / "pipe.png")
    pipe = DatasetPicture(tmp_path / "pipe.png")  # nobody writes into it: opened, it would wait for ever
    assert (pipe.wrong, pipe.digest) == ("unreadable", "")
    packed = tmp_path / "all.zip"
    for name, wrong in (("good.png", ""), ("text.png", "unreadable"), ("x.png", "missing")):
        assert DatasetPicture(tmp_path / name).wrong == DatasetPicture(packed, name).wrong == wrong
    with zipfile.ZipFile(tmp_path / "damaged.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(range(256)) * 9)
    data = bytearray((tmp_path / "damaged.zip").read_bytes())
    data[40:60] = bytes(20)
    (tmp_path / "damaged.zip").write_bytes(data)
    damaged = DatasetPicture(tmp_path / "damaged.zip", "a.png")
    assert damaged.wrong == "unreadable"
    with pytest.raises(ImageError, match=r"Cannot read a\.png in .*damaged\.zip"):
        damaged.load()


def test_an_offset_past_the_end_and_a_limit_of_none_are_refused_before_models_load(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--offset 9 is past the end: val has 9 questions"):
        evaluate(no_models, Numbered(tmp_path, 9), tmp_path / "run", offset=9)
    with pytest.raises(InputError, match="has no questions"):
        evaluate(no_models, Numbered(tmp_path, 0), tmp_path / "run")
    with pytest.raises(InputError, match="Give --resume with --retry-errors"):
        evaluate(no_models, Numbered(tmp_path, 1), tmp_path / "run", retry_errors=True)


def test_retrying_asks_what_could_not_be_asked_and_nothing_else(tmp_path: Path) -> None:
    asked: list[str] = []

    def write(request: GenerationRequest) -> str:
        question = str(request.prompt)[-20:]
        asked.append(question)
        if "thing 1" in question and failing:
            raise ModelError("Out of memory.")
        return "answer = (" if "thing 4" in question else 'answer = query(img, "Is it red?")'

    failing = True
    data, out = Lost(tmp_path, 5), tmp_path / "run"
    Image.new("RGB", (8, 8), "red").save(tmp_path / "1.png")
    (tmp_path / "3.png").write_text("no picture")
    with fake_engine(write, workers=1) as vqa:
        evaluate(vqa, data, out, missing_pictures="skip").close()
        with evaluate(vqa, data, out, missing_pictures="skip", resume=True) as store:  # as it was
            errors = [row.error for row in store.rows("codevqa")]
            assert errors == [None, "ModelError", None, "ImageError", "ProgramSyntaxError"]
            assert summary_of(store).coverage.unasked == 2
        asked.clear()
        failing = False
        Image.new("RGB", (8, 8), "blue").save(tmp_path / "3.png")
        with evaluate(vqa, data, out, resume=True, retry_errors=True) as store:
            rows = list(store.rows("codevqa"))
            assert [row.error for row in rows] == [None, None, None, None, "ProgramSyntaxError"]
            assert summary_of(store).coverage.unasked == 0
    assert len(asked) == 2


@pytest.mark.slow
def test_a_run_with_too_many_questions_unasked_fails_and_says_so(tmp_path: Path, codevqa: CommandLine) -> None:
    data, out = tmp_path / "data", tmp_path / "run"
    assert codevqa("mini-data", data, "--images", 6, "--splits", "val").returncode == 0
    words = ("eval", "gqa", "--data", data, "--split", "val_balanced", "--method", "pnpvqa", "--limit", 4, "--out", out)
    first = next(iter(open_dataset("gqa", data, "val_balanced"))).images[0]
    assert isinstance(first, DatasetPicture)
    away = first.path.rename(tmp_path / "away.png")
    skipped = codevqa(*words, "--missing-pictures", "skip")
    assert skipped.returncode == 1, skipped.stderr
    assert re.search(r"\n[1-4] of 4 could not be asked \(ImageError [1-4]\)\n$", skipped.stdout)
    assert skipped.stderr.splitlines()[-1].endswith("--missing-pictures skip --resume --retry-errors")
    away.rename(first.path)
    mended = codevqa(*words, "--resume", "--retry-errors", "--max-failed", 0)
    assert mended.returncode == 0 and mended.stdout.endswith("\n0 of 4 could not be asked\n"), mended.stderr
