"""Questions told with a memory of one's own: of an edited program only what changed is computed."""

from __future__ import annotations

import random
import time
from typing import Any

from engine_kit import Gate
from watch_kit import GREEN, OPEN, RED, THREE, asked, begun, calls, engine, names, remembered

from codevqa import CodeVQA, Memory
from codevqa.core.events import Answered, Writing

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


def test_two_watchers_with_memories_of_their_own_share_nothing() -> None:
    with engine(THREE.format("First?")) as vqa:
        vqa.ask(RED, "Is it red?")
        once = asked(vqa)
        for times in (2, 3):
            mine = Memory(1 << 20)
            events = list(vqa.watch(RED, "Is it red?", memory=mine))
            assert set(remembered(events).values()) == {False}
            assert asked(vqa) == {name: times * count for name, count in once.items()}
            events = list(vqa.watch(RED, "Is it red?", memory=mine))
            assert set(remembered(events).values()) == {True}
            assert asked(vqa) == {name: times * count for name, count in once.items()}
        assert {call.remembered for call in vqa.ask(RED, "Is it red?").trace.calls[1:]} == {True}
        kept = len(vqa._services.memory)
        vqa.ask(RED, "Is it wet?", memory=Memory(0))
        assert len(vqa._services.memory) == kept


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


def test_the_mini_models_tell_a_question_and_an_edited_program(mini: CodeVQA) -> None:
    from codevqa.miniworld.world import draw, sample_scene

    picture, mine = draw(sample_scene(random.Random("watched"), split="test")), Memory(8 << 20)
    events = list(mini.watch(picture, "Is the star to the left of the circle?", memory=mine, shots=4))
    answered = events[-1]
    assert isinstance(answered, Answered) and answered.answer.program is not None
    source = answered.answer.program.source
    texts = [event.source for event in events if isinstance(event, Writing)]
    assert len(texts) > 1 and all(source.startswith(text) for text in texts) and texts[-1] == source
    assert names(events)[0] == "Prepared" and "CallEnded" in names(events)
    edited = source + '\nextra = query(img, "What color is the star?")'
    events = list(mini.watch_run(picture, edited, memory=mine))
    assert isinstance(events[-1], Answered)
    *before, extra = [call for call in calls(events) if not call.name.startswith("open_")]
    assert before and all(call.remembered for call in before) and not extra.remembered
