"""Who visits the demo: several at once, by keyboard, on a phone, in the dark, offline; and what they take home."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from browser_kit import CONTRAST, PICTURES, Visitor
from PIL import Image
from server_kit import Server
from traffic_kit import LOOPBACK

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

Visit = Callable[..., Visitor]
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
TEXTS = (
    "h1, h2, h3, h4, h5, p, label, button, summary, li, td, figcaption, #cv-question textarea, "
    ".cv-call span, .cv-call code, .cv-call b, .cv-program code, .cv-value, .cv-failing, .cv-tag, "
    "#cv-answer p, #cv-baseline p, #cv-message div, #cv-status div, #cv-program .cm-line, #cv-program .cm-line span"
)


def asked(visitor: Visitor, number: int = 0) -> str:
    visitor.example(number)
    return visitor.finished()


def poor(visitor: Visitor, least: float = 4.5) -> list[tuple[str, float]]:
    """Texts of too little contrast, of all that a page has once nothing of it is loading."""
    measured: list[tuple[str, float]] = []

    def loaded() -> bool:
        measured[:] = visitor.page.evaluate(CONTRAST, TEXTS)
        return len(measured) > 20 and not any(text.startswith("Loading") for text, _ in measured)

    visitor.until(loaded, "the whole page")
    return [(text, round(contrast, 2)) for text, contrast in measured if contrast < least]


def test_two_visitors_at_once_share_nothing(visit: Visit) -> None:
    one, other = visit(), visit()
    other.upload(PICTURES / "harbor.png")
    other.field("question").fill("What color is the flag?")
    one.example(0)
    other.ask()
    assert "yes" in one.finished() and "red" in other.finished()
    assert "flag" not in one["live"].inner_text() and "house" not in other.calls()[-1].text
    assert "house" not in other["answer"].inner_text() + other["status"].inner_text()
    # What the first has asked already is in nobody else's memory.
    assert "yes" in asked(other)
    assert {card.state for card in other.calls() if "open" not in card.name} == {"computed"}
    other.run()
    assert "yes" in other.finished()
    assert {card.state for card in other.calls() if "open" not in card.name} == {"remembered"}


def test_everything_works_from_the_keyboard(visit: Visit) -> None:
    someone = visit()
    walk = someone.tab_stops()
    for name in ("pictures", "example-0", "question", "edit"):
        assert name in walk, f"{name} cannot be reached with the Tab key: {walk}"
    someone.tab_to("example-0")
    assert someone.outline() != "none", "the focus can be seen"
    someone.press_enter()
    assert "yes" in someone.finished()
    walk = someone.tab_stops()
    assert {"ask", "history", "forget", "download"} <= set(walk), walk
    someone.tab_to("edit")
    someone.page.keyboard.press("Enter")
    someone.until(lambda: someone.focused() == "program", "the focus in the editor")
    someone.tab_to("run")
    someone.press_enter()
    assert "yes" in someone.finished()
    assert someone.focused() == "edit", "the focus goes where the work goes on"
    assert {card.state for card in someone.calls() if "open" not in card.name} == {"remembered"}
    # The options are folded away; a button unfolds them.
    someone.tab_to_text("Options")
    someone.page.keyboard.press("Enter")
    walk = someone.tab_stops()
    assert {"preset", "method", "shots"} <= set(walk), walk
    # Enter in the question asks it, too.
    someone.tab_to("question")
    someone.page.keyboard.press("Control+a")
    someone.page.keyboard.type("What color is the cloud?")
    someone.press_enter()
    assert "blue" in someone.finished()


def test_it_fits_a_phone(visit: Visit) -> None:
    someone = visit(**PHONE)
    assert someone.overflow() <= 0
    assert "yes" in asked(someone)
    assert someone.overflow() <= 0
    for name in ("pictures", "question", "ask", "annotated", "edit", "answer", "baseline", "live"):
        box = someone[name].first.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390, (name, box)
    for name in ("ask", "edit"):
        box = someone.button(name).bounding_box()
        assert box is not None and box["height"] >= 32, "large enough for a finger"
    assert all(heat["width"] for heat in someone.heat_maps())
    # What is painted, not what the styles say: a filter on many small elements darkens other ones in Chromium 156.
    with Image.open(io.BytesIO(someone["answer"].screenshot())) as painted:
        counts = painted.convert("L").histogram()
    assert counts.index(max(counts)) > 200
    someone.shot("phone")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(visit: Visit, scheme: str) -> None:
    someone = visit(color_scheme=scheme)
    assert poor(someone) == []
    assert "yes" in asked(someone)
    assert poor(someone) == []
    someone.shot(scheme)
    someone.retype_line(2, 'x1, y1 = get_pos(img, "blue cloud", 7)')
    someone.run()
    someone.finished()
    assert poor(someone) == []
    back = someone.page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", back)[0])
    assert red < 80 if scheme == "dark" else red > 180, "the page follows the system"


def test_the_trace_page_opens_from_the_disk_with_no_request(visit: Visit, tmp_path: Path) -> None:
    someone = visit()
    asked(someone)
    with someone.page.expect_download() as waiting:
        someone["download"].click()
    saved = tmp_path / "trace.html"
    waiting.value.save_as(saved)
    assert waiting.value.suggested_filename.endswith(".html")
    reader = visit(opened=False)
    reader.page.goto(saved.as_uri())
    assert [url for url in reader.requests if not url.startswith(("data:", saved.as_uri()))] == []
    heat = reader.heat_maps()
    assert len(heat) == 2 and all(one["width"] >= 100 and one["vivid"] > 0.01 for one in heat)
    assert "Is the red house to the left of the green tree?" in reader.page.inner_text("body")
    assert reader.overflow() <= 0
    reader.shot("trace-page")


def test_a_reload_begins_anew_but_for_what_was_asked_before(visit: Visit) -> None:
    someone = visit()
    assert "yes" in asked(someone)
    someone.open()
    assert someone.calls() == [] and "yes" not in someone.answer()
    assert "red" in asked(someone, 2)


def test_a_visitor_who_leaves_while_it_works_disturbs_nobody(visit: Visit) -> None:
    leaving, staying = visit(), visit()
    leaving.example(3)
    leaving.page.close()
    assert "yes" in asked(staying)


def test_the_server_talks_to_nobody(visit: Visit, server: Server) -> None:
    assert "yes" in asked(visit())
    talked = server.traffic
    assert any(line.startswith("socket.bind 127.0.0.1") for line in talked), "the log sees what the server does"
    assert [line for line in talked if not line.split(" ", 1)[1].startswith(LOOPBACK)] == []


def test_the_server_complains_of_nothing(visit: Visit, server: Server) -> None:
    asked(visit())
    assert "Traceback" not in server.output and "Warning" not in server.output
