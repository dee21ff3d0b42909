"""Questions told while they are answered: the order of events, failures, examples and seeds of one question."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
from engine_kit import GREEN, RED, Gate
from watch_kit import OPEN, THREE, Streaming, asked, begun, calls, engine, names, remembered

from codevqa import Memory
from codevqa.core.errors import ProgramRuntimeError, ServerError
from codevqa.core.events import Answered, CallBegan, Failed, Prepared, Rejected, Writing, Wrote
from codevqa.core.images import load_picture
from codevqa.models.base import GenerationRequest

# -- what is told ----------------------------------------------------------------------------------------------------


def test_a_question_is_told_from_its_examples_to_its_answer() -> None:
    program = THREE.format("First?")
    model = Streaming(" here?\n" + program)
    with engine(model) as vqa:
        events = list(vqa.watch(RED, " Is it  red? "))
    told = [name for name in names(events) if name != "Writing"]
    assert told == ["Prepared", "Wrote", *["CallBegan", "CallEnded"] * 4, "Answered"]
    prepared, answered = events[0], events[-1]
    assert isinstance(prepared, Prepared) and isinstance(answered, Answered)
    answer = answered.answer
    assert answer.program is not None and answer.question == "Is it red?" and answer.text == "yesyesyes"
    assert prepared.prompt == answer.program.prompt
    assert tuple(one.id for one in prepared.examples) == answer.program.examples and len(prepared.examples) == 12
    for example in prepared.examples:
        assert example.program in prepared.prompt and example.program.startswith("img = open_image(")
    assert [event.program for event in events if isinstance(event, Wrote)] == [answer.program]
    assert tuple(calls(events)) == answer.trace.calls
    began = [event for event in events if isinstance(event, CallBegan)]
    assert [(one.index, one.name, one.arguments, one.line) for one in began] == [
        (one.index, one.name, one.arguments, one.line) for one in answer.trace.calls
    ]


def test_a_repair_and_a_fallback_are_told() -> None:
    with engine(Streaming(OPEN + "answer = qury(img, 'a')", OPEN + "answer = [][len(query(img, 'a?'))]")) as vqa:
        events = list(vqa.watch(RED, "Is it red?"))
    told = [name for name in names(events) if name != "Writing"]
    assert told == [
        *("Prepared", "Wrote", "Rejected", "Wrote", *["CallBegan", "CallEnded"] * 2, "Rejected", "Answered"),
    ]
    first, second = (event for event in events if isinstance(event, Rejected))
    assert (first.next, first.error.type, second.next) == ("repair", "ProgramTypeError", "fallback")
    answered = events[-1]
    assert isinstance(answered, Answered) and answered.answer.fallback
    assert answered.answer.trace.attempts == ((first.program, first.error), (second.program, second.error))
    again = [place for place, event in enumerate(events) if isinstance(event, Writing)]
    assert again[-1] > events.index(first), "the repair is told as it is written"


def test_watching_changes_no_answer() -> None:
    program = THREE.format("First?")
    with engine(Streaming(program)) as vqa:
        watch = vqa.watch(RED, "Is it red?")
        list(watch)
        told, plain = watch.answer, vqa.ask(RED, "Is it red?")
    assert told is not None and told.text == plain.text and told.program == plain.program
    assert told.tokens == plain.tokens > 0 and told.sources == plain.sources == (load_picture(RED),)
    assert [call.evidence for call in told.trace.calls] == [call.evidence for call in plain.trace.calls]


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_failing_program_of_the_user_s_keeps_its_calls() -> None:
    source = OPEN + "a = query(img, 'a?')\nanswer = [a][3]"
    with engine() as vqa:
        watch = vqa.watch_run(RED, source, question="Is it red?")
        *_, rejected, failed = watch
        with pytest.raises(ProgramRuntimeError, match="line 3") as caught:
            vqa.run(RED, source, question="Is it red?")
    assert isinstance(rejected, Rejected) and rejected.next == "nothing"
    assert isinstance(failed, Failed) and failed.error.line == 3 and watch.answer is None
    done = failed.answer
    raised = caught.value.answer
    assert done is not None and raised is not None
    assert dataclasses.replace(raised, seconds=done.seconds, trace=done.trace) == done
    assert [(call.name, call.value) for call in done.trace.calls][1] == ("query", "yes")
    assert (done.text, done.error, done.question) == ("", failed.error, "Is it red?")
    assert done.program is not None and done.program.source == source and done.sources == (load_picture(RED),)


def test_what_cannot_be_asked_is_told_and_not_raised(tmp_path: Path) -> None:
    def down(request: GenerationRequest) -> str:
        raise ServerError("The server is down.")

    with engine("answer = query(img, 'a?')", read=down) as vqa:
        for watch, kind in (
            (vqa.watch(tmp_path / "none.png", "Is it red?"), "ImageError"),
            (vqa.watch(RED, " "), "QuestionError"),
            (vqa.watch(RED, "a" * 1001), "QuestionError"),
            (vqa.watch_run(RED, "answer = 1", question="a" * 1001), "QuestionError"),
            (vqa.watch([RED, GREEN], "Red?", form="image"), "InputError"),
        ):
            (failed,) = watch
            assert isinstance(failed, Failed) and failed.error.type == kind and failed.answer is None
        *_, failed = vqa.watch(RED, "Is it red?")
        assert isinstance(failed, Failed) and failed.error.type == "ServerError"
        assert failed.answer is not None and failed.answer.trace.calls[0].error == failed.error


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


def test_a_memory_for_two_engines_confuses_neither() -> None:
    mine, source = Memory(1 << 20), OPEN + "answer = query(img, 'a?')"
    with engine(read=" one") as first, engine(read=" two") as second:
        for _ in range(2):
            assert first.run(RED, source, memory=mine).text == "one"
            assert second.run(RED, source, memory=mine).text == "two"
        assert asked(first)["readings"] == asked(second)["readings"] == 1
