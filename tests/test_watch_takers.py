"""Who takes the events: cancelling ends what runs for them, and any thread or event loop may take its turn."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

from engine_kit import GREEN, RED, Gate
from watch_kit import OPEN, THREE, Streaming, begun, engine, names

from codevqa import CodeVQA, Watch
from codevqa.core.events import Event, Writing

# -- cancelling ------------------------------------------------------------------------------------------------------


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
