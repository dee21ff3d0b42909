"""Reports: the page is one safe file that shows cases as they were, and what is refused is refused."""

from __future__ import annotations

import base64
import json
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine, assert_one_clear_line
from PIL import Image
from report_kit import BETTER, FAILED, RIGHT, WRONG, Page, assert_safe, example, make

from codevqa import CodeVQA
from codevqa.core.errors import InputError, SetupError
from codevqa.eval import Store, evaluate
from codevqa.eval.datasets import open_dataset
from codevqa.eval.metrics import metric_for
from codevqa.eval.report.cases import KINDS, call_text, choose, thumbnail
from codevqa.eval.report.paper import DRAWN
from codevqa.eval.report.report import judge_for, summary_of, write
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.run.store import Gone
from codevqa.eval.task import Held, PictureFile, Row
from codevqa.miniworld.export import write as write_data

EVIL = "</code></pre><script>alert('x')</script><img src=x onerror=alert(1)>"
URLS = 'style="background:url(https://example.org/a.png)" {{ 7*7 }} {% raw %} javascript:alert(1)'


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, mini: CodeVQA) -> Path:
    """Eight questions of drawn data, answered by the embedded models."""
    folder = tmp_path_factory.mktemp("real")
    write_data(folder / "data, drawn", images=4, splits=["val"])
    data = open_dataset("gqa", folder / "data, drawn", "val_balanced")
    evaluate(mini, data, folder / "run", limit=8, preset="mini").close()
    return folder


# -- the page ---------------------------------------------------------------------------------------------------------


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
    (real / "data, drawn").rename(moved)
    try:
        page, _ = write([tmp_path / "run"])
        without = Page(page.read_text(encoding="utf-8"))
        assert "img" not in without.tags and ".jpg" in without.text and "right reason" not in without.text
        for data in (moved, moved / "gqa"):
            page, _ = write([tmp_path / "run"], data=data)
            found = assert_safe(page.read_text(encoding="utf-8"))
            assert "img" in found.tags and "right reason" in found.text
    finally:
        moved.rename(real / "data, drawn")


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


def test_cases_come_from_all_of_a_run(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [BETTER] * 200)
    with Store.open(run) as store:
        drawn = [choose(store, metric_for("gqa"), None, each=5, seed=seed)["better"][1] for seed in range(40)]
        again = choose(store, metric_for("gqa"), None, each=5, seed=3)["better"][1]
    assert all(len(one) == 5 for one in drawn) and drawn[3] == again
    places = [int(example.id) for one in drawn for example, _, _ in one]
    assert min(places) < 20 and max(places) >= 180 and 80 < sum(places) / len(places) < 120


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
