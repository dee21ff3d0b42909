"""The eye chart: what it finds of servers with a fault, and what follows from it for direct questions."""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from cli_kit import SHELF, CommandLine, Done
from doctor import FAULTS, Fault, Refusal, Server, examine, serving
from engine_kit import BLUE, GREEN, RED, engine, reader

from codevqa import CodeVQA, QuerySettings, Settings, WriterSettings
from codevqa.core.errors import PictureLimitError
from codevqa.engine.chart import REQUESTS, Chart, Examination, Finding, OutOfTimeError
from codevqa.eval.metrics import metric_for
from codevqa.eval.report.summary import summarize
from codevqa.eval.report.table import summary_lines
from codevqa.eval.run.run_info import RunInfo
from codevqa.models.fakes import FakeCaptioner, FakeEyes, FakeMatcher
from codevqa.models.openai_eyes import OpenAIEyes
from codevqa.models.protocols import Models
from codevqa.presets.configuration import configure


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_by_its_test(name: str) -> None:
    findings, _ = examine(FAULTS[name], seed=7)
    verdicts = {finding.test: finding.verdict for finding in findings}
    assert verdicts[FAULTS[name].test] != "ok"


@pytest.mark.parametrize("seed", [3, 4])
def test_a_server_without_faults_passes(seed: int) -> None:
    findings, requests = examine(Fault(""), seed)
    assert [finding for finding in findings if finding.verdict != "ok"] == []
    assert requests <= REQUESTS <= 60
    limits = {finding.test: finding.limit for finding in findings}
    assert limits["pictures"] == 10 and limits["smallest size"] == 12 and limits["longest prompt"] == 16_000


def test_every_test_is_given_a_verdict_once() -> None:
    findings, _ = examine(Fault(""), 1)
    tests = [finding.test for finding in findings]
    assert len(tests) == len(set(tests)) == 11


@contextmanager
def refusing(after: int, status: int, words: str, pictures: bool = False, **headers: str) -> Iterator[Server]:
    """A server without faults that refuses all requests after so many, or all that have pictures."""
    with serving(Fault("")) as server:
        count = iter(range(1, 1000))

        def answer(body: dict[str, Any]) -> str:
            shown = len(body["messages"][0]["content"]) > 1
            if next(count) > after and (shown or not pictures):
                raise Refusal(status, words, headers)
            return look(body)

        look, server.answer = server.answer, answer  # type: ignore[method-assign]
        yield server


def ask_doctor(codevqa: CommandLine, url: str, *words: str) -> Done:
    names = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-secret-of-mine"}
    done = codevqa("doctor", "--preset", "api", "--model", "served", *words, **names)
    assert "sk-secret" not in done.stdout + done.stderr
    return done


def test_a_server_without_faults_gets_a_preset_without_limits(codevqa: CommandLine, tmp_path: Path) -> None:
    with serving(Fault("")) as server:
        done = ask_doctor(codevqa, server.url, "--save", str(tmp_path / "my.toml"))
    assert (done.returncode, done.stdout.splitlines()[-1][-6:]) == (0, "passed")
    chosen = configure(str(tmp_path / "my.toml"))
    assert chosen.settings.query.pictures == 10 and chosen.settings.query.probabilities
    assert chosen.settings.chart.endswith(": passed")
    assert chosen.parts["eyes"] == "openai:served"


def test_limits_are_saved_and_kept_to(codevqa: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    with serving(FAULTS["the first picture alone"]) as server:
        done = ask_doctor(codevqa, server.url, "--json", "--save", str(file))
        chart = json.loads(done.stdout)
        assert done.returncode == 1 and chart["settings"]["query.pictures"] == 1
        asked = len(server.asked)
        names = {"OPENAI_BASE_URL": server.url}
        question = ("ask", *SHELF[:2], "-q", "What number is shown?", "--preset", str(file), "--method", "direct")
        refused = codevqa(*question, **names)
        assert refused.returncode == 1 and "--force" in refused.stderr and len(server.asked) == asked
    assert chart["requests"] <= REQUESTS and "fails pictures (1; of 2 only number 1)" in chart["result"]


def test_what_was_measured_before_a_server_died_is_kept(codevqa: CommandLine, tmp_path: Path) -> None:
    with refusing(25, 401, "no longer yours") as server:
        done = ask_doctor(codevqa, server.url, "--save", str(tmp_path / "my.toml"))
    assert done.returncode == 1
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:3]] == [["sees", "ok"], ["pictures", "ok"]]
    assert "no longer yours" in done.stderr and "25 requests" in done.stderr
    assert "not finished" in configure(str(tmp_path / "my.toml")).settings.chart


def test_a_key_without_rights_is_one_line(codevqa: CommandLine) -> None:
    with refusing(0, 403, "You may not use this model") as server:
        done = ask_doctor(codevqa, server.url, "--quiet")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "You may not use this model" in done.stderr


def test_a_model_that_reads_text_alone_has_no_eyes(codevqa: CommandLine) -> None:
    with refusing(0, 400, "This model does not support image input", pictures=True) as server:
        done = ask_doctor(codevqa, server.url, "--json")
    by_test = {finding["test"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1 and by_test["sees"]["measured"] == "no eyes"
    assert by_test["longest prompt"]["verdict"] == "ok" and "counts" not in by_test


def test_no_server_is_one_line(codevqa: CommandLine) -> None:
    with serving(Fault("")) as server:
        url = server.url
    done = ask_doctor(codevqa, url, "--quiet")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "Is it running" in done.stderr


def test_a_server_with_a_rate_limit_is_not_waited_for_beyond_the_seconds(codevqa: CommandLine) -> None:
    began = time.monotonic()
    with refusing(3, 429, "one request a minute", Retry_After="60") as server:
        done = ask_doctor(codevqa, server.url, "--seconds", "20")
    assert time.monotonic() - began < 15 and done.returncode == 1
    assert "asks to wait 60 s" in done.stderr and "--seconds 20" in done.stderr


@pytest.mark.slow
def test_it_says_how_long_a_slow_server_takes() -> None:
    lines: list[str] = []
    with serving(Fault(""), seconds=1.6) as server:
        exam = Examination(OpenAIEyes("served", base_url=server.url), seconds=4.5, tell=lines.append)
        with pytest.raises(OutOfTimeError):
            list(exam.findings())
    assert exam.requests == 2 and len(lines) == 1 and re.match(r"2 s a request: about [78]\d s more", lines[0])


def test_a_file_that_is_there_stays(codevqa: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("seed = 3\n")
    done = codevqa("doctor", "--save", tmp_path / "my.toml")
    assert done.returncode == 2 and (tmp_path / "my.toml").read_text() == "seed = 3\n"


@pytest.mark.slow
def test_the_models_of_the_package_have_charts(codevqa: CommandLine) -> None:
    chart = json.loads(codevqa("doctor", "--json", "--quiet").stdout)
    verdicts = {finding["test"]: finding["verdict"] for finding in chart["findings"]}
    assert verdicts["yes and no"] == verdicts["left and right"] == verdicts["counts"] == "ok"
    assert chart["settings"]["query.pictures"] in (0, 1)


def test_a_report_begins_with_a_chart_that_fails() -> None:
    failed = Chart("m", "", "2026-11-29", 0, 50, 9.0, (Finding("sees", "fails", "no eyes", ""),))
    settings = {"chart": failed.result, "query": {"pictures": 0, "over_limit": True}}
    info = RunInfo("covr", "test", ("direct",), models={"eyes": "m"}, settings=settings)
    summary = summarize([], metric_for("covr", ""))
    first = summary_lines(info, summary)[0]
    assert "fails its chart of 2026-11-29: sees (no eyes)" in first and "more than the 0 pictures" in first
    assert replace(info, methods=("codevqa",)).chart_warning == ""


def limited(limit: int | None, *, over: bool = False) -> tuple[CodeVQA, FakeEyes]:
    """An engine whose program asks a set for a number, and its eyes, which say 1."""
    eyes = FakeEyes("1")
    settings = Settings(
        query=QuerySettings(pictures=limit, over_limit=over), writer=WriterSettings(programs=1, refuse=False)
    )
    models = Models(reader(), FakeMatcher(6), FakeCaptioner("a cup", grid=6), eyes=eyes)
    program = "answer = query(images, 'How many cups are there?')"
    return engine(program, settings=settings, models=models), eyes


@pytest.mark.parametrize(("limit", "shown"), [(2, [2, 1]), (0, [1, 1, 1]), (None, [3])])
def test_a_program_shows_pictures_in_parts_of_the_limit(limit: int | None, shown: list[int]) -> None:
    vqa, eyes = limited(limit)
    answer = vqa.ask([RED, GREEN, BLUE], "How many cups are there?")
    assert ([len(request.pictures) for request in eyes.requests], answer.text) == (shown, str(len(shown)))
    vqa.close()


def test_a_direct_question_over_the_limit_is_refused_or_asked_whole() -> None:
    vqa, eyes = limited(2)
    with pytest.raises(PictureLimitError, match="about 2 at once, not 3 pictures"):
        vqa.ask([RED, GREEN, BLUE], "How many cups are there?", method="direct")
    assert not eyes.requests
    vqa.close()
    vqa, eyes = limited(2, over=True)
    vqa.ask([RED, GREEN, BLUE], "How many cups are there?", method="direct")
    assert [len(request.pictures) for request in eyes.requests] == [3]
    vqa.close()


def test_a_new_chart_takes_back_what_an_earlier_one_found(codevqa: CommandLine, tmp_path: Path) -> None:
    file = str(tmp_path / "my.toml")
    with serving(FAULTS["log-probabilities missing"]) as server:
        ask_doctor(codevqa, server.url, "--save", file)
    assert not configure(file).settings.query.probabilities
    with serving(Fault("")) as server:
        codevqa("doctor", "--preset", file, "--save", file, OPENAI_BASE_URL=server.url)
    assert configure(file).settings.query.probabilities


def test_a_model_whose_reading_was_not_tested_is_shown_one_picture() -> None:
    weak = Finding("sees", "weak", "3 of 8", ""), Finding("pictures", "unknown", "reads neither", "", 1)
    assert Chart("m", "", "2026-11-29", 0, 50, 9.0, weak).settings()["query.pictures"] == 1
    blind = Chart("m", "", "2026-11-29", 0, 50, 9.0, (weak[1], Finding("sees", "fails", "no eyes", "", 0)))
    assert blind.settings()["query.pictures"] == 0
    findings, _ = examine(FAULTS["blind, and silent about it"], 3)
    assert {finding.test: finding.limit for finding in findings}["pictures"] == 1
