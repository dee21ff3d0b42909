"""How long a report of many questions keeps its reader waiting, in Chromium: until it paints, lists, filters, opens.

    python -m benchmarks.report_page --questions 20000

The run is made through the real store, with programs, captions and groups of GQA's size. Targets for 20,000
questions on two slow cores: first paint within 1.5 s, a filter or a search within 0.2 s.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codevqa.eval.report.report import write
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.run.store import Store
from codevqa.eval.task import Example, PictureFile, Row

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROUNDS = 3
WORDS = ("cat", "dog", "bus", "tree", "left", "right", "red", "blue", "small", "large", "table", "chair", "holding")
KINDS = ("structural", "semantic", "detailed", "open", "words", "steps", "spatial", "and", "or")
FIRST = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
LISTED = "performance.getEntriesByName('listed')[0].startTime"
AFTER = """([selector, value, event]) => new Promise(done => {
    const one = document.querySelector(selector), began = performance.now();
    one.value = value;
    one.dispatchEvent(new Event(event, {bubbles: true}));
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
})"""
"""Milliseconds from a choice to the frame that shows it."""
CHOICES = (
    ("filter by group", ".more label:nth-child(3) select", "det3", "change"),
    ("filter by method", "#questions .filters select", "wrong", "change"),
    ("clear", ".find button", "", "click"),
    ("search", "input[type=search]", "holding table 19", "input"),
    ("search, nothing found", "input[type=search]", "xyzzy", "input"),
    ("clear again", ".find button", "", "click"),
)


def questions(count: int, rng: random.Random) -> Iterator[tuple[Example, list[Row]]]:
    """Yields examples with both methods' rows."""
    for number in range(count):
        subject, other, relation = rng.sample(WORDS, 3)
        question = f"Is the {subject} that is {relation} the {other} number {number} like the {rng.choice(WORDS)}?"
        program = (
            f'img = open_image("Image1.jpg")\nthere = query(img, "{question}")\nx, y = get_pos(img, "{subject}")\n'
            f'if there == "yes" and x < 12:\n    answer = query(img, "What is it?")\nelse:\n    answer = "no"'
        )
        groups = {kind: f"{kind[:3]}{rng.randrange(2 + 6 * place)}" for place, kind in enumerate(KINDS)}
        picture = PictureFile(Path(f"/pictures/{number // 2}.jpg"))
        example = Example(f"{number:08}", question, (picture,), "image", ("yes",), groups, str(number // 2))
        captions = [[" ".join(rng.choices(WORDS, k=12)) for _ in range(7)]]
        evidence = {"kind": "pnpvqa", "text": question, "captions": captions, "completion": " yes", "images": [1]}
        asked = {"img": {"image": 1}, "question": question}
        calls = [{"name": "query", "arguments": asked, "value": "yes", "evidence": [evidence]} for _ in range(2)]
        failed: dict[str, Any] = {"fallback": True, "error": "ProgramTypeError", "message": "line 2: no such name"}
        ours = Row(
            example.id,
            "codevqa",
            0,
            rng.choice(("yes", "no")),
            program=program,
            trace={"calls": calls, "baseline": []},
            seconds=rng.random(),
            tokens=900,
            **(failed if rng.random() < 0.05 else {}),
        )
        theirs = Row(example.id, "pnpvqa", 0, rng.choice(("yes", "no")), trace={"calls": [], "baseline": [evidence]})
        yield example, [ours, theirs]


def make_run(folder: Path, count: int) -> Path:
    """Makes a run of that many questions."""
    with Store.create(folder, RunInfo("gqa", "val", ("codevqa", "pnpvqa"), prompts="gqa", prompt_hash="0")) as store:
        for example, rows in questions(count, random.Random(0)):
            store.add(example, rows)
    return folder


def measure(browser: Browser, page: Path) -> dict[str, float]:
    """Returns milliseconds; medians of several rounds, each with a fresh page."""
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        tab = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        began = time.perf_counter()
        tab.goto(page.as_uri(), wait_until="commit")
        tab.locator("#questions[data-whole]").wait_for()
        took = {"first paint": tab.evaluate(FIRST), "first questions": tab.evaluate(LISTED)}
        took["all questions"] = 1000 * (time.perf_counter() - began)
        took |= {name: tab.evaluate(AFTER, [*what]) for name, *what in CHOICES}
        began = time.perf_counter()
        tab.locator("ol.rows summary").nth(1).click()
        tab.locator(".opened h3").first.wait_for()
        took["open a trace"] = 1000 * (time.perf_counter() - began)
        for name, value in took.items():
            found.setdefault(name, []).append(value)
        tab.context.close()
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    """Makes a run and its report, and measures the page."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=20_000)
    count = parser.parse_args().questions
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", count)
        began = time.perf_counter()
        page, _ = write([run])
        seconds = time.perf_counter() - began
        size = sum(file.stat().st_size for file in (page, *page.parent.glob("report-rows/*")))
        print(f"{count:,} questions: written in {seconds:.1f} s, {size / 1e6:.1f} MB")
        with sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            for name, milliseconds in measure(browser, page).items():
                print(f"  {name:<24}{milliseconds:8.0f} ms")


if __name__ == "__main__":
    main()
