"""Runs in the formats of other harnesses; these read them in test_harnesses_live."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
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


def test_a_log_for_inspect_lacks_something_or_counts_wrongly(run: Path, tmp_path: Path) -> None:
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


def test_a_folder_for_lmms_eval_lacks_something_or_counts_wrongly(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "logs"
    (out / "other").mkdir(parents=True)
    with Store.open(run) as store:
        assert export(store, "lmms-eval", out) == 4
        assert export(store, "lmms-eval", out, method="pnpvqa") == 4
    stem = out / "codevqa__mini" / "20261123_021500"
    results = json.loads(Path(f"{stem}_results.json").read_text())
    assert results["results"]["gqa"] == {"alias": "gqa", "exact_match,none": 0.0, "exact_match_stderr,none": 0.0}
    with Store.open(run) as store:
        export(store, "lmms-eval", out)
    results = json.loads(Path(f"{stem}_results.json").read_text())
    found = results["results"]["gqa"]
    assert (found["exact_match,none"], found["exact_match_stderr,none"]) == (0.25, CLUSTERED)
    assert results["n-samples"] == {"gqa": {"original": 4, "effective": 4}}
    rows: list[dict[str, Any]] = [
        json.loads(text) for text in Path(f"{stem}_samples_gqa.jsonl").read_text().splitlines()
    ]
    assert [row["doc_id"] for row in rows] == [0, 1, 2, 3] and rows[0]["target"] == "yes"
    assert [row["exact_match"] for row in rows] == [1.0, 0.0, 0.0, 0.0]
    assert {"doc_id", "target", "filtered_resps", "doc_hash", "input"} <= rows[0].keys()
    assert not {"doc", "arguments"} & rows[0].keys() and len({row["doc_hash"] for row in rows}) == 4
    assert sorted(path.name for path in out.iterdir()) == ["codevqa__mini", "other"]


def test_questions_without_a_cluster_stand_by_themselves(tmp_path: Path) -> None:
    with Store.open(made(tmp_path / "run", tuple(ANSWERS), ("", ""))) as store:
        export(store, "inspect", tmp_path / "run.eval")
        export(store, "lmms-eval", tmp_path / "logs")
    with ZipFile(tmp_path / "run.eval") as log:
        (score,) = json.loads(log.read("header.json"))["results"]["scores"]
    (results,) = (tmp_path / "logs").rglob("*_results.json")
    found = json.loads(results.read_text())["results"]["gqa"]["exact_match_stderr,none"]
    assert found == score["metrics"]["stderr"]["value"] == pytest.approx(0.25)


def test_what_cannot_be_exported_is_not_one_line(run: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    with Store.create(tmp_path / "empty", RunInfo("gqa", "val", ("codevqa",))):
        pass
    done = codevqa("export", tmp_path / "empty", "--format", "gqa", "--out", tmp_path / "out.json")
    assert_one_clear_line(done, "empty has no rows yet")
    done = codevqa("export", run, "--format", "lmms-eval", "--out", run / "run.sqlite" / "x")
    assert_one_clear_line(done, "Cannot write")
    assert not list(tmp_path.glob("out*")) and not list(tmp_path.glob(".*"))
