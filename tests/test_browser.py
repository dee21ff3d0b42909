"""What visitors of the demo do, in a real browser with the embedded models: ask, look, edit, run, get it wrong."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_kit import PICTURES, Visitor
from demo_kit import demo_server
from pages_kit import Read, visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.timeout(300)

Visit = Callable[..., Visitor]
HOUSE = "Is the red house to the left of the green tree?"
SHELVES = [PICTURES / f"shelf-{number}.png" for number in (1, 2, 3)]
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
LOADED = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .reduce((sum, one) => sum + one.transferSize, 0)"""
MOVES = """document.getAnimations()
  .some(one => one.playState === 'running' && one.effect.target.matches('.demo-status'))"""
ABOVE = """names => {
  window.moved = {};
  const look = () => {
    for (const name of document.querySelector('#cv-columns .demo-examples button') ? names : []) {
      if (!document.getElementById('cv-' + name)) continue;
      const top = document.getElementById('cv-' + name).getBoundingClientRect().top + scrollY;
      const [least, most] = window.moved[name] || [top, top];
      window.moved[name] = [Math.min(least, top), Math.max(most, top)];
    }
    requestAnimationFrame(look);
  };
  look();
}"""
"""Notes in each frame where parts of the page begin."""
BROKEN = r"""() => {
  const broken = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode, box = text.parentElement;
    if (!box.checkVisibility() || box.closest('script, style, .cv-sr, .cm-editor')) continue;
    for (const word of text.data.matchAll(/[\p{L}\p{N}_.'"]+/gu)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].filter(one => one.width > 1).map(one => Math.round(one.top)));
      if (lines.size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""
"""Words that stand on two lines."""
SLOW = """
images = open_images("ImageSet1.jpg")
for thing in ["cup", "crown", "bell", "heart", "moon", "star", "tree", "house", "cloud", "flower", "boat", "fish"]:
    for color in ["red", "green", "blue", "yellow", "purple"]:
        for img in images:
            query(img, "Is there a " + color + " " + thing + "?")
answer = "zero"
"""


def asked(visitor: Visitor, number: int = 0) -> str:
    """Clicks a shipped example and returns what the answer's box says."""
    visitor.example(number)
    return visitor.finished()


def states(visitor: Visitor) -> dict[str, str]:
    """State of each call of a model by the text it was about."""
    about = (re.search(r"'([^']*)'|\"([^\"]*)\"", card.text) for card in visitor.calls())
    named = [(match.group(1) or match.group(2)) if match else "" for match in about]
    return {name: card.state for name, card in zip(named, visitor.calls(), strict=True) if "open" not in card.name}


def pressable(visitor: Visitor) -> set[str]:
    return {name for name in ("ask", "stop", "run", "example-0") if visitor.button(name).is_enabled()}


def test_an_example_is_answered_and_its_program_can_be_changed(visit: Visit) -> None:
    someone = visit()
    someone.until(
        lambda: "yes" in someone.answer() and someone["live"].locator("img.cv-heat").count() == 2, "an answer"
    )
    assert someone.page.evaluate(LOADED) < 3_000_000, "bytes of the page with its example"
    assert HOUSE in someone.answer() and someone["ask"].bounding_box()["y"] < 700  # type: ignore[index]
    assert "yes" in asked(someone) and HOUSE in someone.answer()
    someone.until(lambda: pressable(someone) == {"ask", "run", "example-0"}, "all but Stop")
    assert "yes" in someone["baseline"].inner_text() and "Same answer" in someone["baseline"].inner_text()
    assert [card.name for card in someone.calls()] == ["open_image", "get_pos", "get_pos"]
    assert states(someone) == {"red house": "computed", "green tree": "computed"}
    assert someone["live"].locator("img.cv-heat").count() == 2
    assert "6.75" in someone["live"].locator(".cv-program .cv-value").nth(1).inner_text()
    assert "drawn things only" in someone["models"].inner_text()
    someone.shot("desktop")
    with someone.page.expect_download() as waiting:
        someone["download"].click()
    assert waiting.value.suggested_filename.endswith(".html")
    saved = Read(waiting.value.path().read_text("utf-8"))
    assert len(saved.all("img", cls="cv-heat")) == 2 and saved.element("h1").text == HOUSE

    shown, editor = someone["annotated"], someone["program"]
    assert shown.is_visible() and not editor.is_visible()
    someone.retype_line(4, "answer = 'dropped'")
    assert editor.is_visible() and not shown.is_visible()
    someone.button("leave").click()
    someone.retype_line(2, 'x1, y1 = get_pos(img, "yellow flower")')
    assert "dropped" not in someone.program()
    someone.run()
    assert "edited program" in someone.finished() and not someone["baseline"].inner_text().strip()
    assert states(someone) == {"yellow flower": "computed", "green tree": "remembered"}
    assert "yellow flower" in someone.program(), "the editor keeps what was typed"
    someone.page.reload()
    someone.button("unfold").click()
    someone.until(lambda: someone["history"].locator("button").count() == 2, "the answers before")
    edited, first = someone["history"].locator("button").all()
    assert "yellow flower" in edited.inner_text() and "edited" not in first.inner_text()
    edited.click()
    someone.until(lambda: "edited program" in someone.answer() and "yellow flower" in someone.program(), "it back")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 820, 1024, 1400])
def test_nothing_above_the_answer_moves_and_no_word_is_broken(visit: Visit, width: int) -> None:
    someone = visit(viewport={"width": width, "height": 900})
    parts = ["columns", "pictures", "question", "hint", "ask", "example-0", "status", "answer"]
    someone.until(lambda: "yes" in someone.answer() and not someone.streams, "a page that can be left")
    someone.page.add_init_script(f"({ABOVE})({parts})")

    def load_late(route: Any) -> None:
        time.sleep(0.3)
        route.continue_()

    someone.page.route(re.compile("/(Gallery|Textbox)[^/]*[.]js$"), load_late)
    someone.page.reload()
    someone.until(lambda: "yes" in someone.answer(), "the opening example")
    for number in (2, 4):
        asked(someone, number)
        someone.page.evaluate("document.querySelectorAll('#cv-live details').forEach(one => { one.open = true })")
        assert someone.page.evaluate(BROKEN) == []
    someone["pictures"].get_by_label("Clear").click()
    someone.until(lambda: pressable(someone) == {"example-0"}, "no picture")
    someone.page.locator("#cv-question textarea").fill("")
    someone.page.wait_for_timeout(200)
    someone.example(0)
    someone.finished()
    someone.ask("What is the dog doing?")
    someone.finished()
    words = someone["models"].inner_text() + someone["columns"].inner_text()
    assert "don't know 'dog'" in someone["message"].inner_text() and "--" not in words
    moved = someone.page.evaluate("window.moved")
    assert {name: tops for name, tops in moved.items() if tops[1] - tops[0] > 4} == {} and len(moved) == len(parts)


def test_it_says_why_ask_is_grey_and_what_an_answer_is_to(visit: Visit) -> None:
    someone = visit()
    someone.until(lambda: "yes" in someone.answer(), "the opening example")
    field = someone.page.locator("#cv-question textarea")

    def reads(why: str, count: str, *, old: bool, able: bool) -> None:
        someone.until(
            lambda: (
                (someone["why"].inner_text(), someone["count"].inner_text()) == (why, f"{count} of 1,000 characters")
                and someone["answer"].get_by_text("before your change").is_visible() == old
                and someone.button("ask").is_enabled() == able
            ),
            f"{why or 'nothing'} and {count}",
        )

    reads("", "47", old=False, able=True)
    field.fill("x" * 1204)
    reads("Too long by 204.", "1,204", old=True, able=False)
    assert field.input_value() == "x" * 1204, "nothing is cut"
    field.fill("  ")
    reads("Type a question.", "0", old=True, able=False)
    field.fill(HOUSE)
    reads("", "47", old=False, able=True)
    field.fill("Is there a tree?")
    reads("Changed: press Ask again.", "16", old=True, able=True)
    someone.ask("Is there a tree?")
    someone.finished()
    reads("", "16", old=False, able=True)
    someone.upload(SHELVES[0])
    reads("Changed: press Ask again.", "16", old=True, able=True)
    someone["pictures"].get_by_label("Clear").click()
    reads("Add a picture first.", "16", old=True, able=False)
    someone.example(0)
    someone.finished()
    reads("", "47", old=False, able=True)
    someone.button("unfold").click()
    someone["history"].locator("button").nth(1).click()
    reads("", "16", old=False, able=True)


@pytest.mark.slow
def test_pictures_of_ones_own_and_stop(visit: Visit) -> None:
    someone = visit()
    someone.upload(*SHELVES)
    someone.ask("How many pictures contain a purple cup?")
    assert re.search(r"\b2\b", someone.finished())
    assert [card.name for card in someone.calls()] == ["open_images", "query", "query", "query"]
    assert someone["live"].locator(".cv-captions li").count() > 0
    someone.replace_program(SLOW)
    someone.run()
    someone.until(lambda: len(someone.calls()) > 4, "the first calls")
    assert pressable(someone) == {"stop"}
    # A status that was put there this moment moves from its first frame on.
    someone.until(
        lambda: bool(someone["status"].inner_text().strip() and someone.page.evaluate(MOVES)), "a status that moves"
    )
    someone.button("stop").click()
    someone.finished()
    assert "Stopped" in someone["status"].inner_text() and "stopped before an answer" in someone.answer()
    count = len(someone.calls())
    someone.page.wait_for_timeout(1000)
    assert len(someone.calls()) == count, "nothing goes on behind the visitor's back"
    assert "yes" in asked(someone)


@pytest.mark.slow
def test_everything_works_from_the_keyboard(visit: Visit) -> None:
    someone = visit()
    someone.button("example-0").focus()
    someone.press_enter()
    assert "yes" in someone.finished()
    reached = set()
    for _ in range(60):
        someone.page.keyboard.press("Tab")
        reached.add(someone.focused())
    assert {"example-0", "pictures", "question", "ask", "download", "edit"} <= reached
    someone.button("edit").focus()
    someone.page.keyboard.press("Enter")
    someone.until(lambda: someone.focused() == "program", "the focus in the editor")
    for key in ("Escape", "Tab"):  # the editor keeps Tab to itself
        someone.page.keyboard.press(key)
    assert someone.focused() == "run"
    someone.press_enter()
    assert "yes" in someone.finished()
    someone.until(lambda: someone.focused() == "edit", "the focus where the work goes on")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("phone", PHONE | {"color_scheme": "dark"}),
        ("desktop", {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}),
    ],
)
def test_the_page_fits(visit: Visit, name: str, options: dict[str, object]) -> None:
    someone = visit(**options)
    asked(someone, 4)
    assert someone.overflow() <= 0
    someone.shot(f"{name}-answer")
    someone.retype_line(1, f'images = open_images("ImageSet1.jpg", 7)  # {"a line that is long " * 8}')
    assert someone.overflow() <= 0
    someone.run()
    someone.finished()
    someone.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert someone.overflow() <= 0
    box = someone.button("ask").bounding_box()
    assert box is not None and box["height"] >= 32, "large enough for a finger"
    back = someone.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", back)[0]) < 80) == (name == "phone"), "the page follows the system"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["phone", "desktop"])
def test_a_folder_becomes_a_gallery_in_which_a_picture_is_corrected(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    folder, own = tmp_path / "pictures", tmp_path / "demo"
    folder.mkdir()
    own.mkdir()
    (folder / "notes.txt").write_text("no picture")
    for number in range(12):
        shutil.copy(SHELVES[number % 3], folder / f"{number}.png")
    options = PHONE | {"color_scheme": "dark"} if name == "phone" else {"viewport": {"width": 1400, "height": 900}}
    with demo_server(own) as server, visiting(browser, server) as visit:
        someone = visit(**options)
        someone.button("unfold").click()
        someone.page.locator("input[webkitdirectory]").set_input_files(folder)
        someone.until(lambda: someone["pictures"].locator("img").count() >= 12, "the uploads")
        someone.ask("How many pictures contain a purple cup?")
        assert re.search(r"\b8\b", someone.finished())
        tiles = someone["gallery"].locator("button[data-picture]")
        assert tiles.count() == 12
        assert someone["gallery"].locator(".cv-counts").count() == 8
        tiles.nth(0).focus()
        someone.page.keyboard.press("Enter")
        someone.until(lambda: someone["opened"].locator(".cv-call").count() == 1, "its evidence")
        someone.mark()
        someone["opened"].locator("button[data-said=no]").click()
        assert re.search(r"\b4\b", someone.finished()), "what is said of a picture holds for its copies"
        someone.until(lambda: "What a person said" in someone["opened"].inner_text(), "the correction")
        assert someone.overflow() <= 0
        someone.shot(f"gallery-{name}")
