"""Questions told while they are answered: the order of events, cancelling, memories of one's own, edited programs."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_kit import Gate
from PIL import Image as PILImage

from codevqa import CodeVQA, Memory, Models, QuerySettings, Settings, Watch, Writer, WriterSettings
from codevqa.core.errors import InputError, ProgramError, ProgramRuntimeError, ServerError
from codevqa.core.events import (
    Answered,
    CallBegan,
    CallEnded,
    Event,
    Failed,
    Prepared,
    Rejected,
    Writing,
    Wrote,
)
from codevqa.core.trace import Call
from codevqa.engine.watch import _Inbox
from codevqa.models.base import Completion, GenerationRequest
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.prompts import load as load_prompts

RED, GREEN = (PILImage.new("RGB", (60, 40), color) for color in ("red", "green"))
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
        made = super().generate(requests)
        for request, completion in zip(requests, made, strict=True):
            if request.on_text is not None:
                for end in range(self.letters, len(completion.text) + self.letters, self.letters):
                    request.on_text(completion.text[:end])
        return made


@contextmanager
def engine(
    writer: ScriptedLM | str = "",
    read: ScriptedLM | Callable[[GenerationRequest], str] | str = " yes",
    *,
    repairs: int = 1,
    **settings: Any,
) -> Iterator[CodeVQA]:
    prompts = {"image": load_prompts("gqa"), "set": load_prompts("covr")}
    model = ScriptedLM(writer, name="writer") if isinstance(writer, str) else writer
    wrote = Writer(model, prompts, settings=WriterSettings(selection="fixed", repairs=repairs, fit=False, rules=()))  # type: ignore[arg-type]
    reader = read if isinstance(read, ScriptedLM) else ScriptedLM(read, name="reader")
    captioner = FakeCaptioner(lambda request: f"thing {request.seed}", grid=6)
    given = {"query": QuerySettings(captions=2, patches=5), "workers": 4, **settings}
    with CodeVQA(wrote, Models(reader, FakeMatcher(6), captioner), Settings(**given)) as vqa:
        yield vqa


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


def test_the_program_grows_from_the_model_s_thread_to_what_it_is_in_the_end() -> None:
    program = THREE.format("First?")
    model = Streaming(" here?\n" + program, letters=1)
    seen: list[str] = []
    with engine(model) as vqa:
        watch = vqa.watch(RED, "Is it red?")
        for event in watch:
            if isinstance(event, Writing):
                seen.append(event.source)
                assert program.startswith(event.source)
            if isinstance(event, Wrote):
                break
        watch.cancel()
        assert model.threads and not model.threads & {threading.current_thread().name, "codevqa"}
    assert seen[-1] == program and sorted(seen, key=len) == seen


def test_nobody_is_told_where_nobody_watches() -> None:
    model = Streaming(OPEN + "answer = 1")
    with engine(model) as vqa:
        vqa.ask(RED, "Is it red?")
        list(vqa.watch(RED, "Is it wet?"))
    assert [request.on_text is None for request in model.requests] == [True, False]


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


def test_the_baseline_tells_its_answer_alone() -> None:
    with engine() as vqa:
        (answered,) = vqa.watch(RED, "Is it red?", method="pnpvqa")
    assert isinstance(answered, Answered) and answered.answer.method == "pnpvqa"


def test_a_call_with_wrong_arguments_begins_and_ends() -> None:
    source = "try:\n    query(img, ' ')\nexcept ValueError:\n    pass\nquery(*[img, 'a?', 'b?'])\nanswer = 1"
    with engine() as vqa:
        events = list(vqa.watch_run(RED, source))
    assert names(events) == ["Wrote", *["CallBegan", "CallEnded"] * 2, "Rejected", "Failed"]
    assert [call.error is not None for call in calls(events)] == [True, True]


def test_watching_changes_no_answer() -> None:
    program = THREE.format("First?")
    with engine(Streaming(program)) as vqa:
        watch = vqa.watch(RED, "Is it red?")
        list(watch)
        told, plain = watch.answer, vqa.ask(RED, "Is it red?")
    assert told is not None and told.text == plain.text and told.program == plain.program
    assert told.tokens == plain.tokens > 0 and told.sources == plain.sources == (RED,)
    assert [call.evidence for call in told.trace.calls] == [call.evidence for call in plain.trace.calls]


@pytest.mark.parametrize("ahead", [False, True])
def test_the_tokens_of_calls_count_whether_computed_or_remembered(ahead: bool) -> None:
    with engine(ahead=ahead) as vqa:
        both = vqa.run(RED, "answer = [query(img, q) for q in ('a?', 'b?')]").tokens
        once = vqa.run(RED, "answer = query(img, 'a?')").tokens
    assert both == 2 * once > 0


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
    assert done.program is not None and done.program.source == source and done.sources == (RED,)


def test_a_failing_check_keeps_the_program() -> None:
    with engine() as vqa, pytest.raises(ProgramError) as caught:
        vqa.run(RED, "answer = qury(img)")
    assert caught.value.answer is not None and caught.value.answer.trace.calls == ()
    assert caught.value.answer.trace.attempts[0][1] == caught.value.record()


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


def test_what_a_retriever_raises_is_told_as_the_error_of_a_model() -> None:
    class Broken:
        name = "broken"

        def embed(self, sentences: Sequence[str]) -> Any:
            raise ZeroDivisionError("bug")

    writer = Writer(ScriptedLM("answer = 1"), load_prompts("gqa"), Broken())
    with CodeVQA(writer, Models(ScriptedLM("yes"), FakeMatcher(6), FakeCaptioner(grid=6)), Settings(workers=1)) as vqa:
        *_, failed = vqa.watch(RED, "Is it red?")
    assert isinstance(failed, Failed) and failed.error.type == "ModelError" and "bug" in failed.error.message


# -- cancelling ------------------------------------------------------------------------------------------------------


def begun(watch: Watch, name: str = "query") -> None:
    """Takes events until the program waits for a call."""
    for event in watch:
        if isinstance(event, CallBegan) and event.name == name:
            return
    pytest.fail(f"{name} was never called")


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


def test_leaving_the_block_cancels() -> None:
    gate = Gate()
    with engine(OPEN + "answer = query(img, 'First?')", gate, workers=1) as vqa:
        with pytest.raises(KeyError), vqa.watch(RED, "Is it red?") as watch:
            begun(watch)
            raise KeyError
        assert list(watch) == []
        assert_free(vqa)
        gate.open.set()


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


def test_a_program_that_computes_is_cancelled_too() -> None:
    with engine(workers=1) as vqa:
        watch = vqa.watch_run(RED, "n = 0\nwhile True:\n    n = n + len(images)\nanswer = n")
        assert isinstance(next(watch), Wrote)
        time.sleep(0.1)
        began = time.perf_counter()
        watch.cancel()
        assert_free(vqa)
        assert time.perf_counter() - began < 8


def test_after_the_end_cancelling_changes_nothing() -> None:
    with engine() as vqa:
        with vqa.watch_run(RED, "answer = 1") as watch:
            assert names(watch) == ["Wrote", "Answered"]
        assert watch.answer is not None and watch.answer.text == "1"


def test_closing_the_engine_ends_the_iteration() -> None:
    gate, ended = Gate(), threading.Event()
    with engine(OPEN + "answer = query(img, 'First?')", gate) as vqa:
        watch = vqa.watch(RED, "Is it red?")
        begun(watch)

        def take() -> None:
            for _ in watch:
                pass
            ended.set()

        threading.Thread(target=take, daemon=True).start()
        closing = threading.Thread(target=vqa.close, daemon=True)
        closing.start()
        gate.open.set()
        closing.join(10)
        assert ended.wait(10)
    with pytest.raises(RuntimeError, match="closed"):
        vqa.watch(RED, "Is it red?")


# -- threads and loops -----------------------------------------------------------------------------------------------


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


def test_any_thread_may_take_the_events() -> None:
    told: list[str] = []
    with engine(Streaming(OPEN + "answer = query(img, 'a?')")) as vqa:
        watch = vqa.watch(RED, "Is it red?")
        threads = [threading.Thread(target=lambda: told.extend(names(watch))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert told.count("Answered") == told.count("Wrote") == 1 and told.count("CallEnded") == 2


def test_any_event_loop_may_take_the_events() -> None:
    async def take(watch: Watch) -> list[Event]:
        return [event async for event in watch]

    async def main(vqa: CodeVQA) -> list[list[Event]]:
        watches = [vqa.watch(RED, f"Is it {word}?") for word in ("red", "wet", "big")]
        return list(await asyncio.gather(*map(take, watches)))

    program = OPEN + "answer = query(img, 'a?')"
    with engine(Streaming(program)) as vqa:
        for events in asyncio.run(main(vqa)):
            told = [name for name in names(events) if name != "Writing"]
            assert told == ["Prepared", "Wrote", *["CallBegan", "CallEnded"] * 2, "Answered"]


def test_a_task_that_stops_waiting_leaves_the_events_to_the_next() -> None:
    gate = Gate()

    async def main(vqa: CodeVQA) -> list[str]:
        watch = vqa.watch_run(RED, OPEN + "answer = query(img, 'a?')")
        seen = [type(await anext(watch)).__name__ for _ in range(4)]
        assert await asyncio.to_thread(gate.entered.wait, 10)
        impatient = asyncio.create_task(anext(watch))
        await asyncio.sleep(0.05)
        impatient.cancel()
        await asyncio.wait([impatient])
        gate.open.set()
        return seen + [type(event).__name__ async for event in watch]

    with engine(read=gate) as vqa:
        assert asyncio.run(main(vqa)) == ["Wrote", *["CallBegan", "CallEnded"] * 2, "Answered"]


def test_an_event_that_comes_as_its_taker_is_cancelled_is_for_the_next() -> None:
    faults: list[dict[str, Any]] = []

    async def main() -> Event | None:
        loop, inbox = asyncio.get_running_loop(), _Inbox()
        loop.set_exception_handler(lambda _, fault: faults.append(fault))
        taker = loop.create_task(inbox.wait_async())
        await asyncio.sleep(0)
        inbox.put(Writing("answer"))
        taker.cancel()  # before the loop has come to wake it
        await asyncio.wait([taker])
        await asyncio.sleep(0)
        return await inbox.wait_async()

    assert asyncio.run(main()) == Writing("answer") and not faults


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


# -- examples, seeds and forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shots", [0, 1, 83])
def test_the_number_of_examples_of_one_question(shots: int) -> None:
    bank = [one for one in load_prompts("gqa").examples if one.form == "image"]
    assert len(bank) == 83
    with engine(Streaming(OPEN + "answer = qury(1)", OPEN + "answer = 1")) as vqa:
        prepared, *_, answered = vqa.watch(RED, "Is it red?", shots=shots)
        assert isinstance(prepared, Prepared) and isinstance(answered, Answered)
        assert len(prepared.examples) == shots == prepared.prompt.count("\n# Image") - 1
        program = answered.answer.program
        assert program is not None and len(program.examples) == shots
        assert program.prompt.startswith(prepared.prompt), "the repair is shown the same examples"
        assert vqa.prompt("Is it red?", shots=shots) == prepared.prompt
        assert len(vqa.writer.request("Is it red?", "image")[1]) == 12


@pytest.mark.parametrize("shots", [-1, 84])
def test_more_examples_than_there_are_is_a_clear_error(shots: int) -> None:
    with engine("answer = 1") as vqa:
        with pytest.raises(InputError, match=f"^{shots} examples were asked for; the prompt set gqa has 83 about one"):
            vqa.ask(RED, "Is it red?", shots=shots)
        with pytest.raises(InputError, match="Choose 0 to 83"):
            asyncio.run(vqa.ask_async(RED, "Is it red?", shots=shots))


def test_seed_and_form_of_a_program_that_is_run() -> None:
    source = 'images = open_images("ImageSet7.jpg")\nanswer = query(images[0], "a?")'

    def captions(**options: Any) -> tuple[str, ...]:
        return vqa.run([RED], source, **options).trace.calls[1].evidence[0].captions[0]

    with engine(query=QuerySettings(patches=5)) as vqa:
        assert captions(seed=1) == captions(seed=1) != captions(seed=2)
        assert len(captions(form="set")) == 3 and len(captions()) == 7  # as the prompts of each form say


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
