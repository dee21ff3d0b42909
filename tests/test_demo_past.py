"""What visitors of the demo asked before: theirs alone, and not for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from codevqa.demo.history import Histories, Past
from codevqa.demo.limits import DemoLimits
from codevqa.demo.live import PageUpdate

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
