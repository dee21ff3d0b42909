"""Reports: the page is one safe file that says what was run and how it went, and what is refused is refused."""

from __future__ import annotations

import json
import random
import re
import webbrowser
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine, assert_one_clear_line
from PIL import Image
from report_kit import BETTER, FAILED, RIGHT, WORSE, WRONG, assert_safe, example, listed, make, read

from codevqa import CodeVQA
from codevqa.eval import Store, evaluate
from codevqa.eval.datasets import open_dataset
from codevqa.eval.report.diff import compare_runs
from codevqa.eval.report.labels import METHOD_LABELS
from codevqa.eval.report.paper import DRAWN
from codevqa.eval.report.reading import summary_of
from codevqa.eval.report.report import write_report
from codevqa.eval.report.table import summary_lines
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.task import DatasetPicture, Row
from codevqa.mini.export import write_datasets as write_data
from codevqa.pages.words import model_name

EVIL = "</code></pre><script>alert('x')</script><img src=x onerror=alert(1)>"
URLS = 'style="background:url(https://example.org/a.png)" {{ 7*7 }} {% raw %} javascript:alert(1)'


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, mini: CodeVQA) -> Path:
    """Eight questions of drawn data, answered by the embedded models."""
    folder = tmp_path_factory.mktemp("real")
    write_data(folder / "data, drawn", images=4, splits=["val"])
    data = open_dataset("gqa", folder / "data, drawn", "val_balanced")
    evaluate(mini, data, folder / "run", limit=8).close()
    return folder


def test_a_real_run(real: Path) -> None:
    page_file = write_report([real / "run"]).page
    assert page_file == real / "run" / "report.html"
    html = page_file.read_text(encoding="utf-8")
    page = assert_safe(html)
    with Store.open(real / "run") as store:
        ours, info = summary_of(store).methods["codevqa"].accuracy, store.info
    assert ours is not None and f"{100 * ours.value:.1f} % (too few to say)" in page.text
    assert any(image.attributes["alt"].startswith("Heat map over") for image in page.all("img"))
    judged = r"Of the right answers with a judged call, .* \d+ of \d+ calls were judged, in \d of the 8 questions whose"
    assert re.search(judged, page.text)
    meaning = "distance of answer distributions (smaller is better) 0.0\\d+ .* 0 means equally often"
    assert re.search(meaning.replace("(", r"\(").replace(")", r"\)"), page.text)
    for words in ("mini-GQA (drawn), split val_balanced", info.prompt_hash[:16], "Right for the right reason"):
        assert words in page.text, words
    assert DRAWN in page.text.split("46.56 %")[1][:1200]
    assert html == write_report([real / "run"]).page.read_text(encoding="utf-8"), "the same run gives the same page"


def many(folder: Path, count: int) -> Path:
    """A long run: pictures that do not compress, maps, long programs that are all different."""
    noise = random.Random(0)
    folder.mkdir()
    for name in "abc":
        rough = Image.frombytes("RGB", (180, 140), noise.randbytes(180 * 140 * 3))
        rough.resize((900, 700)).save(folder / f"{name}.jpg", quality=90)
    heat = [[max(0, 99 - 9 * (abs(row - 5) + abs(column - 9))) for column in range(24)] for row in range(24)]
    seen = {"kind": "gradcam", "images": [1], "text": "x", "relevance": [heat], "position": [9.5, 18.5]}
    call = {"name": "get_pos", "arguments": {"img": {"image": 1}}, "value": [9.5, 18.5], "seconds": 0.1, "error": None}
    calls = [{**call, "index": index, "line": index, "evidence": [seen]} for index in (1, 2)]
    with Store.create(folder / "run", RunInfo("gqa", "val", ("codevqa", "pnpvqa"), prompt_hash="0")) as store:
        for number in range(count):
            each = example(number, images=(DatasetPicture(folder / f"{'abc'[number % 3]}.jpg"),))
            program = f"get_pos(img, 'x')\nget_pos(img, 'y')\nanswer = '{noise.randbytes(950).hex()}'"
            ours, theirs = "yes" if number % 2 else "no", "yes" if number % 5 else "no"
            row = Row(each.id, "codevqa", 0, ours, program=program, trace={"calls": calls})
            store.add(each, [row, Row(each.id, "pnpvqa", 0, theirs)])
    return folder / "run"


def test_a_long_run_has_a_small_page_with_examples_of_every_outcome(tmp_path: Path) -> None:
    html = write_report([run := many(tmp_path / "many", 1200)]).page.read_text(encoding="utf-8")
    page = assert_safe(html)
    assert 1_000_000 < len(html.encode()) < 3_000_000
    shown = [element.text for element in page.all("details", cls="example")]
    assert 4 <= len(shown) < 12 and f"{len(shown)} of 1,200 examples shown" in page.text
    first = [re.findall("[✓✗]", text) for text in shown[:4]]
    assert sorted(first) == [["✓", "✓"], ["✓", "✗"], ["✗", "✓"], ["✗", "✗"]]
    maps = [element for element in page.all("img") if element.attributes["alt"].startswith("Heat map over image 1")]
    assert len(maps) == 2 * len(shown) and "most relevant at the top" in maps[0].attributes["alt"]
    data = listed(run / "report.html")
    assert data["every"] > 1 and len(data["rows"]) == -(-1200 // data["every"]) > 300


def test_pictures_that_are_gone_are_named_and_those_that_moved_are_found(tmp_path: Path) -> None:
    Image.new("RGB", (99, 30)).save(tmp_path / "real.png")
    for name, here in (("torn.jpg", tmp_path / "gone"), ("real.png", tmp_path / "else" / "deep")):
        images = (DatasetPicture(here / name),)
        with Store.create(tmp_path / f"run {name}", RunInfo("gqa", "val", ("codevqa",))) as store:
            store.add(example(0, images=images), [Row("0000", "codevqa", 0, "yes")])
    assert not read(tmp_path / "run torn.jpg").all("img")
    (picture,) = read(tmp_path / "run real.png", data=tmp_path).all("img")
    assert picture.attributes["alt"] == "image 1, real.png"


def test_nothing_of_data_or_models_is_markup(tmp_path: Path) -> None:
    run = tmp_path / f"run <b>{'x'}"
    info: dict[str, Any] = {"split": EVIL, "preset": EVIL, "models": {"writer": EVIL}, "machine": URLS, "prompts": URLS}
    with Store.create(run, RunInfo("gqa", methods=("codevqa", "pnpvqa"), prompt_hash="1", **info)) as store:
        for number in range(4):
            question = example(
                number,
                question=f"{EVIL} {URLS} {number}",
                gold=(EVIL,),
                images=(DatasetPicture(Path(EVIL)), DatasetPicture(Path(f"/x/{URLS}"))),
                groups={EVIL: f"{EVIL}{number}"},
            )
            error = {"error": EVIL, "message": URLS} if number % 2 else {}
            call = {"name": EVIL, "arguments": {"img": {"image": EVIL}, "q": URLS}, "value": [EVIL], "error": None}
            trace = {"calls": [call, {**call, "error": {"message": EVIL}}]}
            row = Row(question.id, "codevqa", 0, EVIL, program=f"{EVIL}\n```\n````\n{URLS}", trace=trace, **error)  # type: ignore[arg-type]
            store.add(question, [row, Row(question.id, "pnpvqa", 0, URLS)])
    shown = read(run)
    assert "alert('x')" in shown.text and "{{ 7*7 }}" in shown.text and "49 {%" not in shown.text


@pytest.mark.parametrize(
    "trace", [{"written": "x"}, {"baseline": ["a"]}, {"calls": [{"name": [1], "evidence": 7}]}, {"drafts": 4}], ids=str
)
def test_of_a_damaged_trace_program_and_answer_are_left(tmp_path: Path, trace: dict[str, Any]) -> None:
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa",), prompt_hash="0")) as store:
        store.add(example(0), [Row("0000", "codevqa", 0, "yes", program="answer = 'yes'", trace=trace)])
    shown = read(tmp_path / "run").element("details", cls="example").text
    assert "answer = 'yes'" in shown and "Is thing 0 red?" in shown


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_accuracy_difference_fallbacks_and_errors(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [RIGHT] * 5 + [BETTER] * 3 + [WORSE] * 1 + [WRONG] * 2 + [FAILED] * 1, alone=True)
    text = read(run).text
    assert "gqa val 12 66.7 % (39.1 to 86.2) 50.0 % (25.4 to 74.6)" in text  # 8 of 12, and 6
    assert "Of 12 questions in 12 clusters it does better on 3 and worse on 1. The interval includes zero" in text
    assert "CodeVQA 8.3 % (1.5 to 35.4) 72.7 %" in text  # one fallback, and 8 of 11 without it
    assert "PnP-VQA cannot – 0 –" in text, "without a program there is no fallback"
    assert "ProgramTypeError CodeVQA 1 (8.3 %) 1 0.0 % 0011: line 1: no" in text


def test_groups_that_say_next_to_nothing_are_apart_untested_and_never_beside_the_paper(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("covr", "val", ("codevqa", "pnpvqa"))) as store:
        for number in range(24):
            question = example(number, groups={"images": "1" if number < 10 else "2" if number < 15 else "3"})
            store.add(question, [Row(question.id, "codevqa", 0, "yes"), Row(question.id, "pnpvqa", 0, "no")])
    html = write_report([tmp_path / "run"]).page.read_text(encoding="utf-8")
    rows = re.findall(r'<tr( class="muted")?>\s*<th scope="row">([^<]*)</th><td>(\d+)</td>(.*?)</tr>', html)
    groups = {name: (bool(muted), n, rest.count("<td>–</td>")) for muted, name, n, rest in rows if name in "123"}
    assert groups == {"1": (False, "10", 0), "2": (True, "5", 6), "3": (True, "9", 6)}
    text = assert_safe(html).text
    assert "paper: covr test_paraphrased 7,024 54.11 % 49.06 % +5.05" in text and DRAWN not in text
    assert re.search(r"By number of pictures .*? 1 10 100\.0 % .*? 75\.0 % 91\.7 % ", text)


def test_several_runs_are_one_table_the_best_first(tmp_path: Path) -> None:
    first = make(tmp_path / "a" / "run", [RIGHT] * 6 + [WRONG] * 4)
    second = make(tmp_path / "b" / "run", [RIGHT] * 9 + [WRONG] * 1, info={"prompt_hash": "cd"})
    other = make(tmp_path / "c", [RIGHT], info={"dataset": "nlvr2", "split": "dev"})
    changed = make(tmp_path / "d", [RIGHT] * 4 + [WRONG], info={"data_hash": "2"})
    text = read(first, second, other, changed, out=tmp_path / "all").text
    result = text.split(" Result ")[2].partition(" Between the runs ")[0]
    assert re.findall(r"(\S+): (\S+ \S+) (\d+) (\d+)\.\d %", result) == [
        ("b/run", "gqa val", "10", "90"),
        ("d", "gqa val", "5", "80"),
        ("a/run", "gqa val", "10", "60"),
        ("c", "nlvr2 dev", "1", "100"),
    ]
    assert "b/run − a/run CodeVQA 10 +30.0" in text and "3 / 0" in text
    assert "c − " not in text and "d − " not in text  # other data
    assert "annotations SHA-256 1 SHA-256 1 SHA-256 1 SHA-256 2" in text


def test_parts_of_a_data_set_are_reported_side_by_side(tmp_path: Path) -> None:
    for number in range(2):
        with Store.create(tmp_path / str(number), RunInfo("gqa", "val", ("codevqa",), prompt_hash="0")) as store:
            store.add(example(number), [Row(f"{number:04}", "codevqa", 0, "yes")])
    text = read(tmp_path / "0", tmp_path / "1", out=tmp_path / "both").text
    assert "1: gqa val 1 100.0 %" in text and "Between the runs" not in text


# -- the command line --------------------------------------------------------------------------------------------------


def test_reports_from_the_command_line(tmp_path: Path, codevqa: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    first, second = make(tmp_path / "a", [RIGHT, WRONG]), make(tmp_path / "b", [RIGHT, BETTER], info={"preset": "x"})
    page = tmp_path / "out" / "report.html"
    done = codevqa("report", first, second, "--out", page.parent, "--open")
    assert (done.returncode, done.stderr, opened) == (0, "", [page.as_uri()])
    lines = done.stdout.splitlines()
    assert lines[-1] == str(page) and "b" in lines and any(line.startswith("codevqa  0.500 [") for line in lines)
    report = json.loads(codevqa("report", first, second, "--out", page.parent, "--json").stdout)
    assert report["page"] == str(page) and [run["run"] for run in report["runs"]] == ["a", "b"]
    assert [run["methods"]["codevqa"]["accuracy"]["value"] for run in report["runs"]] == [0.5, 1.0]
    with Store.open(first, writable=True) as store:  # a run can be under way
        store.add(example(2), [Row("0002", "codevqa", 0, "yes")])
    assert codevqa("report", first).returncode == 0 and len(opened) == 1
    assert len(listed(first / "report.html")["rows"]) == 3


def test_mistakes_are_one_clear_line(tmp_path: Path, codevqa: CommandLine) -> None:
    run = make(tmp_path / "a", [RIGHT])
    (tmp_path / "file").touch()
    Store.create(tmp_path / "empty", RunInfo("gqa", "val", ("codevqa",))).close()
    for words, message in (
        (("report", tmp_path / "empty"), "no answers yet"),
        (("report", run, run), "Give --out DIR"),
        (("report", run, "--out", tmp_path / "file"), "Write it elsewhere: codevqa report RUN --out DIR"),
        (("diff", run, tmp_path / "none"), "is no run"),
        (("diff", run, make(tmp_path / "b", [RIGHT], info={"dataset": "nlvr2"})), "gqa val and nlvr2 val"),
        (("diff", run, make(tmp_path / "c", [RIGHT], info={"data_hash": "2"})), "annotations differ"),
    ):
        assert_one_clear_line(codevqa(*words), message)


def test_what_two_runs_do_otherwise(tmp_path: Path, codevqa: CommandLine) -> None:
    first = make(tmp_path / "a", [BETTER] * 6 + [WRONG] * 4, info={"settings": {"seed": 0}})
    answers = [BETTER] * 4 + [("maybe", "no")] * 2 + [BETTER] * 3 + [("never", "no"), BETTER]
    second = make(tmp_path / "b", answers, info={"settings": {"seed": 1}}, program='answer = query(img, "y")')
    with Store.open(first) as first_store, Store.open(second) as second_store:
        comparison = compare_runs(first_store, second_store)
        baseline = compare_runs(first_store, second_store, method="pnpvqa")
    assert (comparison.questions, comparison.only_first, comparison.only_second) == (10, 0, 1)
    assert (comparison.changed_answers, comparison.changed_programs) == (6, 10)
    assert [accuracy.value for accuracy in (comparison.first, comparison.second) if accuracy] == [0.6, 0.7]
    assert comparison.paired is not None and (comparison.paired.better, comparison.paired.worse) == (3, 2)
    assert comparison.settings == ["settings.seed was 0, now 1"]
    assert baseline.changed_answers == 0 and baseline.paired is not None and baseline.paired.p_value == 1.0
    assert "+10.0" in codevqa("diff", first, second).stdout
    report = json.loads(codevqa("diff", first, second, "--json", "--method", "codevqa").stdout)
    assert report["changed_answers"] == 6 and report["paired"]["better"] == 3


# -- what is seen first ------------------------------------------------------------------------------------------------


def test_the_page_begins_with_the_figures_that_the_summary_and_the_terminal_have(real: Path) -> None:
    written = write_report([real / "run"])
    html = written.page.read_text(encoding="utf-8")
    text = assert_safe(html).text
    summary = written.runs[0].summary
    terminal = "\n".join(summary_lines(written.runs[0].info, summary))
    first = text.partition(" Cost ")[2].partition(" Accuracy ")[2].partition(" Cost ")[0]
    for method, figures in summary.methods.items():
        assert figures.accuracy is not None and figures.cost is not None
        assert f"{METHOD_LABELS[method]} {100 * figures.accuracy.value:.1f} % (too few to say), n 8" in first
        assert re.search(rf"{METHOD_LABELS[method]} {figures.cost.seconds:.3f} {figures.cost.model_seconds:.3f} ", text)
        assert re.search(rf"(?m)^{method} .* {figures.cost.seconds:.3f} +\d+$", terminal)
    assert "(too few to say)" in first, "a difference on eight questions"
    for title in ("Accuracy", "Difference in points", "Distribution of seconds a question", "By type of question"):
        assert re.search(rf">{title} <span class=\"soft\">[^<]* n [^<]*, drawn pictures</span>", html), title
    assert "@mini" not in text and "writer mini language model (part of CodeVQA)" in text
    assert len(html) < 3_000_000


def test_the_contents_lead_everywhere_and_no_note_comes_twice(tmp_path: Path) -> None:
    html = write_report([make(tmp_path / "run", [RIGHT] * 12 + [BETTER] * 9 + [WORSE])]).page.read_text(
        encoding="utf-8"
    )
    links = re.findall(r'href="#([^"]*)">([^<]*)</a>', html)
    for place, title in links:
        assert re.search(rf'<section id="{place}">\s*<h2>{title}</h2>', html), title
    assert links[0][1] == "Result" and len(links) == html.count("<h2>")
    sentences = [
        sentence for note in re.findall(r'<p class="note">([^<]*)<', html) for sentence in re.split(r"(?<=\.) ", note)
    ]
    assert len(sentences) == len(set(sentences)) > 3


def test_answers_that_are_confused_are_counted(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa",))) as store:
        for number, (gold, prediction) in enumerate(
            [("Yes", "yes"), ("yes", "no"), ("yes", "no"), ("no", "no"), ("no", "x")]
        ):
            store.add(example(number, gold=(gold,)), [Row(f"{number:04}", "codevqa", 0, prediction)])
        counts = summary_of(store).confusion["codevqa"]
    cells = [cell for cell in read(tmp_path / "run").all("td") if "style" in cell.attributes]
    assert [(cell.text, cell.attributes["class"]) for cell in cells] == [
        ("1", "hit"),
        ("2", "miss"),
        ("1", "hit"),
        ("1", "miss"),
    ]
    assert counts == {"yes": {"yes": 1, "no": 2, "other": 0}, "no": {"yes": 0, "no": 1, "other": 1}}


def test_models_have_the_names_that_people_know() -> None:
    assert model_name("@mini/weights/captioner") == "mini captioner (part of CodeVQA)"
    assert model_name("Salesforce/blip-vqa-base") == "Salesforce/blip-vqa-base"
    assert model_name("/srv/models/blip-large") == "blip-large"
