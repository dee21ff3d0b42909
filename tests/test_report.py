"""Reports and differences: the numbers are the summary's, the page is one safe file, and what is refused is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine, assert_one_clear_line
from PIL import Image

from codevqa import CodeVQA
from codevqa.core.errors import InputError, SetupError
from codevqa.eval import Store, evaluate
from codevqa.eval.datasets import open_dataset
from codevqa.eval.metrics import metric_for
from codevqa.eval.report.cases import KINDS, call_text, choose, thumbnail
from codevqa.eval.report.diff import compare_runs, describe
from codevqa.eval.report.paper import DRAWN
from codevqa.eval.report.report import judge_for, summary_of, write
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.run.store import Gone
from codevqa.eval.task import Example, Held, Method, PictureFile, Row
from codevqa.miniworld.export import write as write_data

EVIL = "</code></pre><script>alert('x')</script><img src=x onerror=alert(1)>"
URLS = 'style="background:url(https://example.org/a.png)" {{ 7*7 }} {% raw %} javascript:alert(1)'


class Page(HTMLParser):
    """What a page holds; fails where tags do not close in order."""

    VOID = frozenset(("meta", "img", "br", "hr", "link", "input"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def assert_safe(html: str) -> Page:
    """One page that asks for nothing and runs nothing but its own script, which the policy names."""
    script = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(script) == 1 and digest(script[0]) in policy_of(html)
    chunks = re.compile(
        r'\n<script type="text/plain" id="(?:head|(?:part|trace|picture)-\d+)">[A-Za-z0-9+/=]*</script>'
    )
    page = Page(chunks.sub("", html).replace(f"<script>{script[0]}</script>", ""))
    assert not {"script", "iframe", "object", "embed", "link", "form", "base"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "href", "srcset") or value.startswith("data:image/jpeg;base64,") or tag == "a"
        assert tag != "a" or (name, value) == ("href", "#questions"), value
        assert name != "style" or re.fullmatch(r"(?:left|width):[\d.]+%(?:;width:[\d.]+%)?", value), value
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style and "url(" not in style[1] and "@import" not in style[1]
    return page


def digest(script: str) -> str:
    return f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}';"


def policy_of(html: str) -> str:
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert found is not None
    policy = unescape(found[1])
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-")
    return policy


def example(number: int, **other: Any) -> Example:
    given: dict[str, Any] = {
        "question": f"Is thing {number} red?",
        "images": (PictureFile(Path(f"/nowhere/{number}.jpg")),),
        "form": "image",
        "gold": ("yes",),
        "groups": {"structural": "verify" if number % 2 else "query", "spatial": "yes" if number % 3 else "no"},
        "cluster": str(number // 2),
    }
    return Example(f"{number:04}", **{**given, **other})


def make(
    path: Path,
    answers: Sequence[tuple[str, str]],
    *,
    info: dict[str, Any] | None = None,
    program: str = 'answer = query(img, "x")',
) -> Path:
    """A run with these answers of both methods; an empty one of ours is a fallback to the baseline's."""
    given: dict[str, Any] = {"dataset": "gqa", "split": "val", "data_hash": "1", "prompts": "gqa", "prompt_hash": "ab"}
    failed: dict[str, Any]
    with Store.create(path, RunInfo(methods=("codevqa", "pnpvqa"), **{**given, **(info or {})})) as store:
        for number, (ours, theirs) in enumerate(answers):
            one = example(number)
            call = {"name": "query", "arguments": {"img": {"image": 1}, "question": "x"}, "value": ours, "error": None}
            failed = {"fallback": True, "error": "ProgramTypeError", "message": "line 1: no"} if not ours else {}
            row = Row(one.id, "codevqa", 0, ours or theirs, program=program, trace={"calls": [call]}, **failed)
            store.add(one, [row, Row(one.id, "pnpvqa", 0, theirs)])
    return path


RIGHT, BETTER, WORSE, WRONG, FAILED = ("yes", "yes"), ("yes", "no"), ("no", "yes"), ("no", "no"), ("", "no")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, mini: CodeVQA) -> Path:
    """Eight questions of drawn data, answered by the embedded models."""
    folder = tmp_path_factory.mktemp("real")
    write_data(folder / "data", images=4, splits=["val"])
    data = open_dataset("gqa", folder / "data", "val_balanced")
    evaluate(mini, data, folder / "run", limit=8, preset="mini").close()
    return folder


def test_drawn_data_is_called_so_in_the_title_and_beside_the_paper_s_figures(real: Path) -> None:
    html, markdown = (path.read_text(encoding="utf-8") for path in write([real / "run"]))
    page = assert_safe(html).text
    assert page.startswith("CodeVQA on mini-GQA (drawn) val_balanced")
    assert markdown.startswith("# CodeVQA on mini-GQA (drawn) val")
    for shown in (page, markdown):
        tables = shown.split("46.56 %")[1], shown.split("Paper's gain")[1]
        assert all(DRAWN in table[:1200] for table in tables), tables
    with Store.open(real / "run") as store:
        assert not replace(store.info, drawn=False).differences(store.info), "runs of before can be gone on with"


def test_groups_that_say_next_to_nothing_stand_apart(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("covr", "val", ("codevqa", "pnpvqa"))) as store:
        for number in range(24):
            one = example(number, groups={"images": "1" if number < 10 else "2" if number < 15 else "3"})
            store.add(one, [Row(one.id, "codevqa", 0, "yes"), Row(one.id, "pnpvqa", 0, "no")])
    page, document = write([tmp_path / "run"])
    text = document.read_text(encoding="utf-8")
    large, small = text.split("## Groups of less than 10 questions")
    assert "| 1 | 10 |" in large and "| 3 | 9 |" not in large and "| 2 | 5 |" not in large
    assert "9" in small and "5" in small
    assert re.search(r"<details>.*?By images.*?</details>", page.read_text(encoding="utf-8"), re.DOTALL)


# -- the page ---------------------------------------------------------------------------------------------------------


def test_a_real_run(real: Path) -> None:
    page_file, document = write([real / "run"])
    assert page_file == real / "run" / "report.html" and document == real / "run" / "report.md"
    html = page_file.read_text(encoding="utf-8")
    page = assert_safe(html)
    with Store.open(real / "run") as store:
        summary = summary_of(store, metric_for("gqa"))
        info, judge = store.info, judge_for(store)
        shown = next(store.examples())
    ours = summary.methods["codevqa"].accuracy
    assert ours is not None and f"{100 * ours.value:.1f} % ({100 * ours.low:.1f} to" in page.text
    for words in ("mini-GQA (drawn), split val_balanced", info.prompt_hash[:16], info.machine, "mini", "seeds"):
        assert words in page.text, words
    assert "49.03 %" in page.text and "with other models" in page.text
    assert judge is not None and "Right for the right reason" in page.text
    assert len(judge.graphs) > 0 and shown.images[0].name[:-4] in judge.graphs
    assert page.tags.count("img") >= page.tags.count("article") > 0
    assert html == write([real / "run"])[0].read_text(encoding="utf-8"), "the same run gives the same page"
    assert "| CodeVQA | mini-GQA (drawn) val" in document.read_text(encoding="utf-8")


def test_pictures_are_small_and_inline(real: Path) -> None:
    html = write([real / "run"])[0].read_text(encoding="utf-8")
    sources = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', html)
    import io

    for source in sources:
        with Image.open(io.BytesIO(base64.b64decode(source))) as picture:
            assert max(picture.size) <= 240


def test_moved_data_is_found_with_data(real: Path, tmp_path: Path) -> None:
    shutil.copytree(real / "run", tmp_path / "run")
    moved = tmp_path / "elsewhere"
    (real / "data").rename(moved)
    try:
        page, _ = write([tmp_path / "run"])
        without = Page(page.read_text(encoding="utf-8"))
        assert "img" not in without.tags and ".jpg" in without.text and "right reason" not in without.text
        for data in (moved, moved / "gqa"):
            page, _ = write([tmp_path / "run"], data=data)
            found = assert_safe(page.read_text(encoding="utf-8"))
            assert "img" in found.tags and "right reason" in found.text
    finally:
        moved.rename(real / "data")


def test_nothing_of_data_or_models_is_markup(tmp_path: Path) -> None:
    run = tmp_path / f"run <b>{'x'}"
    info: dict[str, Any] = {"split": EVIL, "preset": EVIL, "models": {"writer": EVIL}, "machine": URLS, "prompts": URLS}
    with Store.create(run, RunInfo("gqa", methods=("codevqa", "pnpvqa"), prompt_hash="1", **info)) as store:
        for number in range(4):
            one = example(
                number,
                question=f"{EVIL} {URLS} {number}",
                gold=(EVIL,),
                images=(Gone(EVIL), PictureFile(Path(f"/x/{URLS}"))),
                groups={EVIL: f"{EVIL}{number}"},
            )
            error = {"error": EVIL, "message": URLS} if number % 2 else {}
            call = {"name": EVIL, "arguments": {"img": {"image": EVIL}, "q": URLS}, "value": [EVIL], "error": None}
            trace = {"calls": [call, {**call, "error": {"message": EVIL}}]}
            row = Row(one.id, "codevqa", 0, EVIL, program=f"{EVIL}\n```\n````\n{URLS}", trace=trace, **error)  # type: ignore[arg-type]
            store.add(one, [row, Row(one.id, "pnpvqa", 0, URLS)])
    page, document = write([run])
    html, markdown = page.read_text(encoding="utf-8"), document.read_text(encoding="utf-8")
    shown = assert_safe(html)
    assert "alert('x')" in shown.text and "{{ 7*7 }}" in shown.text and "49 {%" not in shown.text
    outside = re.sub(r"^(`{3,})python\n.*?^\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside and "<img" not in outside and "`````python" in markdown
    assert "alert" not in re.sub(r"&lt;.*?&gt;|alert\(1\)|alert\('x'\)", "", outside)


def test_numbers_and_kinds_of_cases(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [RIGHT] * 5 + [BETTER] * 3 + [WORSE] * 1 + [WRONG] * 2 + [FAILED] * 1)
    page = assert_safe(write([run], cluster="question")[0].read_text(encoding="utf-8"))
    assert "66.7 % (39.1 to 86.2)" in page.text  # 8 of 12
    assert "3 questions changed for the better, 1 for the worse; the interval includes zero" in page.text
    assert "8.3 % (1.5 to 35.4)" in page.text  # one fallback
    assert "ProgramTypeError CodeVQA 1 (8.3 %) 1 0.0 %" in page.text
    with Store.open(run) as store:
        found = choose(store, metric_for("gqa"), None, each=2)
    assert {kind: (count, len(chosen)) for kind, (count, chosen) in found.items()} == {
        "better": (3, 2),
        "worse": (1, 1),
        "fallback": (1, 1),
        "both_wrong": (2, 2),
    }
    for kind, (_, chosen) in found.items():
        assert KINDS[kind] in page.text
        assert [one.id for one, _, _ in chosen] == sorted(one.id for one, _, _ in chosen)


def test_cases_come_from_all_of_a_run(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [BETTER] * 200)
    with Store.open(run) as store:
        drawn = [choose(store, metric_for("gqa"), None, each=5, seed=seed)["better"][1] for seed in range(40)]
        again = choose(store, metric_for("gqa"), None, each=5, seed=3)["better"][1]
    assert all(len(one) == 5 for one in drawn) and drawn[3] == again
    places = [int(example.id) for one in drawn for example, _, _ in one]
    assert min(places) < 20 and max(places) >= 180 and 80 < sum(places) / len(places) < 120


def test_the_paper_is_beside_groups_it_reports(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("covr", "val", ("codevqa", "pnpvqa"))) as store:
        for number in range(53):
            one = example(number, groups={"images": str(number % 5 + 1) if number < 50 else "6"})
            store.add(one, [Row(one.id, "codevqa", 0, "yes"), Row(one.id, "pnpvqa", 0, "no")])
    text = assert_safe(write([tmp_path / "run"])[0].read_text(encoding="utf-8")).text
    assert "54.11 %" in text and re.search(r"By images, beside the paper.*?5 10 0\.0 % .*? 46\.9 % 53\.4 %", text)
    assert DRAWN not in text


def test_bars_are_as_long_as_their_shares(tmp_path: Path) -> None:
    html = write([make(tmp_path / "run", [RIGHT] * 3 + [WRONG])])[0].read_text(encoding="utf-8")
    first = html[html.index("By structural") :]
    found = re.findall(r'style="(?:left:([\d.]+)%;)?width:([\d.]+)%"', first)[4:6]
    assert found == [("", "50.0"), ("9.5", "81.1")]  # of two verify questions, one is right


def test_right_for_the_wrong_reason_is_shown_with_the_truth(tmp_path: Path) -> None:
    car = {"name": "car", "x": 0, "y": 0, "w": 50, "h": 50, "attributes": ["red"], "relations": []}
    (tmp_path / "val_sceneGraphs.json").write_text(
        json.dumps({"0": {"width": 100, "height": 100, "objects": {"1": car}}})
    )
    asked = [("Is there a car?", "yes"), ("What color is the car?", "blue"), ("Is it raining?", "no")]
    calls = [
        {"name": "query", "arguments": {"img": {"image": 1}, "question": question}, "value": value, "error": None}
        for question, value in asked
    ]
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa",))) as store:
        store.add(example(0), [Row("0000", "codevqa", 0, "yes", trace={"calls": calls})])
    page, document = write([tmp_path / "run"], scene_graphs=tmp_path / "val_sceneGraphs.json")
    text = assert_safe(page.read_text(encoding="utf-8")).text
    assert KINDS["wrong_reason"] in text and "100.0 % (20.7 to 100.0) rest on a false value" in text
    assert (
        "'Is there a car?') → 'yes' ✓ right query(image 1, 'What color is the car?') → 'blue' ✗ wrong true: red" in text
    )
    assert "→ 'no' query" not in text and re.search(r"'Is it raining\?'\) → 'no' (?![✓✗])", text)
    assert "# 2. query(image 1, 'What color is the car?') → 'blue'   (true: red)" in document.read_text(
        encoding="utf-8"
    )


def test_only_the_papers_rows_are_set_apart(tmp_path: Path) -> None:
    html = write([make(tmp_path / "run", [RIGHT])])[0].read_text(encoding="utf-8")
    rows = re.findall(r"<tr( class=\"muted\")?>(.*?)</tr>", html, re.DOTALL)
    assert [bool(apart) for apart, row in rows if "paper: " in row] == [True, True]
    assert not any(apart for apart, row in rows if "paper: " not in row)


def test_of_many_groups_the_largest_are_charted(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa",))) as store:
        for number in range(390):
            place = next(n for n in range(20) if number < (n + 1) * (n + 20) // 2)  # group n has n + 10 questions
            store.add(example(number, groups={"kind": f"g{place:02}"}), [Row(f"{number:04}", "codevqa", 0, "yes")])
        sizes = {group.value: group.n for group in summary_of(store, metric_for("gqa")).breakdown["kind"]}
    text = assert_safe(write([tmp_path / "run"])[0].read_text(encoding="utf-8")).text
    charted = re.findall(r"(g\d\d) n=(\d+)", text)
    assert len(charted) == 12 and "8 smaller groups are left out" in text
    assert sorted(int(n) for _, n in charted) == sorted(sizes.values())[-12:]


def test_hidden_answers_still_make_a_page(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("covr", "test", ("codevqa",))) as store:
        for number in range(3):
            store.add(example(number, gold=()), [Row(f"{number:04}", "codevqa", 0, "yes")])
    text = assert_safe(write([tmp_path / "run"])[0].read_text(encoding="utf-8")).text
    assert "3 of them without an answer to compare with" in text and "–" in text


@pytest.mark.parametrize("method", ["codevqa", "pnpvqa"])
def test_one_method_alone(tmp_path: Path, method: Method) -> None:
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", (method,))) as store:
        for number in range(4):
            store.add(example(number), [Row(f"{number:04}", method, 0, "yes" if number else "no")])
    text = assert_safe(write([tmp_path / "run"], cluster="question")[0].read_text(encoding="utf-8")).text
    assert "75.0 % (30.1 to 95.4)" in text and "Program against baseline" not in text
    assert ("No method is right" in text) == (method == "codevqa")


def test_repetitions_over_seeds(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa",), seeds=(0, 1))) as store:
        for number in range(4):
            rows = [Row(f"{number:04}", "codevqa", n, "yes" if number >= n else "no") for n in (0, 1)]
            store.add(example(number), rows)
    text = assert_safe(write([tmp_path / "run"])[0].read_text(encoding="utf-8")).text
    assert "over 2 sampling seeds: 87.50 % on average, standard deviation 17.68 points" in text
    assert "the answer changes on 25.0 %" in text


def test_runs_that_differ_in_seed_only_are_listed_as_if_they_were_others(tmp_path: Path) -> None:
    runs = [
        make(tmp_path / name, [RIGHT] * right + [WRONG] * (20 - right), info={"settings": {"seed": right}})
        for name, right in (("a", 12), ("b", 14), ("c", 10))
    ]
    text = assert_safe(write(runs, tmp_path / "all")[0].read_text(encoding="utf-8")).text
    assert "CodeVQA, over 3 sampling seeds: 60.00 % on average, standard deviation 10.00 points" in text
    assert "the answer changes on 20.0 %" in text and "Between the runs" not in text and "b:" not in text


def test_few_clusters_are_not_said_or_groups_tested_as_if_each_were_alone(tmp_path: Path) -> None:
    answers = [BETTER, RIGHT, RIGHT, WRONG, BETTER, WORSE, BETTER, RIGHT] * 6
    document = write([make(tmp_path / "run", answers)])[1].read_text(encoding="utf-8")
    assert "There are only 24 clusters, fewer than 40" in document
    paired = re.search(r"\| gqa val \| 48 \| 24 \| (.*) \|", document)
    assert paired is not None and "18 / 6" in paired[1] and "(t)" in paired[1]
    table = document.partition("By structural: program against baseline")[2]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith(("| query", "| verify"))][:2]
    alone, together = ([float(row[at].split()[0]) for row in rows] for at in (4, 5))
    assert max(together) <= 1 and min(together) == pytest.approx(2 * min(alone), rel=0.05), rows
    assert "p after Holm" in table and "Detectable: the smallest true difference" in table
    assert "Of fewer than 40 clusters: spatial" in document  # of structural, each is of another picture
    alone_text = write([tmp_path / "run"], cluster="question")[1].read_text(encoding="utf-8")
    assert "(McNemar)" in alone_text and "fewer than 40" not in alone_text


def test_clusters_that_are_not_there_are_refused(tmp_path: Path, codevqa: CommandLine) -> None:
    run = make(tmp_path / "run", [RIGHT, WRONG])
    done = codevqa("report", str(run), "--cluster", "writer")
    assert_one_clear_line(done, "has no 'writer' to cluster by. It has: question, pictures, text, spatial")
    for way in ("pictures", "text", "structural"):
        write([run], cluster=way)


def test_several_runs_on_one_page(tmp_path: Path) -> None:
    first = make(tmp_path / "a" / "run", [RIGHT] * 6 + [WRONG] * 4)
    second = make(tmp_path / "b" / "run", [RIGHT] * 9 + [WRONG] * 1, info={"prompt_hash": "cd"})
    other = make(tmp_path / "c", [RIGHT], info={"dataset": "nlvr2", "split": "dev"})
    changed = make(tmp_path / "d", [RIGHT], info={"data_hash": "2"})
    with pytest.raises(InputError, match="--out"):
        write([first, second])
    text = assert_safe(write([first, second, other, changed], tmp_path / "all")[0].read_text(encoding="utf-8")).text
    assert "a/run" in text and "b/run" in text and "nlvr2" in text
    assert "b/run − a/run codevqa 10 +30.0" in text and "3 / 0" in text
    assert "c − " not in text and "d − " not in text  # other data
    assert "CodeVQA on gqa val, nlvr2 dev" in text and "annotations SHA-256 1 SHA-256 1 SHA-256 1 SHA-256 2" in text


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_run_without_answers_is_refused(tmp_path: Path) -> None:
    Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa",))).close()
    with pytest.raises(InputError, match="no answers yet"):
        write([tmp_path / "run"])


def test_an_out_that_cannot_be_written(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [RIGHT])
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="another --out"):
        write([run], tmp_path / "file")


def test_scene_graphs_of_other_pictures_are_refused(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [RIGHT])
    graphs = tmp_path / "val_sceneGraphs.json"
    graphs.write_text('{"77": {"width": 5, "height": 5, "objects": {}}}')
    with pytest.raises(InputError, match="none of the run's pictures"):
        write([run], scene_graphs=graphs)
    with pytest.raises(InputError, match="No scene graphs at"):
        write([run], scene_graphs=tmp_path / "absent.json")


def test_thumbnails_of_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "torn.jpg").write_bytes(b"\xff\xd8\xff\xe0 torn")
    assert thumbnail(PictureFile(tmp_path / "torn.jpg")).uri == ""
    assert thumbnail(Gone("a.jpg")).name == "a.jpg"
    assert thumbnail(Held("held.png", Image.new("L", (999, 3)))).uri.startswith("data:image/jpeg;base64,")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            {"name": "query", "arguments": {"img": {"image": 1}, "question": "a?"}, "value": "b"},
            "query(image 1, 'a?') → 'b'",
        ),
        ({"name": "get_pos", "arguments": {}, "value": [1.0, 2.25]}, "get_pos() → [1, 2.25]"),
        ({"name": "f", "arguments": {}, "value": None, "error": {"message": "no"}}, "f() → failed: no"),
        ({}, "None() → None"),
    ],
)
def test_calls_as_text(call: dict[str, Any], text: str) -> None:
    assert call_text(call) == text


# -- differences ------------------------------------------------------------------------------------------------------


def test_difference(tmp_path: Path) -> None:
    first = make(tmp_path / "a", [("yes", "no")] * 6 + [("no", "no")] * 4, info={"settings": {"seed": 0}})
    second = make(
        tmp_path / "b",
        [("yes", "no")] * 4 + [("maybe", "no")] * 2 + [("yes", "no")] * 3 + [("never", "no"), ("yes", "no")],
        info={"settings": {"seed": 1}},
        program='answer = query(img, "y")',
    )
    with Store.open(first) as one, Store.open(second) as two:
        found = compare_runs(one, two, keep=2)
        same = compare_runs(one, one)
        baseline = compare_runs(one, two, method="pnpvqa")
    assert (found.questions, found.only_first, found.only_second) == (10, 0, 1)
    assert (found.changed_answers, found.changed_programs) == (6, 10)
    assert found.first is not None and found.first.value == 0.6
    assert found.second is not None and found.second.value == 0.7
    assert found.paired is not None and (found.paired.better, found.paired.worse) == (3, 2)
    assert found.paired.difference.value == pytest.approx(0.1)
    assert [change.id for change in found.better] == ["0006", "0007"]
    assert [change.second for change in found.worse] == ["maybe", "maybe"]
    assert [(change.first, change.second) for change in found.other] == [("no", "never")]
    assert found.settings == ["settings.seed was 0, now 1"]
    assert (same.changed_answers, same.changed_programs, same.better, same.settings) == (0, 0, [], [])
    assert baseline.changed_answers == 0 and baseline.paired is not None and baseline.paired.p_value == 1.0
    lines = "\n".join(describe(found))
    assert "+10.0" in lines and "only in the second: 1" in lines and "| answer = query(img" in lines
    json.dumps(found.to_dict())


def test_drawn_data_is_called_so_where_runs_are_compared(tmp_path: Path) -> None:
    runs = [make(tmp_path / name, [RIGHT, WRONG], info={"drawn": True}) for name in "ab"]
    with Store.open(runs[0]) as one, Store.open(runs[1]) as two:
        found = compare_runs(one, two)
    assert next(describe(found)).startswith("mini-GQA (drawn) val, codevqa")
    assert found.to_dict()["data_name"] == "mini-GQA (drawn)"


def test_a_difference_between_runs_is_tested_by_cluster(tmp_path: Path) -> None:
    """Twelve questions that all gain, in six pictures: McNemar's test would count twelve."""
    first, second = (make(tmp_path / name, [one] * 12) for name, one in (("a", WRONG), ("b", RIGHT)))
    with Store.open(first) as one, Store.open(second) as two:
        grouped, alone = (compare_runs(one, two, cluster=by).paired for by in ("", "question"))
    assert grouped is not None and (grouped.test, grouped.p_value) == ("t", 2 / 2**6)
    assert alone is not None and (alone.test, alone.p_value) == ("McNemar", 2 / 2**12)


def test_how_many_questions_a_gain_needs(tmp_path: Path, codevqa: CommandLine) -> None:
    run = make(tmp_path / "run", [BETTER, RIGHT, RIGHT, WRONG, BETTER, WORSE, BETTER, RIGHT] * 6)
    with Store.open(run) as store:
        paired = summary_of(store, metric_for("gqa")).paired
    assert paired is not None
    questions, clusters = paired.needed(0.02) or (0, 0)
    # By normal quantiles; by t, with as many clusters as it comes to, it is a little more.
    roughly = ((1.96 + 0.8416) * paired.error / 0.02) ** 2 * 24
    assert roughly < clusters < roughly + 4
    done = codevqa("power", "--baseline", str(run), "--gain", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"a gain of 2 points needs {questions:,} questions in {clusters:,} clusters like these" in done.stdout
    assert questions == 2 * clusters and "only 24 clusters" in done.stdout
    same = make(tmp_path / "same", [RIGHT] * 4)
    assert_one_clear_line(codevqa("power", "--baseline", str(same), "--gain", "2"), "no difference that varies")


def test_terminals_are_told_no_control_characters(tmp_path: Path) -> None:
    first = make(tmp_path / "a", [("\x1b[2Jyes", "no")])
    second = make(tmp_path / "b", [("\x1b]0;title\x07", "no")], program="\x1b[31m")
    with Store.open(first) as one, Store.open(second) as two:
        text = "\n".join(describe(compare_runs(one, two)))
    assert "\x1b" not in text and "\x07" not in text and "[2Jyes" in text


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"dataset": "nlvr2"}, "different data: gqa val and nlvr2 val"),
        ({"split": "test"}, "gqa val and gqa test"),
        ({"data_hash": "2"}, "annotations differ"),
    ],
)
def test_other_data_is_refused(tmp_path: Path, info: dict[str, Any], words: str, codevqa: CommandLine) -> None:
    make(tmp_path / "a", [RIGHT])
    make(tmp_path / "b", [RIGHT], info=info)
    assert_one_clear_line(codevqa("diff", str(tmp_path / "a"), str(tmp_path / "b")), words)


def test_runs_without_a_common_question_are_refused(tmp_path: Path, codevqa: CommandLine) -> None:
    make(tmp_path / "a", [RIGHT])
    with Store.create(tmp_path / "b", RunInfo("gqa", "val", ("codevqa",), data_hash="1")) as store:
        store.add(example(9), [Row("0009", "codevqa", 0, "yes")])
    assert_one_clear_line(codevqa("diff", str(tmp_path / "a"), str(tmp_path / "b")), "share no question")


# -- the command line -------------------------------------------------------------------------------------------------


def test_report_and_diff_from_the_command_line(tmp_path: Path, codevqa: CommandLine) -> None:
    first, second = make(tmp_path / "a", [RIGHT, WRONG]), make(tmp_path / "b", [RIGHT, BETTER])
    done = codevqa("report", str(first), str(second), "--out", str(tmp_path / "out"), "--examples", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(tmp_path / "out" / name) for name in ("report.html", "report.md")]
    assert_safe((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    done = codevqa("diff", str(first), str(second))
    assert (done.returncode, done.stderr) == (0, "") and "better 1, worse 0" in done.stdout
    done = codevqa("diff", str(first), str(second), "--json", "--method", "codevqa")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["changed_answers"] == 1 and found["paired"]["better"] == 1


def test_mistakes_are_one_clear_line(tmp_path: Path, codevqa: CommandLine) -> None:
    run = make(tmp_path / "a", [RIGHT])
    assert_one_clear_line(codevqa("report", str(tmp_path / "none")), "is no run")
    assert_one_clear_line(codevqa("report", str(run), str(run)), "--out")
    assert_one_clear_line(codevqa("diff", str(run), str(tmp_path / "none")), "is no run")
    assert_one_clear_line(codevqa("diff", str(run), str(run), "--method", "guess"), "No method 'guess'")


def test_neither_loads_models(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [RIGHT, BETTER, FAILED])
    code = (
        "import sys; from codevqa.cli.main import app\n"
        f"for words in (['report', {str(run)!r}], ['diff', {str(run)!r}, {str(run)!r}]):\n"
        "    app(words, standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers', 'openai'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_random_text_never_breaks_the_page(tmp_path: Path) -> None:
    """Any letters, control characters and markup in every place a model or data can write to."""
    rng = random.Random(3)
    letters = "ab<>&\"'`|*_[]{}%#\\\n\t\r\x00\x0b\u2028\U0001f600é-—"
    words = ["".join(rng.choices(letters, k=30)) for _ in range(60)]
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa", "pnpvqa"))) as store:
        for number in range(20):
            text = iter(rng.sample(words, 8))
            one = example(number, question=next(text), gold=(next(text),), groups={"g": next(text)})
            call = {"name": "query", "arguments": {"q": next(text)}, "value": next(text), "error": None}
            row = Row(one.id, "codevqa", 0, next(text), program=next(text), trace={"calls": [call]})
            store.add(one, [row, Row(one.id, "pnpvqa", 0, next(text))])
    assert_safe(write([tmp_path / "run"])[0].read_text(encoding="utf-8"))
