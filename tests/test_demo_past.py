"""What visitors of the demo asked before, and the answers that they made a link to: theirs alone, and not for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gate_kit import through

from codevqa.core.errors import InputError
from codevqa.demo.history import Histories, Past
from codevqa.demo.limits import DemoLimits
from codevqa.demo.live import PageUpdate
from codevqa.demo.shares import Shares

ONE, OTHER = Histories.token(None), Histories.token(None)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def add(histories: Histories, token: str, question: str = "Is it?", view: str = "shown") -> Past:
    return histories.add(token, question, "yes", (), histories.write(PageUpdate(view), "<p>page</p>"))


# -- earlier questions -----------------------------------------------------------------------------------------------


def test_a_visitor_sees_their_own_questions_again_newest_first(tmp_path: Path) -> None:
    histories = Histories(tmp_path, DemoLimits())
    first, second = add(histories, ONE, "one?", "<p>1</p>"), add(histories, ONE, "two?", "<p>2</p>")
    assert [past.question for past in histories.of(ONE)] == ["two?", "one?"]
    assert histories.find(ONE, first.id) == first
    view = second.view()
    assert view == PageUpdate("<p>2</p>")
    assert second.page is not None and Path(second.page).read_text("utf-8") == "<p>page</p>"


def test_nobody_reaches_what_others_asked(tmp_path: Path) -> None:
    histories = Histories(tmp_path, DemoLimits())
    past = add(histories, ONE)
    for token in (OTHER, "", ONE[:-1], ONE + "x"):
        assert histories.of(token) == [] and histories.find(token, past.id) is None
        histories.forget(token)
    assert histories.of(ONE) == [past]


@pytest.mark.parametrize("given", ["", None, 7, "a", "../" * 15, "x" * 44, ["x" * 43], "é" * 43])
def test_a_word_that_is_none_of_ours_is_replaced_by_one_that_nobody_guesses(given: object) -> None:
    made = {Histories.token(given) for _ in range(3)}
    assert len(made) == 3 and all(len(one) == 43 for one in made)
    assert all(Histories.token(one) == one for one in made), "and is known again"


def test_earlier_questions_are_bounded_in_number_size_and_time_and_so_are_their_files(tmp_path: Path) -> None:
    clock = Clock()
    histories = Histories(tmp_path, DemoLimits(history=2, history_bytes=3000, keep_seconds=60), clock)
    kept = [add(histories, ONE, str(number)) for number in range(3)]
    assert [past.question for past in histories.of(ONE)] == ["2", "1"]
    assert [past.folder.exists() for past in kept] == [False, True, True]
    add(histories, OTHER, view="x" * 2900)
    assert [past.folder.exists() for past in kept] == [False] * 3, "the oldest of all make room"
    assert len(histories.of(OTHER)) == 1
    clock.now += 61
    assert histories.of(OTHER) == [] and list((tmp_path / "pages").iterdir()) == []


def test_what_a_visitor_has_forgotten_is_gone(tmp_path: Path) -> None:
    histories = Histories(tmp_path, DemoLimits())
    past, others = add(histories, ONE), add(histories, OTHER)
    histories.forget(ONE)
    assert histories.of(ONE) == [] and not past.folder.exists()
    assert histories.of(OTHER) == [others] and others.folder.exists()


def test_files_that_made_room_for_uploads_are_missed_by_nobody(tmp_path: Path) -> None:
    past = add(Histories(tmp_path, DemoLimits()), ONE)
    for file in past.folder.iterdir():
        file.unlink()
    assert past.view() is None and past.page is None


# -- links -----------------------------------------------------------------------------------------------------------


def page(folder: Path) -> Path:
    path = folder / "page.html"
    path.write_text("<p>yes</p>", "utf-8")
    return path


def test_a_link_shows_the_answer_to_whoever_has_it_and_runs_nothing(tmp_path: Path) -> None:
    shares = Shares(tmp_path, DemoLimits())
    path = asyncio.run(shares.add(page(tmp_path), "here"))
    (tmp_path / "page.html").unlink()
    assert asyncio.run(shares.read(path)) == b"<p>yes</p>", "also when the visitor's own has gone"
    status, headers, _ = through(tmp_path, "GET", path, shares=shares)
    assert status == 200 and headers[b"content-type"].startswith(b"text/html")
    assert headers[b"content-security-policy"].startswith(b"default-src 'none'")
    assert b"script-src" not in headers[b"content-security-policy"] and headers[b"x-robots-tag"] == b"noindex"


@pytest.mark.parametrize("path", ["/shared/", "/shared/x", f"/shared/{'x' * 43}", "/shared/../page.html"])
def test_a_link_is_not_guessed(tmp_path: Path, path: str) -> None:
    shares = Shares(tmp_path, DemoLimits())
    made = asyncio.run(shares.add(page(tmp_path), "here"))
    assert len(made) == len("/shared/") + 43
    assert through(tmp_path, "GET", path, shares=shares)[0] == 404
    assert through(tmp_path, "GET", made, shares=None)[0] == 404, "where the host doesn't allow it there is none"
    assert through(tmp_path, "GET", made, headers={"host": "evil.example"}, shares=shares)[0] == 403


def test_links_are_bounded_in_number_and_time(tmp_path: Path) -> None:
    clock = Clock()
    shares = Shares(tmp_path, DemoLimits(shared=3, shared_address=2, shared_seconds=60), clock)
    made = [asyncio.run(shares.add(page(tmp_path), "here")) for _ in range(2)]
    with pytest.raises(InputError, match="too many links"):
        asyncio.run(shares.add(page(tmp_path), "here"))
    asyncio.run(shares.add(page(tmp_path), "there"))
    with pytest.raises(InputError, match="too many links"):
        asyncio.run(shares.add(page(tmp_path), "elsewhere"))
    clock.now += 61
    assert asyncio.run(shares.read(made[0])) is None
    assert list((tmp_path / "shared").iterdir()) == []
    assert asyncio.run(shares.add(page(tmp_path), "here"))


def test_a_link_that_cannot_be_made_takes_no_room(tmp_path: Path) -> None:
    shares = Shares(tmp_path, DemoLimits(shared=1))
    with pytest.raises(InputError, match="No link could be made"):
        asyncio.run(shares.add(tmp_path / "gone.html", "here"))
    assert asyncio.run(shares.add(page(tmp_path), "here"))
