"""The list of all questions in a report, in a real browser: what is chosen is shown, what is opened is its trace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from browser_kit import Visitor
from pages_kit import visiting
from PIL import Image

from codevqa.eval import Store
from codevqa.eval.report.report import write_report
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.task import DatasetPicture, Example, Row

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

EVIL = "</script></details><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
COUNT = 120
CAPTION = "a red car parked on a street"


@pytest.fixture
def reader(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    with visiting(browser) as visit:

        def read(page: Path, **options: Any) -> Visitor:
            visitor = visit(page, **options)
            visitor.page.locator("#questions[data-whole]").wait_for()
            return visitor

        yield read


def question(number: int, folder: Path) -> tuple[Example, list[Row]]:
    """One of eight kinds of outcome, by its number; the first has evil words in it."""
    evil = EVIL if number == 0 else ""
    ours, theirs = "yes" if number % 2 else "no", "yes" if number % 4 < 2 else "no"
    failed: dict[str, Any] = {"fallback": True, "error": "ProgramTypeError", "message": evil} if number % 8 == 6 else {}
    images = (DatasetPicture(folder / "0.png"),)
    groups = {"structural": "verify" if number % 3 else "query", "words": str(number % 5)}
    example = Example(f"q{number:04}", f"Is thing {number} red?{evil}", images, "image", ("yes",), groups, str(number))
    asked = {"img": {"image": 1}, "question": f"What color is the car?{evil}"}
    evidence = {"kind": "pnpvqa", "text": f"asked {number}{evil}", "captions": [[CAPTION + evil]], "completion": " red"}
    call: dict[str, Any] = {"index": 1, "line": 1, "seconds": 0.1, "error": None, "evidence": [evidence]}
    call |= {"name": "query", "arguments": asked, "value": "red" if number % 5 else "blue"}
    attempts = [{"program": {"source": f"first try {number}"}, "error": {"type": "ProgramTypeError", "message": "no"}}]
    trace = {"calls": [call], "attempts": attempts, "printed": evil, "baseline": []}
    program = f"seen = query(img, 'thing {number}')\nanswer = seen{evil}"
    return example, [
        Row(example.id, "codevqa", 0, ours, program=program, trace=trace, seconds=1.5, tokens=12, **failed),
        Row(example.id, "pnpvqa", 0, theirs, trace={"calls": [], "baseline": [{**evidence, "text": "baseline"}]}),
    ]


def make(folder: Path, count: int = COUNT) -> Path:
    """A run of questions about one picture, with its scene graph beside it."""
    folder.mkdir()
    Image.new("RGB", (320, 200), "red").save(folder / "0.png")
    car = {"name": "car", "x": 0, "y": 0, "w": 50, "h": 50, "attributes": ["red"], "relations": []}
    graphs = {"0": {"width": 320, "height": 200, "objects": {"1": car}}}
    (folder / "val_sceneGraphs.json").write_text(json.dumps(graphs))
    with Store.create(folder / "run", RunInfo("gqa", "val", ("codevqa", "pnpvqa"), prompt_hash="0")) as store:
        for number in range(count):
            store.add(*question(number, folder))
    return folder / "run"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make(tmp_path_factory.mktemp("rows") / "made")
    return write_report([run], data=run.parent).page


def choose(seen: Page, label: str, value: str) -> None:
    box = seen.locator("#questions .filters label", has=seen.get_by_text(label, exact=True))
    box.locator("select").select_option(value)


def status(seen: Page) -> str:
    return seen.locator("#questions [role=status]").inner_text()


def opened(seen: Page, text: str) -> Locator:
    """Opens the first question that says so, from the keyboard, and returns the row with its trace."""
    row = seen.locator(".rows tbody > tr", has_text=text).first
    row.get_by_role("button").press("Enter")
    item = seen.locator(".rows tbody > tr:has(.opened)").first
    item.locator(".opened pre").wait_for()
    return item


CHOICES: dict[tuple[tuple[str, str], ...], Callable[[int], bool]] = {
    (("CodeVQA", "wrong"), ("PnP-VQA", "right")): lambda n: n % 4 == 0,
    (("Methods compared", "only one is right"),): lambda n: n % 4 in (0, 3),
    (("Judged calls", "any wrong"), ("CodeVQA", "right")): lambda n: n % 10 == 5,
    (("Error", "no error"),): lambda n: n % 8 != 6,
    (("type of question", "verify"), ("words in the question", "2"), ("CodeVQA", "wrong")): lambda n: (
        n % 10 == 2 and n % 3 > 0
    ),
}


def test_what_is_chosen_is_what_is_shown(page: Path, reader: Callable[..., Visitor]) -> None:
    seen = reader(page).page
    assert status(seen) == f"{COUNT} questions; CodeVQA right in 60; PnP-VQA right in 60"
    for chosen, holds in CHOICES.items():
        for label, value in chosen:
            choose(seen, label, value)
        wanted = [number for number in range(COUNT) if holds(number)]
        ours, theirs = sum(n % 2 for n in wanted), sum(n % 4 < 2 for n in wanted)
        expected = f"{len(wanted)} of {COUNT} questions; CodeVQA right in {ours}; PnP-VQA right in {theirs}"
        assert status(seen) == expected, chosen
        shown = seen.locator(".rows .asked").all_inner_texts()
        assert shown[1:] == [f"Is thing {number} red?" for number in wanted][1:100], chosen
        seen.get_by_role("button", name="Clear").click()
    seen.get_by_role("button", name="Right for the wrong reason (12)").click()
    assert status(seen).startswith(f"12 of {COUNT} questions")


def test_three_methods_are_looked_at_two_by_two(tmp_path: Path, reader: Callable[..., Visitor]) -> None:
    run = make(tmp_path / "made", 24)
    with Store.open(run, writable=True) as store:
        for place, example in enumerate(list(store.examples())):
            store.add(example, [Row(example.id, "direct", 0, "yes" if place % 3 else "no")], place=place)
    seen = reader(write_report([run]).page).page
    assert status(seen) == "24 questions; CodeVQA right in 12; Direct right in 16; PnP-VQA right in 12"
    for look, chosen in {
        "The program is right, the direct question wrong (4)": {"CodeVQA": "right", "Direct": "wrong"},
        "The program is wrong, PnP-VQA right (6)": {"CodeVQA": "wrong", "PnP-VQA": "right"},
        "No method is right (2)": {"CodeVQA": "wrong", "Direct": "wrong", "PnP-VQA": "wrong"},
    }.items():
        seen.get_by_role("button", name=look).click()
        shown = status(seen)
        seen.get_by_role("button", name="Clear").click()
        for label, value in chosen.items():
            choose(seen, label, value)
        assert status(seen) == shown != "" and shown.startswith(look.rpartition("(")[2].rstrip(")")), look
        seen.get_by_role("button", name="Clear").click()
    choose(seen, "Methods compared", "only one is right")
    assert status(seen).startswith("8 of 24")


def test_a_question_opens_its_own_trace(page: Path, reader: Callable[..., Visitor]) -> None:
    seen = reader(page, state="#search=117").page
    item = opened(seen, "thing 117")
    text = item.inner_text()
    assert "seen = query(img, 'thing 117')\nanswer = seen" in text and "1.50 s, 12 tokens" in text
    assert "query(image 1, 'What color is the car?') -> 'red'  ✓ right" in text and f"read: {CAPTION}" in text
    assert "first try 117" in text and "type of question: query; words in the question: 2" in text
    seen.get_by_role("button", name="Clear").click()
    opened(seen, "thing 1 ").get_by_role("link", name="With its pictures").click()
    picture = seen.locator(".example", has_text="thing 1 ").locator("img").first
    picture.evaluate("one => one.decode()")
    assert picture.is_visible() and picture.evaluate("one => one.naturalWidth") == 320
    choose(seen, "Judged calls", "query wrong")
    assert "-> 'blue'  ✗ wrong, true: red" in opened(seen, "thing 5 ").inner_text()


def test_a_head_that_is_pressed_sorts_its_table(page: Path, reader: Callable[..., Visitor]) -> None:
    seen = reader(page).page
    first = seen.locator(".rows .asked").first
    head = seen.get_by_role("columnheader", name="CodeVQA").and_(seen.locator(".rows th"))
    assert head.get_attribute("aria-sort") == "none"
    for order, number in (("ascending", 1), ("descending", 0)):
        head.get_by_role("button").press("Enter")
        assert head.get_attribute("aria-sort") == order and f"thing {number} red" in first.inner_text()
    again = reader(page, state=f"#{seen.url.partition('#')[2]}").page
    assert again.locator("th[aria-sort=descending]").inner_text().startswith("CodeVQA")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "none" and "thing 0 red" in first.inner_text()
    seen.locator(".rows").get_by_role("button", name="Question", exact=False).first.click()
    assert "thing 0 red" in first.inner_text() and "thing 2 red" in seen.locator(".rows .asked").nth(2).inner_text()

    seen.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    table = seen.locator("table", has=seen.get_by_role("columnheader", name="Group")).last
    cells = table.locator("tbody tr td:nth-child(3)")
    table.get_by_role("button", name="CodeVQA").click()
    shares = [float(text.partition("\N{NO-BREAK SPACE}")[0]) for text in cells.all_inner_texts()]
    assert len(shares) == 5 and shares == sorted(shares)


def test_filters_have_plain_names_that_differ(tmp_path: Path, reader: Callable[..., Visitor]) -> None:
    groups = {"structural": "a", "spatial_final": "yes", "steps": "1", "error": "x", "run": "y"}
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa", "pnpvqa"))) as store:
        for place in range(2):
            answered, rows = question(6 + place, tmp_path)
            values = groups if place else {key: f"other {value}" for key, value in groups.items()}
            store.add(replace(answered, groups=values), rows)
    seen = reader(write_report([tmp_path / "run"]).page).page
    names = {
        box.locator("legend").inner_text(): box.locator("label span").all_inner_texts()
        for box in seen.locator("fieldset").all()
    }
    assert names == {
        "Filter by answer": ["CodeVQA", "Methods compared", "Error"],
        "Filter by question": [
            *("Type of question", "Spatial relation in the last step", "Reasoning steps", "Error", "Run"),
        ],
    }


@pytest.mark.slow
def test_no_column_is_cut_on_a_narrow_window_or_on_paper(tmp_path: Path, reader: Callable[..., Visitor]) -> None:
    run = tmp_path / "run"
    with Store.create(run, RunInfo("gqa", "val", ("codevqa", "direct", "pnpvqa"))) as store:
        for number in range(COUNT):
            answered, rows = question(number, tmp_path)
            kinds = {"spatial": "yes" if number % 2 else "no", "detailed": f"comparativeChoose{number % 4}"}
            store.add(
                replace(answered, groups=kinds, gold=(f"answer {number % 15}",)),
                [*rows, Row(answered.id, "direct", 0, f"answer {number % 14}")],
            )
    seen = reader(write_report([run]).page)
    seen.page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    wide = """[...document.querySelectorAll('.wide')].filter(one => one.scrollWidth > one.clientWidth)
      .map(one => [one.innerText.slice(0, 80), one.scrollWidth, one.clientWidth])"""
    for width, media in ((1400, "screen"), (1000, "screen"), (820, "screen"), (702, "print")):
        seen.page.set_viewport_size({"width": width, "height": 900})
        seen.page.emulate_media(media=media)  # type: ignore[arg-type]
        assert seen.page.evaluate(wide) == [] and seen.overflow() <= 0, width
        assert seen.page.locator(".filters").first.is_visible() == (media == "screen")
    seen.page.set_viewport_size({"width": 390, "height": 900})
    seen.page.emulate_media(media="screen")
    assert seen.overflow() <= 0


def test_the_list_goes_on_and_choices_are_in_the_address(page: Path, reader: Callable[..., Visitor]) -> None:
    seen = reader(page).page
    more = seen.get_by_role("button", name="More")
    assert seen.locator(".rows tbody > tr").count() == 100
    more.click()
    assert seen.locator(".rows tbody > tr").count() == COUNT and more.is_hidden()
    choose(seen, "Error", "no error")
    assert seen.locator(".rows .asked").nth(1).inner_text() == "Is thing 1 red?"
    again = reader(page, state=f"#{seen.url.partition('#')[2]}").page
    assert status(again) == status(seen) != ""
    assert again.locator(".rows .asked").all_inner_texts() == seen.locator(".rows .asked").all_inner_texts()
    strange = reader(page, state=f"#error={quote(EVIL)}&nothing=1").page
    assert status(strange).startswith(f"0 of {COUNT} questions")


def test_what_a_run_says_is_text(page: Path, reader: Callable[..., Visitor]) -> None:
    seen = reader(page).page
    item = opened(seen, "thing 0 ")
    item.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert item.locator("script, img[onerror], img[src=x]").count() == 0 and item.inner_text().count(EVIL) == 3
    assert seen.title() == "CodeVQA on gqa val"


@pytest.mark.slow
def test_the_policy_holds_where_escaping_would_not(tmp_path: Path, reader: Callable[..., Visitor]) -> None:
    run = make(tmp_path / "made", 30)
    (run / "evil.js").write_text("document.title = 'taken'")
    evil = f"{EVIL.removeprefix('</script></details>')}<script src='evil.js'></script><main>"
    html = write_report([run]).page.read_text(encoding="utf-8").replace("<main>", evil, 1)
    (run / "evil.html").write_text(html, encoding="utf-8")
    seen = reader(run / "evil.html", innocent=False)
    assert seen.page.title() == "CodeVQA on gqa val" and len(seen.complaints) >= 3
    (run / "free.html").write_text(html.replace("http-equiv", "name", 1), encoding="utf-8")
    free = reader(run / "free.html", innocent=False).page
    free.wait_for_function("document.title === 'taken'")  # the attack itself works
    strict = reader(run / "report.html", innocent=False).page
    with pytest.raises(Exception, match="TrustedHTML"):  # nor may the page's own script make markup of texts
        strict.evaluate("document.querySelector('h1').innerHTML = 'x'")
