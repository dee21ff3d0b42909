"""What axe finds on the demo, on an answer's page and on a report: light and dark, on a phone and on a desk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser_kit import PICTURES, Visitor
from cli_kit import GARDEN, ROOT, CommandLine
from pages_kit import visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SEEN = ((1400, "light"), (390, "dark"))
OPEN = "document.querySelectorAll('details').forEach(one => { one.open = true })"


def find_violations(visitor: Visitor) -> list[str]:
    """Opens all that is folded; returns what is grave on the page, and where it was seen."""
    visitor.page.evaluate(OPEN)
    lines: list[str] = []
    for width, scheme in SEEN:
        visitor.page.set_viewport_size({"width": width, "height": 900})
        visitor.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        lines += [f"{violation} ({scheme}, {width} px)" for violation in visitor.grave()]
    return lines


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, codevqa: CommandLine) -> dict[str, Path]:
    """Pages that commands write. They run a loop of their own, so before there is a browser."""
    folder = tmp_path_factory.mktemp("saved")
    answer, run = folder / "answer.html", folder / "run"
    assert codevqa("ask", GARDEN, "-q", "Is the red house to the left of the green tree?", "--trace", answer).stdout
    assert codevqa("eval", ROOT / "examples" / "questions.jsonl", "--out", run).returncode == 0
    assert codevqa("report", run).returncode == 0
    return {"answer": answer, "report": run / "report.html"}


@pytest.mark.parametrize("name", ["answer", "report"])
def test_axe_finds_nothing_grave_on_a_page_that_was_written(
    saved: dict[str, Path], browser: Browser, name: str
) -> None:
    with visiting(browser) as visit:
        assert find_violations(visit(saved[name])) == []


def test_axe_finds_nothing_grave_on_the_demo(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    someone = visit(reduced_motion="reduce")  # colours that pass into others have none of their own
    assert find_violations(someone) == []
    someone.until(lambda: "yes" in someone.answer(), "the opening example")
    assert find_violations(someone) == []
    someone.page.locator("#cv-question textarea").fill("Is it?")
    someone.until(lambda: "Changed" in someone["why"].inner_text(), "an answer to something else")
    someone["baseline"].locator("summary").first.click()
    assert find_violations(someone) == []
    someone.example(4)
    someone.finished()
    someone.edit()
    assert find_violations(someone) == []
    for number in range(12):
        shutil.copy(PICTURES / f"shelf-{number % 3 + 1}.png", tmp_path / f"{number}.png")
    someone.button("unfold").click()
    someone.page.locator("input[webkitdirectory]").set_input_files(tmp_path)
    someone.until(lambda: someone["pictures"].locator("img").count() == 12, "the uploads")
    someone.ask("How many pictures contain a purple cup?")
    someone.finished()
    someone["gallery"].locator("button[data-picture]").first.click()
    someone.until(lambda: someone["opened"].locator(".cv-call").count() == 1, "its evidence")
    assert find_violations(someone) == []
