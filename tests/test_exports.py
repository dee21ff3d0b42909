"""Runs as logs of inspect_ai."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
from cli_kit import CommandLine, assert_one_clear_line
from eval_kit import Numbered

from codevqa.eval.report.exports import export
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.run.store import Store
from codevqa.eval.task import Row

COST = {"model_seconds": 0.5, "prompt_tokens": 7, "completion_tokens": 2}
CALLS = [
    {"name": "query", "arguments": {"question": "Is it red?"}, "value": "yes", "error": None},
    {"name": "get_pos", "arguments": {"text": "cup"}, "value": None, "error": {"message": "no cup"}},
]
CLUSTERED = pytest.approx(math.sqrt(((1 / 4) ** 2 + (1 / 3 - 1 / 4) ** 2) / 2))
"""Error of a mean of 1/4 that is 0 without one cluster, and 1/3 without the other."""
ANSWERS = {"yes": None, "no": "ProgramTypeError", "a|b": None, "": "ServerError"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four questions: one is right, one was answered by the baseline, one is odd, and one has no answer."""
    return made(tmp_path / "run", tuple(ANSWERS))


def made(folder: Path, predictions: tuple[str, ...], clusters: tuple[str, str] = ("first three", "last")) -> Path:
    models = {"writer": "a|writer", "matcher": "blip"}
    info = RunInfo(
        "gqa", "val", ("codevqa", "pnpvqa"), "mini", models, version="1", started="2026-11-23T02:15:00+00:00"
    )
    with Store.create(folder, info) as store:
        for place, (example, prediction) in enumerate(
            zip(Numbered(folder, len(predictions)), predictions, strict=True)
        ):
            error = ANSWERS.get(prediction)
            row = Row(
                *(example.id, "codevqa", 0, prediction, error == "ProgramTypeError", error, error or ""),
                *("answer = 1", {"calls": CALLS} | ({} if place else {"cost": COST}), 0.5, 9),
            )
            example = replace(example, cluster=clusters[place == 3])
            store.add(example, [row, Row(example.id, "pnpvqa", 0, "no")], place=place)
    return folder


def test_a_log_for_inspect_has_each_question_with_its_program_calls_and_score(run: Path, tmp_path: Path) -> None:
    with Store.open(run) as store:
        assert export(store, "inspect", tmp_path / "run.eval") == 4
    with ZipFile(tmp_path / "run.eval") as log:
        assert log.testzip() is None
        header, short = (json.loads(log.read(name)) for name in ("header.json", "summaries.json"))
        samples = [json.loads(log.read(f"samples/00000{number}_epoch_1.json")) for number in range(4)]
    assert (header["version"], header["status"], header["eval"]["model"]) == (2, "success", "codevqa/mini")
    assert header["eval"]["created"] == "2026-11-23T02:15:00+00:00" and header["eval"]["dataset"]["samples"] == 4
    (score,) = header["results"]["scores"]
    assert {name: one["value"] for name, one in score["metrics"].items()} == {"accuracy": 0.25, "stderr": CLUSTERED}
    assert header["stats"]["model_usage"] == {
        "codevqa/mini": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 36}
    }
    assert [one["scores"]["exact_match"]["value"] for one in samples] == [1, 0, 0, 0]
    assert [one["id"] for one in short] == [one["id"] for one in samples]
    assert not any("error" in one for one in (*short, *samples)), "such samples are left out of the figures"
    assert samples[3]["metadata"]["error"] == "ServerError: ServerError"
    assert header["stats"]["completed_at"] >= header["stats"]["started_at"]
    user, program, *told, answer = samples[1]["messages"]
    assert (user["content"], answer["content"]) == ("Is thing 1 red?", "no")
    assert [one["function"] for one in program["tool_calls"]] == ["query", "get_pos"]
    assert [one["content"] for one in told] == ['"yes"', "no cup"]
    assert samples[1]["metadata"] | {"pictures": 0} == {
        "pictures": 0,
        "parity": "odd",
        "fallback": True,
        "error": "ProgramTypeError: ProgramTypeError",
    }


def test_what_cannot_be_exported_is_one_clear_line(run: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    with Store.create(tmp_path / "empty", RunInfo("gqa", "val", ("codevqa",))):
        pass
    done = codevqa("export", tmp_path / "empty", "--format", "gqa", "--out", tmp_path / "out.json")
    assert_one_clear_line(done, "empty has no rows yet")
    done = codevqa("export", run, "--format", "inspect", "--out", run / "run.sqlite" / "x")
    assert_one_clear_line(done, "Cannot write")
    assert not list(tmp_path.glob("out*")) and not list(tmp_path.glob(".*"))
