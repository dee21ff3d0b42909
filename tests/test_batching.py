"""Calls made together share batches, and each caller gets its own result or failure."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from codevqa.batching.batcher import Batcher
from codevqa.batching.feed import Slot
from codevqa.core.errors import ModelError, ServerError


class Doubler:
    """Doubles numbers, remembering the batches; refuses negative ones."""

    def __init__(self, seconds: float = 0.0, error: type[Exception] = ModelError) -> None:
        self.batches: list[list[int]] = []
        self.seconds = seconds
        self.error = error

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        time.sleep(self.seconds)
        if any(number < 0 for number in numbers):
            raise self.error("negative")
        return [2 * number for number in numbers if number < 100]


def ask(batcher: Batcher[int, int], number: int) -> Slot:
    slot: Slot = asyncio.get_running_loop().create_future()
    batcher.put(number, slot)
    return slot


def drive(model: Doubler, numbers: Sequence[int], **options: float) -> list[object]:
    async def main() -> list[object]:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(model, executor, **options)  # type: ignore[arg-type]
            slots = [ask(batcher, one) for one in numbers]
            found = await asyncio.gather(*slots, return_exceptions=True)
            return [one if isinstance(one, BaseException) else one[0] for one in found]

    return asyncio.run(main())


def test_a_server_that_is_down_is_not_asked_again_for_each_request() -> None:
    model = Doubler(error=ServerError)
    results = drive(model, [1, -1, 3])
    assert all(isinstance(result, ServerError) for result in results)
    assert len(model.batches) == 1


def test_too_few_results_is_an_error_not_a_shift() -> None:
    assert all(isinstance(result, ModelError) for result in drive(Doubler(), [100, 1]))


def test_the_next_batch_fills_while_one_runs_and_what_is_cancelled_costs_nothing() -> None:
    model = Doubler(seconds=0.1)

    async def main() -> list[int]:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(model, executor, max_wait=0.001)
            running, waiting = [ask(batcher, number) for number in (0, 1)], []
            await asyncio.sleep(0.03)
            waiting = [ask(batcher, number) for number in range(2, 6)]
            running[0].cancel()
            waiting[0].cancel()
            return [(await asyncio.wait_for(slot, 5))[0] for slot in (*running[1:], *waiting[1:])]

    assert asyncio.run(main()) == [2, 6, 8, 10]
    assert model.batches == [[0, 1], [3, 4, 5]]
