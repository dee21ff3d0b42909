"""What answers and runs cost: reckoned the same whatever else is asked, and never made up where it is unknown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from eval_kit import Numbered, fake_engine

from codevqa.batching.batcher import Batcher, Company
from codevqa.batching.call_cache import CallCache, Memory, Usage
from codevqa.eval import evaluate
from codevqa.eval.report.reading import summary_of


def slow(requests: Sequence[int]) -> list[int]:
    time.sleep(0.6)
    return [2 * one for one in requests]


@pytest.mark.timing
def test_a_call_has_its_share_of_its_batch_and_waiting_costs_nothing() -> None:
    async def ask(cache: CallCache[int, int], *numbers: int) -> Usage:
        usage = Usage()
        with usage.counting():
            await cache.many(numbers)
        return usage

    async def main() -> list[Usage]:
        with ThreadPoolExecutor(1) as thread:
            batcher = Batcher(slow, thread, max_size=2)
            cache = CallCache(
                batcher,
                lambda one: one,
                lambda one, two: 8,
                kind="double",
                memory=Memory(1000),
                company=Company(),
                cost=lambda one: (one, 1),
            )
            waited = await asyncio.gather(ask(cache, 1, 2), ask(cache, 3), ask(cache, 4))
            return [*waited, await ask(cache, 3)]

    whole, half, other, remembered = asyncio.run(main())
    assert 0.6 <= whole.seconds < 1.0  # both of a batch
    assert 0.3 <= half.seconds == remembered.seconds < 0.5 and 0.3 <= other.seconds < 0.5
    assert (whole.prompt_tokens, whole.completion_tokens, whole.tokens, whole.kinds) == (6, 2, 8, {"double": 2})


def test_every_row_says_what_it_cost_and_reading_is_counted_apart_from_writing(tmp_path: Path) -> None:
    with fake_engine() as vqa, evaluate(vqa, Numbered(tmp_path, 4), tmp_path / "run") as store:
        rows = {method: next(store.rows(method)) for method in ("codevqa", "pnpvqa")}
        summary, pace = summary_of(store), store.pace()
    ours, theirs = rows["codevqa"].cost, rows["pnpvqa"].cost
    assert ours is not None and theirs is not None
    assert ours.calls == {"caption": 2, "match": 1, "read": 1, "write": 1} and "write" not in theirs.calls
    assert ours.prompt_tokens + ours.completion_tokens == rows["codevqa"].tokens
    assert ours.program_seconds > 0 == theirs.program_seconds and ours.model_seconds > 0
    assert ours.seconds < rows["codevqa"].seconds
    cost = summary.methods["codevqa"].cost
    assert cost is not None and cost.rows == 4 and cost.calls == ours.calls
    assert pace is not None and pace.questions == 4 and pace.rate is not None
