"""A model computes for one caller at a time: engines, threads and processes that share it; and interrupts."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import lm_kit
import pytest
import torch
from cli_kit import GARDEN
from engine_kit import forked
from lm_kit import HEAD, llama, mixed

from codevqa import CodeVQA
from codevqa.batching.model_services import ModelServices
from codevqa.core.errors import SetupError
from codevqa.core.loop_thread import LoopThread
from codevqa.engine.many import Question
from codevqa.models.cpu_threads import NetworkThread
from codevqa.models.fakes import FakeCaptioner, FakeMatcher
from codevqa.models.openai_lm import OpenAILM
from codevqa.models.protocols import Completion, GenerationRequest, Models
from codevqa.models.request_queue import ModelLock

Asked = TypeVar("Asked")


def at_once(ask: Callable[[Asked], Any], asked: Sequence[Asked], threads: int = 3) -> list[Any]:
    """What each thread gets that asks one after another, each from another one on."""

    def all_from(start: int) -> list[Any]:
        places = [*range(start, len(asked)), *range(start)]
        actual = {place: ask(asked[place]) for place in places}
        return [actual[place] for place in range(len(asked))]

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(all_from, range(threads)))


def services_of(lm: Any) -> ModelServices:
    models = Models(lm, FakeMatcher(6), FakeCaptioner(grid=6))
    return ModelServices(models, lm, max_batch=4, max_wait=0.001, remember=0)


def test_engines_over_one_set_of_models_answer_as_each_alone(mini: CodeVQA) -> None:
    things = ("house", "tree", "dog")
    asked = [
        Question(GARDEN, f"{what} {thing}?")
        for what in ("Is there a red", "What color is the", "Is the house left of the")
        for thing in things
    ]
    settings = replace(mini.settings, remember=0)
    other = replace(settings, seed=5, query=replace(settings.query, captions=5))

    def answers(engine: CodeVQA) -> list[tuple[object, ...]]:
        return [(answer.text, answer.program, str(answer.error)) for answer in engine.ask_many(asked)]

    with CodeVQA(mini.writer, mini.models, settings) as each, CodeVQA(mini.writer, mini.models, other) as two:
        expected = [answers(each), answers(two)]
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(answers, (each, two))) == expected
    assert len({program for answered in expected for _, program, _ in answered}) > 5


@pytest.mark.parametrize("way", ["packed", "slots", "generate"])
def test_threads_read_what_each_reads_alone(way: str) -> None:
    lm = lm_kit.build(llama, way)
    actual = at_once(lambda request: lm.generate([request])[0], mixed())
    assert actual == [lm_kit.alone(llama)] * 3


def test_turns_are_given_in_the_order_of_asking_and_may_be_entered_again() -> None:
    part, came = object(), []
    turn = ModelLock(part)

    def wait(number: int) -> None:
        with ModelLock(part, object()):
            came.append(number)

    with turn, turn:
        threads = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
            time.sleep(0.05)  # for it to come into the line
        assert turn.has_waiters and not came
    for thread in threads:
        thread.join()
    assert came == [0, 1, 2, 3, 4] and not turn.has_waiters


def test_a_holder_may_take_more_turns_that_others_wait_for() -> None:
    part, other = object(), object()

    def wait() -> None:
        with ModelLock(other, part):
            pass

    waiter = threading.Thread(target=wait, daemon=True)
    with ModelLock(part):
        waiter.start()
        time.sleep(0.05)  # for it to come into the lines
        with ModelLock(part, other):
            assert waiter.is_alive()
    waiter.join(10)
    assert not waiter.is_alive()


def test_an_interrupted_caller_leaves_the_line() -> None:
    turn = ModelLock(object(), object())
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with turn:
            held.set()
            assert done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt), turn:
            time.sleep(5)  # not reached
    finally:
        signal.signal(signal.SIGINT, before)
    assert not turn.has_waiters
    done.set()
    holder.join()
    with turn:  # nobody has it
        pass


@pytest.mark.parametrize("who", ["engine", "caller"])
def test_a_model_that_takes_requests_as_they_come_gives_way(who: str) -> None:
    lm = lm_kit.build(llama, "slots")
    loop = asyncio.new_event_loop()
    busy = services_of(lm)
    stop = threading.Event()
    answered: list[str] = []

    async def keep_busy() -> None:
        async def forever(first: int) -> None:
            number = first
            while not stop.is_set():
                number += 10
                answered.append((await busy.read(GenerationRequest(f"{HEAD}red {number}", 30))).text)

        await asyncio.gather(*(forever(first) for first in range(10)))  # more than it has slots

    async def ask(request: GenerationRequest) -> Completion:
        services = services_of(lm)
        try:
            return await asyncio.wait_for(services.read(request), 20)
        finally:
            services.close()

    request = GenerationRequest("box", 12)
    (expected,) = lm.generate([request])
    thread = threading.Thread(target=loop.run_until_complete, args=(keep_busy(),))
    thread.start()
    try:
        while len(answered) < 8:
            time.sleep(0.001)
        for _ in range(3):
            actual = asyncio.run(ask(request)) if who == "engine" else lm.generate([request])[0]
            assert actual == expected
    finally:
        stop.set()
        thread.join()
        busy.close()
        loop.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_says_that_it_cannot_use_what_was_loaded_before_it() -> None:
    lm = lm_kit.build(llama)
    request = GenerationRequest("red", 3)
    lm.generate([request])
    refused = forked(lambda: lm.generate([request]))
    assert refused.startswith(f"{SetupError.__name__}: A model") and "spawn" in refused
    server = OpenAILM("m", base_url="http://127.0.0.1:9/v1", api_key="k")
    assert "spawn" in forked(lambda: server.generate([request]))


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_of_the_caller_cancels_the_work() -> None:
    cancelled = threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    loop = LoopThread("test")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()  # once the main thread waits for the result
    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert cancelled.wait(5)
    loop.close()


def test_a_small_network_is_computed_on_one_core_and_a_large_one_on_all() -> None:
    def where() -> tuple[bool, int]:
        return threading.current_thread().name.startswith("codevqa-network"), torch.get_num_threads()

    before, network, cpu = torch.get_num_threads(), torch.nn.Linear(30, 10), torch.device("cpu")  # 310 weights
    torch.set_num_threads(2)
    try:
        assert NetworkThread(network, 1, cpu, large=1000).run(where) == (True, 1)
        assert NetworkThread(network, 2, cpu, large=310).run(where)[1] == 1  # 155 a block
        assert NetworkThread(network, 1, cpu, large=310).run(where) == (False, 2)
        assert NetworkThread(network, 1, torch.device("cuda")).run(where)[1] == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
