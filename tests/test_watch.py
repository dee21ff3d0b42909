"""Questions told while they are answered: events, failures, memories; cancelling, and who takes the events."""

import asyncio
import dataclasses
import gc
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import engine_kit
import pytest
from engine_kit import GREEN, RED, Gate

from codevqa import CodeVQA, Memory, Watch
from codevqa.core.errors import ProgramRuntimeError, ServerError
from codevqa.core.events import Answered, CallBegan, CallEnded, Event, Failed, Prepared, Rejected, Writing, Wrote
from codevqa.core.images import load_picture
from codevqa.core.trace import Call
from codevqa.models.fakes import ScriptedLM
from codevqa.models.protocols import Completion, GenerationRequest

OPEN = 'img = open_image("Image13.jpg")\n'
THREE = OPEN + 'a = query(img, "{}")\nb = query(img, "Second?")\nc = query(img, "Third?")\nanswer = a + b + c'


class Streaming(ScriptedLM):
    """Tells its text a few letters at a time, from the thread it is called in."""

    def __init__(self, *texts: str, letters: int = 7) -> None:
        super().__init__(list(texts) if len(texts) > 1 else texts[0], name="writer")
        self.letters = letters
        self.threads: set[str] = set()

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        self.threads.add(threading.current_thread().name)
        completions = super().generate(requests)
        for request, completion in zip(requests, completions, strict=True):
            if request.on_text is not None:
                for end in range(self.letters, len(completion.text) + self.letters, self.letters):
                    request.on_text(completion.text[:end])
        return completions


engine = partial(engine_kit.engine, fit=False, workers=4)


def names(events: Iterable[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def calls(events: Iterable[Event]) -> list[Call]:
    return [event.call for event in events if isinstance(event, CallEnded)]


def remembered(events: Iterable[Event]) -> dict[str, bool]:
    """Whether each query came from memory, by its question."""
    return {call.arguments["question"]: call.remembered for call in calls(events) if call.name == "query"}


def asked(vqa: CodeVQA) -> dict[str, int]:
    """How much each model has been asked so far."""
    models: Any = vqa.models
    return {
        "matches": len(models.matcher.matches.requests),
        "captions": len(models.captioner.requests),
        "readings": len(models.reader.requests),
        "programs": len(vqa.writer.language_model.requests),  # type: ignore[attr-defined]
    }


def begun(watch: Watch, name: str = "query") -> None:
    """Takes events until the program waits for a call."""
    for event in watch:
        if isinstance(event, CallBegan) and event.name == name:
            return
    pytest.fail(f"{name} was never called")


def test_a_question_is_told_from_its_examples_to_its_answer() -> None:
    program = THREE.format("First?")
    model = Streaming(" here?\n" + program)
    with engine(model) as vqa:
        events = list(vqa.watch(RED, " Is it  red? "))
    event_names = [name for name in names(events) if name != "Writing"]
    assert event_names == ["Prepared", "Wrote", *["CallBegan", "CallEnded"] * 4, "Answered"]
    prepared, answered = events[0], events[-1]
    assert isinstance(prepared, Prepared) and isinstance(answered, Answered)
    answer = answered.answer
    assert answer.program is not None and answer.question == "Is it red?" and answer.text == "yesyesyes"
    assert prepared.prompt == answer.program.prompt
    assert tuple(shot.id for shot in prepared.examples) == answer.program.examples and len(prepared.examples) == 12
    for example in prepared.examples:
        assert example.program in prepared.prompt and example.program.startswith("img = open_image(")
    assert [event.program for event in events if isinstance(event, Wrote)] == [answer.program]
    assert tuple(calls(events)) == answer.trace.calls
    began = [event for event in events if isinstance(event, CallBegan)]
    assert [(event.index, event.name, event.arguments, event.line) for event in began] == [
        (call.index, call.name, call.arguments, call.line) for call in answer.trace.calls
    ]


def test_a_repair_and_a_fallback_are_told() -> None:
    with engine(Streaming(OPEN + "answer = qury(img, 'a')", OPEN + "answer = [][len(query(img, 'a?'))]")) as vqa:
        events = list(vqa.watch(RED, "Is it red?"))
    event_names = [name for name in names(events) if name != "Writing"]
    assert event_names == [
        *("Prepared", "Wrote", "Rejected", "Wrote", *["CallBegan", "CallEnded"] * 2, "Rejected", "Answered")
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
        answer, plain = watch.answer, vqa.ask(RED, "Is it red?")
    assert answer is not None and answer.text == plain.text and answer.program == plain.program
    assert answer.tokens == plain.tokens > 0 and answer.sources == plain.sources == (load_picture(RED),)
    assert [call.evidence for call in answer.trace.calls] == [call.evidence for call in plain.trace.calls]


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


def test_a_memory_for_two_engines_confuses_neither() -> None:
    mine, source = Memory(1 << 20), OPEN + "answer = query(img, 'a?')"
    with engine(read=" one") as first, engine(read=" two") as second:
        for _ in range(2):
            assert first.run(RED, source, memory=mine).text == "one"
            assert second.run(RED, source, memory=mine).text == "two"
        assert asked(first)["readings"] == asked(second)["readings"] == 1


def assert_free(vqa: CodeVQA) -> None:
    """Fails where the only worker is still taken: a program that asks no model must get it at once."""
    answers: list[str] = []
    running = threading.Thread(target=lambda: answers.append(vqa.run(RED, "answer = 'free'").text), daemon=True)
    running.start()
    running.join(10)
    assert answers == ["free"]


def test_cancelling_in_a_call_frees_the_worker_while_the_model_still_runs() -> None:
    gate = Gate()
    with engine(OPEN + "answer = query(img, 'First?') + query(img, 'Second?')", gate, workers=1, ahead=False) as vqa:
        watch = vqa.watch(RED, "Is it red?")
        begun(watch)
        assert gate.entered.wait(10)
        threading.Thread(target=watch.cancel).start()
        assert list(watch) == [] and watch.answer is None
        assert_free(vqa)  # the gate is still shut
        gate.open.set()
        assert vqa.ask(RED, "Is it wet?", method="pnpvqa").text == "yes"
        watch.cancel()
    assert gate.questions == ["First?", "Is it wet?"]


def test_a_watch_that_is_forgotten_is_cancelled() -> None:
    gate = Gate()
    with engine(OPEN + "answer = query(img, 'First?')", gate, workers=1) as vqa:
        watch = vqa.watch(RED, "Is it red?")
        begun(watch)
        assert gate.entered.wait(10)
        del watch
        gc.collect()
        assert_free(vqa)
        gate.open.set()


def test_a_slow_consumer_holds_up_nothing_and_misses_nothing_but_old_text() -> None:
    program = THREE.format("First?") + "".join(f"\n# line {number}" for number in range(300))
    with engine(Streaming(program, letters=3)) as vqa:
        watch = vqa.watch(RED, "Is it red?")
        assert vqa.ask(GREEN, "Is it wet?").text == "yesyesyes"
        waited = time.monotonic() + 90
        while watch.answer is None:
            assert time.monotonic() < waited
            time.sleep(0.01)
        events = list(watch)
    assert names(events) == ["Prepared", "Writing", "Wrote", *["CallBegan", "CallEnded"] * 4, "Answered"]
    assert isinstance(events[1], Writing) and events[1].source == program


def test_any_event_loop_may_take_the_events() -> None:
    async def take(watch: Watch) -> list[Event]:
        return [event async for event in watch]

    async def main(vqa: CodeVQA) -> list[list[Event]]:
        watches = [vqa.watch(RED, f"Is it {word}?") for word in ("red", "wet", "big")]
        return list(await asyncio.gather(*map(take, watches)))

    program = OPEN + "answer = query(img, 'a?')"
    with engine(Streaming(program)) as vqa:
        for events in asyncio.run(main(vqa)):
            event_names = [name for name in names(events) if name != "Writing"]
            assert event_names == ["Prepared", "Wrote", *["CallBegan", "CallEnded"] * 2, "Answered"]
