"""Calls of models: made together they share batches, equal ones are made once, and each caller gets its own result."""

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from PIL import Image

from codevqa.batching.batcher import Batcher
from codevqa.batching.model_services import ModelServices
from codevqa.core.errors import ModelError, ServerError
from codevqa.core.images import load_picture
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.models.protocols import CaptionRequest, GenerationRequest, MatchRequest, Message, Models, SimilarityRequest

PICTURE = load_picture(Image.new("RGB", (4, 4)))


def services_of(reader: ScriptedLM, captioner: FakeCaptioner | None = None, **options: Any) -> ModelServices:
    models = Models(reader, FakeMatcher(6), captioner or FakeCaptioner())
    return ModelServices(models, reader, **{"max_batch": 8, "max_wait": 0.001, **options})


def test_equal_calls_are_made_once_and_finished_ones_remembered() -> None:
    matcher, captioner, lm = FakeMatcher(6), FakeCaptioner(), ScriptedLM("x")
    again = load_picture(Image.new("RGB", (4, 4)))  # equal pixels, another object
    other = load_picture(Image.new("RGB", (4, 4), "red"))

    async def main() -> None:
        services = ModelServices(Models(lm, matcher, captioner), lm, max_batch=8, max_wait=0.001)
        each, two = await asyncio.gather(
            services.match(MatchRequest(PICTURE, "a")), services.match(MatchRequest(again, "a"))
        )
        three = await services.match(MatchRequest(PICTURE, "a"))
        assert each is two is three
        with pytest.raises(ValueError, match="read-only"):
            each.relevance[0, 0] = 1  # it is not this caller's alone
        await services.match(MatchRequest(PICTURE, "a", focus="a"))
        await services.match(MatchRequest(other, "a"))
        await services.similarity(SimilarityRequest(PICTURE, "a"))
        first = [CaptionRequest(PICTURE, (1, 2), 3), CaptionRequest(again, (1, 2), 3), CaptionRequest(PICTURE, (1, 2))]
        await services.caption.many(first)
        await services.caption.many([*first, CaptionRequest(PICTURE, (1, 3), 3), CaptionRequest(PICTURE, None, 3)])
        for request in (GenerationRequest("p", 5), GenerationRequest("p", 5, shared=1)):  # a hint changes nothing
            await services.read(request)
            await services.write(request)
        await services.read(GenerationRequest("p", 6))
        await services.read(GenerationRequest("p", 5, ("\n",)))
        await services.read(GenerationRequest((Message("user", "p"),), 5))
        services.close()

    asyncio.run(main())
    assert len(matcher.matches.requests) == 3 and len(matcher.similarities.requests) == 1
    assert len(captioner.requests) == 4 and len(lm.requests) == 4


def test_the_memory_is_bounded_and_may_be_off() -> None:
    def asked(remember: int, count: int) -> tuple[int, int]:
        captioner = FakeCaptioner()

        async def main() -> ModelServices:
            services = services_of(ScriptedLM("x"), captioner=captioner, remember=remember)
            for seed in [*range(count), *range(count)]:
                await services.caption(CaptionRequest(PICTURE, (1,), seed))
            services.close()
            return services

        memory = asyncio.run(main()).memory
        assert memory._kept.currsize <= remember
        return len(captioner.requests), len(memory._kept)

    assert asked(0, 3) == (6, 0)
    assert asked(1 << 20, 3) == (3, 3)
    requests, kept = asked(5000, 30)  # asked in turns, the oldest are always gone
    assert requests == 60 and 5 <= kept <= 12


def test_a_failure_reaches_all_who_wait_and_is_not_remembered() -> None:
    def once(request: GenerationRequest) -> str:
        if len(reader.requests) == 1:
            raise ModelError("once")
        return "yes"

    reader = ScriptedLM(once)

    async def main() -> list[object]:
        services = services_of(reader)
        both = await asyncio.gather(
            *(services.read(GenerationRequest("p", 5)) for _ in range(2)), return_exceptions=True
        )
        after = await services.read(GenerationRequest("p", 5))
        services.close()
        return [*both, after.text]

    first, two, after = asyncio.run(main())
    assert isinstance(first, ModelError) and isinstance(two, ModelError) and after == "yes"
    assert len(reader.requests) == 2


def test_a_cancelled_caller_does_not_cancel_the_others_and_the_last_one_does() -> None:
    entered, let_go = threading.Event(), threading.Event()

    def held(request: GenerationRequest) -> str:
        entered.set()
        assert let_go.wait(10)
        return "yes"

    reader = ScriptedLM(held)

    async def main() -> str:
        services = services_of(reader, max_wait=5.0, max_batch=1)
        first = asyncio.ensure_future(services.read(GenerationRequest("busy", 5)))
        await asyncio.to_thread(entered.wait, 10)  # so that what follows waits in the queue
        doomed, other, lonely = (
            asyncio.ensure_future(services.read(GenerationRequest(prompt, 5))) for prompt in ("p", "p", "gone")
        )
        await asyncio.sleep(0)
        doomed.cancel()
        lonely.cancel()
        await asyncio.wait([doomed, lonely])
        again = asyncio.ensure_future(services.read(GenerationRequest("p", 5)))
        let_go.set()
        texts = await asyncio.gather(first, other, again)
        assert doomed.cancelled() and lonely.cancelled()
        services.close()
        return " ".join(text.text for text in texts)

    assert asyncio.run(main()) == "yes yes yes"
    assert [str(request.prompt) for request in reader.requests] == ["busy", "p"]


@pytest.mark.timing
def test_a_question_asked_alone_waits_for_no_company_and_several_wait_for_one_another() -> None:
    async def ask(services: ModelServices, name: str, before: float = 0.0) -> None:
        with services.question():
            await asyncio.sleep(before)
            await services.caption.many([CaptionRequest(PICTURE, (1,), seed) for seed in range(3)])
            await services.read(GenerationRequest(name, 5))

    async def main(*waits: float) -> tuple[float, list[int]]:
        reader = ScriptedLM("x")
        services = services_of(reader, max_wait=1.0)
        began = time.perf_counter()
        await asyncio.gather(*(ask(services, str(n), wait) for n, wait in enumerate(waits)))
        seconds = time.perf_counter() - began
        services.close()
        return seconds, reader.batches

    seconds, batches = asyncio.run(main(0.0))
    assert seconds < 0.9 and batches == [1]
    seconds, batches = asyncio.run(main(0.0, 0.3))  # one is on its way while the other waits
    assert seconds < 1.5 and batches == [2]
    seconds, batches = asyncio.run(main(0.0, 3.0))  # but no longer than it is told
    assert seconds > 3.0 and batches == [1, 1]


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


def ask(batcher: Batcher[int, int], number: int) -> asyncio.Future[Any]:
    slot: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    batcher.add(number, slot)  # type: ignore[arg-type]  # it ends as a slot does
    return slot


def drive(model: Doubler, numbers: Sequence[int], **options: float) -> list[object]:
    async def main() -> list[object]:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(model, executor, **options)  # type: ignore[arg-type]
            slots = [ask(batcher, number) for number in numbers]
            gather = await asyncio.gather(*slots, return_exceptions=True)
            return [each if isinstance(each, BaseException) else each[0] for each in gather]

    return asyncio.run(main())


def test_a_server_that_is_down_is_not_asked_again_for_each_request() -> None:
    model = Doubler(error=ServerError)
    results = drive(model, [1, -1, 3])
    assert all(isinstance(result, ServerError) for result in results)
    assert len(model.batches) == 1


def test_too_few_results_is_an_error_not_a_shift() -> None:
    assert all(isinstance(result, ModelError) for result in drive(Doubler(), [100, 1]))
