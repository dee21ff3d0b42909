"""The models behind their batchers: shared where one model plays two roles, and ended with the engine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest
from PIL import Image

from codevqa.errors import SetupError
from codevqa.images import load_picture
from codevqa.models.base import (
    CaptionRequest,
    DetectRequest,
    GenerationRequest,
    Match,
    MatchRequest,
    Models,
    SimilarityRequest,
)
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.services import Services

PICTURE = load_picture(Image.new("RGB", (4, 4)))


def test_a_model_that_writes_and_reads_shares_its_batches() -> None:
    async def main(reader: ScriptedLM, writer: ScriptedLM) -> None:
        services = Services(Models(reader, FakeMatcher(6), FakeCaptioner()), writer, max_batch=8, max_wait=0.05)
        await asyncio.gather(services.write(GenerationRequest("a", 5)), services.read(GenerationRequest("b", 5)))
        services.close()

    one, reader, writer = ScriptedLM("x"), ScriptedLM("x"), ScriptedLM("x")
    asyncio.run(main(one, one))
    assert one.batches == [2]
    asyncio.run(main(reader, writer))
    assert (reader.batches, writer.batches) == ([1], [1])


def test_the_methods_of_one_model_never_overlap() -> None:
    class Slow(FakeMatcher):
        running = 0
        most = 0

        def _enter(self) -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            time.sleep(0.1)
            self.running -= 1

        def match(self, requests: Sequence[MatchRequest]) -> list[Match]:
            self._enter()
            return super().match(requests)

        def similarity(self, requests: Sequence[SimilarityRequest]) -> list[float]:
            self._enter()
            return super().similarity(requests)

    matcher = Slow(6)

    async def main() -> None:
        lm = ScriptedLM("x")
        services = Services(Models(lm, matcher, FakeCaptioner()), lm, max_batch=8, max_wait=0.001)
        await asyncio.gather(
            services.match(MatchRequest(PICTURE, "a")), services.similarity(SimilarityRequest(PICTURE, "a"))
        )
        services.close()

    asyncio.run(main())
    assert matcher.most == 1


def test_no_batch_is_larger_than_allowed() -> None:
    captioner, lm = FakeCaptioner(), ScriptedLM("x")

    async def main() -> None:
        services = Services(Models(lm, FakeMatcher(6), captioner), lm, max_batch=3, max_wait=0.05)
        await asyncio.gather(*(services.caption(CaptionRequest(PICTURE)) for _ in range(7)))
        services.close()

    asyncio.run(main())
    assert captioner.batches == [3, 3, 1]


def test_without_a_detector_detecting_says_what_to_do_and_closing_ends_every_thread() -> None:
    async def main() -> None:
        lm = ScriptedLM("x")
        services = Services(Models(lm, FakeMatcher(6), FakeCaptioner()), lm, max_batch=3, max_wait=0.001)
        await services.read(GenerationRequest("a", 5))
        with pytest.raises(SetupError, match="needs a detector"):
            await services.detect(DetectRequest(PICTURE, "dog"))
        services.close()

    before = set(threading.enumerate())
    asyncio.run(main())
    assert not {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("codevqa-")}
