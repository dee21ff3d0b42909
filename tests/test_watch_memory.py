"""Questions told with a memory of one's own: of an edited program only what changed is computed."""

from __future__ import annotations

import time
from typing import Any

from engine_kit import Gate
from watch_kit import GREEN, OPEN, RED, THREE, asked, begun, calls, engine, remembered

from codevqa import Memory

# -- memories of one's own -------------------------------------------------------------------------------------------


def test_of_an_edited_program_only_the_changed_call_is_computed() -> None:
    with engine() as vqa:
        mine = Memory(1 << 20)
        first = list(vqa.watch_run(RED, THREE.format("First?"), memory=mine))
        assert set(remembered(first).values()) == {False}
        before = asked(vqa)
        again = list(vqa.watch_run(RED, THREE.format("Changed?"), memory=mine))
        after = asked(vqa)
        assert remembered(again) == {"Changed?": False, "Second?": True, "Third?": True}
        assert {name: after[name] - before[name] for name in after} == {
            "matches": 1, "captions": 2, "readings": 1, "programs": 0,
        }  # fmt: skip
        same = list(vqa.watch_run(RED, THREE.format("Changed?"), memory=mine))
        assert asked(vqa) == after and set(remembered(same).values()) == {True}
    assert [call.remembered for call in calls(same)] == [False, True, True, True]  # opening asks no model


def test_equal_calls_under_way_are_made_once_and_land_in_both_memories() -> None:
    gate = Gate()
    one, two = Memory(1 << 20), Memory(1 << 20)
    source = OPEN + "answer = query(img, 'a?')"
    with engine(read=gate) as vqa:
        first = vqa.watch_run(RED, source, memory=one)
        begun(first)
        assert gate.entered.wait(10)
        second = vqa.watch_run(RED, source, memory=two)
        begun(second)
        time.sleep(0.2)  # for it to come as far as the gate
        gate.open.set()
        assert remembered(first) == remembered(second) == {"a?": False}
        assert gate.questions == ["A?"]
        for mine in (one, two):
            assert remembered(vqa.watch_run(RED, source, memory=mine)) == {"a?": True}
        assert gate.questions == ["A?"] and len(one) == len(two) > 0
        assert remembered(vqa.watch_run(RED, source)) == {"a?": False}


def test_calls_begun_ahead_use_the_same_memory() -> None:
    source = "answer = [query(i, 'a?') for i in images]"
    mine = Memory(1 << 20)
    with engine() as vqa:
        for known in (False, True):
            events = list(vqa.watch_run([RED, GREEN], source, memory=mine))
            assert [call.remembered for call in calls(events)] == [known, known]
        matcher: Any = vqa.models.matcher
        assert matcher.matches.batches == [2], "they were begun together"
        assert len(vqa._services.memory) == 0


def test_a_memory_for_two_engines_confuses_neither() -> None:
    mine, source = Memory(1 << 20), OPEN + "answer = query(img, 'a?')"
    with engine(read=" one") as first, engine(read=" two") as second:
        for _ in range(2):
            assert first.run(RED, source, memory=mine).text == "one"
            assert second.run(RED, source, memory=mine).text == "two"
        assert asked(first)["readings"] == asked(second)["readings"] == 1
        mine.clear()
        assert (len(mine), mine.size) == (0, 0)
        assert first.run(RED, source, memory=mine).text == "one" and asked(first)["readings"] == 2


# -- with real models ------------------------------------------------------------------------------------------------
