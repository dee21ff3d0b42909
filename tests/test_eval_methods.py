"""Evaluations of three methods: programs, captions that are read, and the direct question."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine
from engine_kit import GREEN, RED
from eval_kit import Numbered, fake_engine
from report_kit import example, read

from codevqa import CodeVQA, Settings, Writer, WriterSettings
from codevqa.core.errors import SetupError, UnknownNameError
from codevqa.core.trace import Method
from codevqa.eval import Store, evaluate
from codevqa.eval.report.reading import summary_of
from codevqa.eval.report.table import summary_lines
from codevqa.eval.run.choices import methods_for
from codevqa.eval.run.record import record_parts, replay_engine
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.task import METHODS, DatasetPicture, Row
from codevqa.models.fakes import FakeEyes, FakeMatcher, ScriptedLM
from codevqa.models.protocols import LookRequest, Models, Sight
from codevqa.presets.configuration import Layer, configure
from codevqa.prompts import load_prompt_set

TWO: tuple[Method, ...] = ("codevqa", "pnpvqa")


def test_what_is_asked_is_what_the_models_can_do(tmp_path: Path) -> None:
    for blip, eyes, wanted in ((True, True, METHODS), (False, True, METHODS[:2]), (True, False, TWO)):
        vqa = fake_engine(eyes=FakeEyes("no") if eyes else None, blip=blip)
        with vqa, evaluate(vqa, Numbered(tmp_path, 2), tmp_path / f"{blip} {eyes}") as store:
            assert store.info.methods == wanted and store.counts() == {(method, 0): 2 for method in wanted}
            for row in store.rows("direct"):
                assert (row.prediction, row.program, row.error) == ("no", None, None)
                assert [evidence["kind"] for evidence in row.trace["baseline"]] == ["eyes"]
    with fake_engine() as vqa, pytest.raises(SetupError, match="method direct needs a vision-language model"):
        evaluate(vqa, Numbered(tmp_path, 2), tmp_path / "none", methods=["codevqa", "direct"])
    assert not (tmp_path / "none").exists()


def test_presets_say_what_they_can_do_before_anything_is_loaded() -> None:
    contrast = [Layer("--set", {"matcher": "contrastive:some/siglip"})]
    blind = [Layer("--set", {"eyes": "openai:some", "captioner": None})]
    mini, seeing = configure("mini"), configure("mini-vlm")
    assert mini.methods == TWO == methods_for("all", mini) == methods_for("both", seeing)
    assert seeing.methods == METHODS == methods_for("all", seeing)
    assert configure("mini-vlm", contrast).methods == configure("mini", blind).methods == ("codevqa", "direct")
    assert methods_for("direct, codevqa,direct", seeing) == ("direct", "codevqa")
    for words, of, message in (("codevqa,direct", mini, "direct needs"), ("both", configure("vlm"), "pnpvqa needs a")):
        with pytest.raises(SetupError, match=f"The method {message}"):
            methods_for(words, of)
    with pytest.raises(UnknownNameError, match="There are: codevqa, direct, pnpvqa; both, and all"):
        methods_for("codevqa,some", mini)


def test_the_command_asks_all_that_the_preset_can_do(tmp_path: Path, codevqa: CommandLine) -> None:
    def seeing() -> CodeVQA:
        return fake_engine('answer = "no"', eyes=FakeEyes("yes"))

    assert codevqa("mini-data", tmp_path / "data", "--images", 4, "--splits", "val").returncode == 0
    words = ("eval", "gqa", "--data", tmp_path / "data", "--split", "val_balanced", "--preset", "mini-vlm")
    done = codevqa(*words, "--out", tmp_path / "run", "--limit", 6, engine=seeing())
    assert done.returncode == 0 and "val_balanced: codevqa, direct, pnpvqa with mini-vlm" in done.stderr, done.stderr
    for start in ("codevqa  ", "direct   ", "pnpvqa   ", "codevqa - direct  "):
        assert any(line.startswith(start) for line in done.stdout.splitlines()), start
    more = codevqa(*words, "--out", tmp_path / "some", "--limit", 2, "--method", "direct", engine=seeing())
    with Store.open(tmp_path / "some") as store:
        assert more.returncode == 0 and store.counts() == {("direct", 0): 2}


class Sure(FakeEyes):
    """Eyes that tell how sure they are, and how much they can see."""

    def look(self, requests: Sequence[LookRequest]) -> list[Sight]:
        sights = super().look(requests)
        return [replace(sight, chances=(("yes", 2 / 3), ("no", 1 / 3)), prompt_tokens=7) for sight in sights]


def test_what_eyes_said_is_recorded_and_replayed(tmp_path: Path) -> None:
    """Chances and tokens to the bit, with no captioner; a method it could not do, the replay cannot."""
    settings = Settings(writer=WriterSettings(selection="fixed", repairs=0))
    lm, eyes = ScriptedLM("answer = query(images[0], 'Is it red?')"), Sure("yes")
    writer = Writer(lm, load_prompt_set("nlvr2"), settings=settings.writer)
    with record_parts(tmp_path, writer, Models(lm, FakeMatcher(6), eyes=eyes), settings) as vqa:
        answers = [vqa.ask([RED, GREEN], "Is it red?", method=method) for method in METHODS[:2]]
    with replay_engine(tmp_path, settings, load_prompt_set("nlvr2")) as vqa:
        assert vqa.models.methods == ("codevqa", "direct")
        again = [vqa.ask([RED, GREEN], "Is it red?", method=method) for method in METHODS[:2]]
    assert [answer.trace.baseline for answer in again] == [answer.trace.baseline for answer in answers]
    assert [answer.tokens for answer in again] == [answer.tokens for answer in answers]
    assert again[1].trace.baseline[0].scores == (2 / 3, 1 / 3) and len(eyes.requests) == 2


def make_run(
    path: Path,
    methods: Sequence[Method],
    right: Callable[[int, Method], bool],
    count: int = 48,
    sizes: Callable[[int], int] = lambda number: 1,
    **info: Any,
) -> Path:
    """A run with these methods, two questions a cluster."""
    with Store.create(path, RunInfo("gqa", "val", tuple(methods), prompt_hash="0", **info)) as store:
        for number in range(count):
            each = example(number, images=(DatasetPicture(Path("/nowhere/a.jpg")),) * sizes(number))
            answers = {method: "yes" if right(number, method) else "no" for method in methods}
            store.add(each, [Row(each.id, method, 0, text) for method, text in answers.items()])
    return path


def thirds(number: int, method: Method) -> bool:
    """Programs are right on 48 - 12 questions, direct questions on 24 others and some of these, captions on none."""
    return {"codevqa": number % 4 > 0, "direct": number % 2 == 0, "pnpvqa": False}[method]


def test_every_two_methods_are_compared_on_the_same_questions(tmp_path: Path, codevqa: CommandLine) -> None:
    run = make_run(tmp_path / "run", METHODS, thirds)
    with Store.open(run) as store:
        summary = summary_of(store)
        lines = "\n".join(summary_lines(store.info, summary))
    gains = {
        pair: (round(comparison.difference.value * 48), comparison.better, comparison.worse)
        for pair, comparison in summary.pairs.items()
    }
    assert gains == {"codevqa-direct": (12, 24, 12), "codevqa-pnpvqa": (36, 36, 0), "direct-pnpvqa": (24, 24, 0)}
    assert list(gains) == ["codevqa-direct", "codevqa-pnpvqa", "direct-pnpvqa"]
    assert {comparison.difference.clusters for comparison in summary.pairs.values()} == {24}
    assert summary.paired == summary.pairs["codevqa-pnpvqa"]
    for group in summary.breakdown["structural"]:  # the program minus the direct question
        assert group.paired is not None and (group.paired.better, group.paired.worse) in ((24, 0), (0, 12))
    assert "codevqa - direct  0.250 [" in lines and "(better 24, worse 12" in lines
    text = read(run).text
    for words in (
        "Writing a program gains 25.0 points over asking a vision-language model once. Of 48 questions",
        "Questions CodeVQA Direct PnP-VQA gqa val 48 75.0 %",
        "CodeVQA − Direct in points",
        "paper: gqa testdev_balanced 12,578 49.03 % – 46.56 %",
    ):
        assert words in text, words
    report = json.loads(codevqa("report", run, "--json").stdout)["runs"][0]
    assert list(report["pairs"]) == list(gains) and report["paired"]["better"] == 36


def test_sets_of_different_sizes_are_groups(tmp_path: Path) -> None:
    sizes = (1, 2, 3, 4, 5, 6, 10, 11, 20, 21, 101)
    run = make_run(tmp_path / "run", METHODS[:2], thirds, 44, lambda number: sizes[number % 11])
    with Store.open(run) as store:
        groups = summary_of(store).breakdown["pictures"]
    wanted = [("1", 4), ("2", 4), ("3-4", 8), ("5", 4), ("6-10", 8), ("11-20", 8), ("21-50", 4), ("101 or more", 4)]
    assert [(group.value, group.n) for group in groups] == wanted
    assert all(group.paired is not None for group in groups)


def test_a_replay_asks_what_its_run_asked_whatever_the_preset(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", ("direct",), thirds, 1)
    assert methods_for("all", configure("mini"), run) == ("direct",)
    assert methods_for("codevqa,direct", configure("mini"), run) == ("codevqa", "direct")
