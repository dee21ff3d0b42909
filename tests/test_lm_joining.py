"""Requests that join others in the slots of a language model, through the batcher that the engine puts before it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from lm_kit import CONTEXT, HEAD, alone, build, llama, mixed

from codevqa.batching.model_services import ModelServices
from codevqa.core.errors import CodeVQAError, ModelError
from codevqa.models.base import Completion, GenerationRequest, Models
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.causal_lm.gpu.decoder import SlotDecoder
from codevqa.models.fakes import FakeCaptioner, FakeMatcher


def ask(
    lm: TransformersLM, requests: Sequence[GenerationRequest], gap: float = 0.004, ended: list[int] | None = None
) -> list[Any]:
    """Asks one after another, without waiting for answers; returns what came of each, and notes in which order."""

    async def main() -> list[Any]:
        services = ModelServices(Models(lm, FakeMatcher(6), FakeCaptioner()), lm, max_batch=None, max_wait=0.001)

        async def one(number: int, request: GenerationRequest) -> Completion:
            await asyncio.sleep(gap * number)
            made = await services.read(request)
            if ended is not None:
                ended.append(number)
            return made

        try:
            asked = (one(number, request) for number, request in enumerate(requests))
            return await asyncio.gather(*asked, return_exceptions=True)
        finally:
            services.close()

    return asyncio.run(main())


@pytest.mark.parametrize("gap", [0.0, 0.004])
def test_a_joining_request_reads_what_it_reads_alone(gap: float) -> None:
    # The prompt that stands there twice is asked once, and one that cannot be asked is a failure of its own.
    requests = [*mixed(), GenerationRequest("red", 0)]
    expected = alone(llama)
    lm = build(llama, "slots", max_batch=3)
    *answers, refused = ask(lm, requests, gap)
    assert answers == expected
    assert isinstance(refused, ModelError) and "max_tokens is 0" in str(refused)
    assert lm.stats.generate_calls == 0


def test_a_short_text_does_not_wait_for_a_long_one() -> None:
    ended: list[int] = []
    long = GenerationRequest(HEAD, CONTEXT - 60)
    shorts = [GenerationRequest(f"red {number}", 2) for number in range(4)]
    ask(build(llama, "slots", max_batch=3), [long, *shorts], ended=ended)
    assert ended[-1] == 0 and len(ended) == 5


def test_one_that_never_fits_costs_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = build(llama, "slots", max_batch=3)
    launch = SlotDecoder._launch

    def short(self: SlotDecoder, memory: Any) -> Any:
        if any(text.request.max_tokens == 33 for text in self._texts.values()):
            raise torch.OutOfMemoryError("no room")
        return launch(self, memory)

    monkeypatch.setattr(SlotDecoder, "_launch", short)
    good = [GenerationRequest(f"red ball {n}", 6) for n in range(5)]
    *answers, bad = ask(lm, [*good, GenerationRequest("box", 33)], 0.001)
    plain = build(llama, "generate")
    assert answers == [plain.generate([request])[0] for request in good]
    assert isinstance(bad, ModelError) and "ran out of memory" in str(bad)


def test_a_failure_in_the_middle_is_told_to_those_it_met(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = build(llama, "slots", max_batch=3)
    monkeypatch.setattr(SlotDecoder, "_launch", lambda self, memory: 1 / 0)
    answers = ask(lm, [GenerationRequest(f"red {n}", 3) for n in range(4)])
    assert all(isinstance(one, CodeVQAError) and "ZeroDivisionError" in str(one) for one in answers)
