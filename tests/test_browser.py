"""What a visitor of the demo does, in a real browser with the embedded models: ask, look, edit, run, get it wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from browser_kit import PICTURES, Visitor, missing, need_browser
from PIL import Image

pytestmark = pytest.mark.timeout(300)

Visit = Callable[..., Visitor]
HOUSE = "Is the red house to the left of the green tree?"
SHELVES = [PICTURES / f"shelf-{number}.png" for number in (1, 2, 3)]
HOSTILE = '<img src="x" onerror="window.taken=1"><script>window.taken=1</script>'


def states(visitor: Visitor) -> dict[str, str]:
    """State of each call of a model by the text it was about."""
    about = (re.search(r"'([^']*)'|\"([^\"]*)\"", card.text) for card in visitor.calls())
    named = [(found.group(1) or found.group(2)) if found else "" for found in about]
    return {name: card.state for name, card in zip(named, visitor.calls(), strict=True) if "open" not in card.name}


def asked(visitor: Visitor, number: int = 0) -> str:
    """Clicks a shipped example and returns what the answer's box says."""
    visitor.example(number)
    return visitor.finished()


def test_an_example_is_answered_live_on_its_click_with_heat_maps_beside_the_answer_without_a_program(
    visit: Visit,
) -> None:
    someone = visit()
    someone.watch_live()
    someone.example(0)
    assert "yes" in someone.finished()
    assert someone.field("question").input_value() == HOUSE and HOUSE in someone.answer()
    assert "yes" in someone["baseline"].inner_text() and "Both agree" in someone["baseline"].inner_text()
    told = someone.seen_live()
    assert "examples" in told and "line 1" in told and "line 4" in told
    assert [card.name for card in someone.calls()] == ["open_image", "get_pos", "get_pos"]
    assert states(someone) == {"red house": "computed", "green tree": "computed"}
    assert 'get_pos(img, "red house")' in someone.program()
    maps = someone.heat_maps()
    assert len(maps) == 2
    for heat in maps:
        assert heat["width"] >= 100 and heat["height"] >= 100 and heat["vivid"] > 0.01
    assert someone["live"].locator(".cv-examples li").count() > 0
    assert "6.75" in someone["live"].locator(".cv-program .cv-value").nth(1).inner_text()
    someone.shot("desktop")


@pytest.mark.slow
def test_several_pictures_of_ones_own_are_a_set(visit: Visit) -> None:
    someone = visit()
    someone.upload(*SHELVES)
    someone.ask("How many pictures contain a purple cup?")
    assert re.search(r"\b2\b", someone.finished())
    assert [card.name for card in someone.calls()] == ["open_images", "query", "query", "query"]
    assert someone["live"].locator(".cv-captions li").count() > 0
    someone.shot("set")


def test_only_the_changed_call_of_an_edited_program_is_computed(visit: Visit) -> None:
    someone = visit()
    asked(someone)
    someone.retype_line(2, 'x1, y1 = get_pos(img, "yellow flower")')
    someone.run()
    assert "yes" in someone.finished()
    assert states(someone) == {"yellow flower": "computed", "green tree": "remembered"}
    assert "yellow flower" in someone.program(), "the editor keeps what was typed"
    someone.shot("edited")
    someone.retype_line(4, 'answer = "yes" if x1 > x2 else "no"')
    someone.run()
    assert re.search(r"\bno\b", someone.finished())
    assert set(states(someone).values()) == {"remembered"}


@pytest.mark.slow
def test_a_visitor_in_a_hurry_is_served(visit: Visit) -> None:
    someone = visit()
    someone.example(0)
    someone.answered()  # the page to download is still being written
    someone.retype_line(4, 'answer = "yes" if x1 > x2 else "no"')
    someone.run()
    someone.until(lambda: re.search(r"\bno\b", someone.answered()) is not None, "the answer of the edited program")
    someone.run()
    someone.finished()
    assert "x1 > x2" in someone.program(), "nothing was typed in vain"


@pytest.mark.slow
def test_a_program_with_an_error_says_where_and_loses_nothing(visit: Visit) -> None:
    someone = visit()
    asked(someone)
    someone.retype_line(3, 'x2, y2 = get_pos(img, "green tree", 7)')
    someone.run()
    someone.finished()
    failing = someone["live"].locator(".cv-failing")
    assert failing.count() == 1 and failing.get_attribute("data-line") == "3"
    assert "get_pos" in someone.message() and "Traceback" not in someone.message()
    assert "7" in someone.program(), "the text that failed is still there to be mended"
    someone.shot("error")
    someone.retype_line(3, 'x2, y2 = get_pos(img, "green tree")')
    someone.run()
    assert "yes" in someone.finished()
    assert someone.message() == ""
    assert set(states(someone).values()) == {"remembered"}


@pytest.mark.slow
def test_what_ran_before_a_failure_stays_to_be_seen(visit: Visit) -> None:
    someone = visit()
    asked(someone)
    someone.retype_line(4, "answer = 1 / int(x1 - x1)")
    someone.run()
    someone.finished()
    assert someone["live"].locator(".cv-failing").get_attribute("data-line") == "4"
    assert "division" in someone.message()
    assert states(someone) == {"red house": "remembered", "green tree": "remembered"}
    assert len(someone.heat_maps()) == 2


@pytest.mark.slow
def test_an_endless_program_ends_and_says_so(visit: Visit) -> None:
    someone = visit()
    asked(someone)
    someone.replace_program('img = open_image("Image1.jpg")\nanswer = 0\nwhile True:\n    answer += 1\n')
    someone.run()
    someone.finished()
    assert "longer than 2 seconds" in someone.message()


@pytest.mark.slow
def test_a_broken_file_is_named_and_the_page_goes_on(visit: Visit, tmp_path: Path) -> None:
    broken = tmp_path / "holiday.png"
    broken.write_bytes((PICTURES / "garden.png").read_bytes()[:300])
    someone = visit()
    someone.upload(broken)
    someone.until(lambda: someone.message() != "", "a message about the broken file")
    assert "holiday.png" in someone.message() and "Traceback" not in someone.message()
    assert str(tmp_path) not in someone.message()
    someone.shot("broken-file")
    assert "yes" in asked(someone)
    assert someone.message() == ""


@pytest.mark.slow
def test_a_picture_of_too_many_pixels_is_refused(visit: Visit, tmp_path: Path) -> None:
    Image.new("1", (9000, 9000)).save(tmp_path / "poster.png")
    someone = visit()
    someone.upload(tmp_path / "poster.png")
    someone.until(lambda: someone.message() != "", "a message about the picture")
    assert "too large" in someone.message() and "9000" in someone.message().replace(",", "")


@pytest.mark.slow
def test_what_visitors_write_is_never_run_by_the_browser(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "<img src=x onerror=window.taken=1>.png"
    file.write_bytes((PICTURES / "garden.png").read_bytes())
    someone = visit()
    someone.upload(file)
    someone.ask(f"What color is the {HOSTILE}?")
    someone.finished()
    someone.replace_program(
        f"img = open_image('Image1.jpg')\nx, y = get_pos(img, '''{HOSTILE}''')\nanswer = '''{HOSTILE}'''"
    )
    someone.run()
    assert "onerror" in someone.finished(), "the answer is shown as text"
    someone.replace_program(f"answer = 1\nraise ValueError('''{HOSTILE}''')")
    someone.run()
    someone.finished()
    assert "onerror" in someone.message()
    assert someone.page.evaluate("window.taken") is None
    assert someone.page.locator("[onerror]").count() == 0


@pytest.mark.slow
def test_a_question_can_be_stopped(visit: Visit) -> None:
    someone = visit()
    someone.upload(*SHELVES, *PICTURES.glob("[gh]*.png"))
    someone.replace_program(SLOW)
    someone.watch_live()
    someone.run()
    someone.until(lambda: len(someone.calls()) > 4, "the first calls")
    assert {"call 2 running", "call 2 computed"} <= set(someone.seen_live()), "each call is shown while it runs"
    someone.button("stop").click()
    someone.answered()  # Gradio may leave the stream of what was stopped open
    assert "topped" in someone["status"].inner_text() + someone.message()
    assert "zero" not in someone.answer()
    count = len(someone.calls())
    someone.page.wait_for_timeout(1500)
    assert len(someone.calls()) == count, "nothing goes on behind the visitor's back"
    someone.example(0)
    assert "yes" in someone.answered()


SLOW = """
images = open_images("ImageSet1.jpg")
for thing in ["cup", "crown", "bell", "heart", "moon", "star", "tree", "house", "cloud", "flower", "boat", "fish"]:
    for color in ["red", "green", "blue", "yellow"]:
        for img in images:
            query(img, "Is there a " + color + " " + thing + "?")
answer = "zero"
"""


def test_the_guard_of_these_tests_turns_a_skip_into_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEVQA_CHROMIUM", "no-such-browser")
    assert "Chromium" in missing()
    monkeypatch.delenv("CODEVQA_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        need_browser()
    monkeypatch.setenv("CODEVQA_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="no Chromium"):
        need_browser()
