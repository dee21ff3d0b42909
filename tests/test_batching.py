from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from codevqa.batching.batcher import Batcher
from codevqa.core.errors import ModelError, ServerError


class Doubler:
    """Doubles numbers, remembering the batches; refuses negative ones."""

    def __init__(self, seconds: float = 0.0, error: type[Exception] = ModelError) -> None:
        self.batches: list[list[int]] = []
        self.seconds = seconds
        self.error = error
        self.running = 0

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.running += 1
        assert self.running == 1, "two batches of one model overlap"
        self.batches.append(list(numbers))
        time.sleep(self.seconds)
        self.running -= 1
        if any(number < 0 for number in numbers):
            raise self.error("negative")
        return [2 * number for number in numbers]


class Waiting(asyncio.Future[int]):
    """A future as a slot."""

    def took(self, seconds: float, /) -> None: ...


def ask(batcher: Batcher[int, int], number: int) -> Waiting:
    slot = Waiting()
    batcher.put(number, slot)
    return slot


def drive(model: Doubler, numbers: Sequence[int], **options: float) -> list[object]:
    async def main() -> list[object]:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(model, executor, **options)  # type: ignore[arg-type]
            return list(await asyncio.gather(*(ask(batcher, one) for one in numbers), return_exceptions=True))

    return asyncio.run(main())


def test_calls_made_together_share_one_batch_and_each_gets_its_own_result() -> None:
    model = Doubler()
    assert drive(model, range(10)) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert model.batches == [list(range(10))]


def test_a_full_batch_starts_at_once_and_none_is_larger() -> None:
    model = Doubler()
    drive(model, range(10), max_size=4, max_wait=60)
    assert [len(batch) for batch in model.batches] == [4, 4, 2]


def test_only_the_request_at_fault_fails() -> None:
    model = Doubler()
    results = drive(model, [1, -1, 3])
    assert results[0] == 2 and results[2] == 6
    assert isinstance(results[1], ModelError)


def test_a_server_that_is_down_is_not_asked_again_for_each_request() -> None:
    model = Doubler(error=ServerError)
    results = drive(model, [1, -1, 3])
    assert all(isinstance(result, ServerError) for result in results)
    assert len(model.batches) == 1


def test_an_unknown_exception_becomes_a_model_error_that_names_it() -> None:
    results = drive(Doubler(error=ZeroDivisionError), [-1])
    assert isinstance(results[0], ModelError) and "ZeroDivisionError" in str(results[0])


def test_the_next_batch_fills_while_one_runs() -> None:
    model = Doubler(seconds=0.1)

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(model, executor, max_wait=0.001)
            first = ask(batcher, 0)
            await asyncio.sleep(0.03)
            await asyncio.gather(first, *(ask(batcher, number) for number in range(1, 6)))

    asyncio.run(main())
    assert model.batches == [[0], [1, 2, 3, 4, 5]]


def test_a_request_cancelled_before_its_batch_starts_costs_nothing() -> None:
    model = Doubler()

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(model, executor, max_wait=0.02)
            doomed, other = ask(batcher, 1), ask(batcher, 2)
            await asyncio.sleep(0)
            doomed.cancel()
            await other
            assert (batcher.stats.requests, batcher.stats.batches, batcher.stats.largest) == (1, 1, 1)

    asyncio.run(main())
    assert model.batches == [[2]]


def test_a_request_cancelled_while_its_batch_runs_does_not_break_the_batch() -> None:
    model = Doubler(seconds=0.1)

    async def main() -> tuple[int, int]:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(model, executor, max_wait=0.001)
            doomed, other = ask(batcher, 1), ask(batcher, 2)
            await asyncio.sleep(0.05)
            doomed.cancel()
            return await asyncio.wait_for(other, 5), await asyncio.wait_for(ask(batcher, 3), 5)

    assert asyncio.run(main()) == (4, 6)
    assert model.batches == [[1, 2], [3]]


def test_the_batcher_lives_on_after_its_running_batch_is_cancelled() -> None:
    class Cancelling(ThreadPoolExecutor):
        """Cancels the first batch before its thread comes to it."""

        done = 0

        def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
            self.done += 1
            if self.done > 1:
                return super().submit(*args, **kwargs)
            cancelled: Future[Any] = Future()
            cancelled.cancel()
            return cancelled

    async def main() -> tuple[bool, int]:
        with Cancelling(1) as executor:
            batcher = Batcher(Doubler(), executor, max_wait=0.001)
            waiting = ask(batcher, 1)
            await asyncio.wait([waiting], timeout=5)
            return waiting.done() and waiting.cancelled(), await asyncio.wait_for(ask(batcher, 2), 5)

    assert asyncio.run(main()) == (True, 4)


def test_requests_after_the_executor_was_shut_down_fail_instead_of_waiting() -> None:
    async def main() -> list[object]:
        executor = ThreadPoolExecutor(1)
        batcher = Batcher(Doubler(), executor, max_wait=0.001)
        executor.shutdown()
        return [
            *await asyncio.wait_for(
                asyncio.gather(*(ask(batcher, one) for one in range(2)), return_exceptions=True), 5
            ),
            *await asyncio.wait_for(asyncio.gather(ask(batcher, 2), return_exceptions=True), 5),
        ]

    results = asyncio.run(main())
    assert len(results) == 3
    assert all(isinstance(result, ModelError) and "shutdown" in str(result) for result in results)


def test_the_first_request_waits_as_long_as_it_is_told_and_no_longer() -> None:
    async def main(second_after: float) -> list[list[int]]:
        model = Doubler()
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(model, executor, max_wait=0.2)
            first = ask(batcher, 1)
            await asyncio.sleep(second_after)
            await asyncio.gather(first, ask(batcher, 2))
        return model.batches

    assert asyncio.run(main(0.05)) == [[1, 2]]
    assert asyncio.run(main(0.5)) == [[1], [2]]


def test_too_few_results_is_an_error_not_a_shift() -> None:
    async def main() -> list[object]:
        with ThreadPoolExecutor(1) as executor:
            batcher: Batcher[int, int] = Batcher(lambda numbers: list(numbers)[:-1], executor)
            return list(await asyncio.gather(ask(batcher, 1), ask(batcher, 2), return_exceptions=True))

    assert all(isinstance(result, ModelError) for result in asyncio.run(main()))
