"""The decoding loop in slots, on tiny random models of several architectures, against ``model.generate`` alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import lm_kit
import pytest
import torch
from lm_kit import CONTEXT, HEAD, alone, gpt2, llama, mixed, qwen2

from codevqa.core.errors import ModelError
from codevqa.models.base import GenerationRequest
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.causal_lm.gpu import decoder as gpu_decoder
from codevqa.models.causal_lm.gpu import slots
from codevqa.models.causal_lm.gpu.decoder import Schedule, SlotDecoder
from codevqa.models.causal_lm.gpu.prefix_plan import PrefixNode, plan_prefixes
from codevqa.models.causal_lm.marked_prefixes import MarkedPrefixes
from codevqa.models.causal_lm.tokenised_request import TokenisedRequest
from codevqa.models.causal_lm.work import Work

LATE = Schedule(steps=3, rounds_in_flight=1, prefill_tokens=200, least_saving=16, length_multiple=8)
"""As on a GPU: the host looks at what was made when more is under way."""
EACH = Schedule(steps=1, rounds_in_flight=0, prefill_tokens=256, least_saving=64, length_multiple=1)
SCHEDULES = {
    "each": EACH,
    "late": LATE,
    "long": Schedule(steps=8, rounds_in_flight=2, prefill_tokens=10**6, least_saving=10**6, length_multiple=64),
}


def build(make: Callable[[], Any], *, schedule: Schedule = EACH, **given: Any) -> TransformersLM:
    """A model decoded in slots, as on a GPU."""
    lm = lm_kit.build(make, **given)
    lm._loop = SlotDecoder(
        lm.model, pad=0, max_batch=lm.max_batch, prefix_bytes=256 * 2**20, stats=lm.stats, schedule=schedule
    )
    return lm


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize(
    "slots", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(16, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("make", [llama, qwen2, gpt2])
def test_equals_generate_one_by_one(make: Callable[[], Any], slots: int, schedule: Schedule) -> None:
    expected = alone(make)
    lm = build(make, max_batch=slots, schedule=schedule)
    assert lm.own_loop
    assert lm.generate(mixed()) == expected
    assert lm.generate(list(reversed(mixed()))) == expected[::-1], "slots of the last call were not begun afresh"
    assert lm.stats.generate_calls == 0 and lm.stats.steps > 0


def test_the_model_is_left_as_it_was() -> None:
    lm = build(llama)
    before = lm.model.config._attn_implementation
    lm.generate(mixed())
    assert lm.model.config._attn_implementation == before


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_full_context_ends_the_row_however_late_one_looks() -> None:
    # GPT-2 has no position past its context: to step there would be an error.
    lm, plain = build(gpt2, schedule=SCHEDULES["long"]), build(gpt2, loop=False)
    longest = "<s>"
    while len(lm.tokenizer(longest)["input_ids"]) < CONTEXT - 7:
        longest += " x="
    requests = [GenerationRequest(longest, 100), GenerationRequest("red ball", 40), GenerationRequest(longest[:-9], 90)]
    assert lm.generate(requests) == [plain.generate([request])[0] for request in requests]
    assert lm.generate(requests)[0].completion_tokens <= 7


def test_end_token_and_stop_string_inside_a_round() -> None:
    (free,) = build(llama, loop=False).generate([GenerationRequest(HEAD, 30)])
    lm = build(llama, schedule=SCHEDULES["long"])
    for place in (2, 5, 11):
        stop = free.text[place : place + 6]
        (cut,) = lm.generate([GenerationRequest(HEAD, 30, (stop,))])
        assert cut.text == free.text[: free.text.index(stop)]
        plain = build(llama, loop=False).generate([GenerationRequest(HEAD, 30, (stop,))])
        assert plain == [cut], "tokens past the end were counted"
    rows = [TokenisedRequest(0, lm.tokenizer(HEAD)["input_ids"], 0, 30, ())]
    work = Work(rows, lm._find_end)
    with torch.inference_mode():
        lm._loop.run(work)
    tokens = work.made[0]
    lm._ends = {tokens[9]}
    (ended,) = lm.generate([GenerationRequest(HEAD, 30)])
    assert ended.completion_tokens == tokens.index(tokens[9]) + 1


def test_a_slot_left_far_behind_does_not_disturb_shorter_texts() -> None:
    # The long text ends at once, its slot goes on moving past the places that are looked at for the others.
    long = "red ball box " * 30
    plain = build(llama, loop=False)
    stop = plain.generate([GenerationRequest(long, 4)])[0].text[:1]
    requests = [GenerationRequest("red", 40), GenerationRequest("box", 40), GenerationRequest(long, 50, (stop,))]
    lm = build(
        llama,
        schedule=Schedule(steps=2, rounds_in_flight=1, prefill_tokens=10**6, least_saving=10**6, length_multiple=8),
        max_batch=4,
    )
    assert lm.generate(requests) == [plain.generate([request])[0] for request in requests]
    assert lm.generate(requests)[2].completion_tokens == 1


# --- slots -----------------------------------------------------------------------------------------------------------


def test_a_slot_is_taken_again_while_the_others_go_on() -> None:
    limits = [40, 5, 5, 5, 5, 5, 5, 5]
    requests = [GenerationRequest(f"{word} ball", limit) for word, limit in zip("abcdefgh", limits, strict=True)]
    lm = build(llama, max_batch=2)
    completions = lm.generate(requests)
    assert [completion.completion_tokens for completion in completions] == limits
    # Seven short texts pass through one slot, one after another, beside the long one. Batches that wait for their
    # longest row would need 40 + 3 * 5 steps. The first token of each comes with its prompt, where it is computed
    # alone.
    assert lm.stats.steps <= 41
    assert isinstance(lm._loop, SlotDecoder) and lm._loop.memory is not None and lm._loop.memory.count == 2


def test_slots_are_kept_from_call_to_call_and_grow_with_need(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    whole = slots.Slots

    def counted(shapes: Any, count: int, length: int, *given: Any) -> Any:
        made.append((count, length))
        return whole(shapes, count, length, *given)

    lm = build(llama, schedule=LATE)
    assert lm.own_loop
    monkeypatch.setattr(gpu_decoder, "Slots", counted)
    short = [GenerationRequest("red", 8), GenerationRequest("box", 8)]
    lm.generate(short)
    lm.generate(short[:1])
    assert len(made) == 1
    lm.generate([GenerationRequest("red ball " * 9, 30)])
    lm.generate(short * 2)
    lm.generate(short)
    assert len(made) == 3
    assert [count for count, _ in made] == [2, 2, 4]
    assert made[0][1] < made[1][1] == made[2][1] and all(length % LATE.length_multiple == 0 for _, length in made)


class Recorder:
    """In the place of CUDA graphs: warms up as they do, and runs the function where they are replayed."""

    made = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, function: Callable[[], None], undo: Callable[[], None]) -> tuple[Callable[[], None], None]:
        Recorder.made += 1
        for _ in range(2):
            function()
            undo()
        return function, None


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "Recorder", Recorder)
    monkeypatch.setattr(slots, "enabled", lambda device: True)
    monkeypatch.setattr(Recorder, "made", 0)


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_recording_a_step_makes_no_token(schedule: Schedule, recorded: None) -> None:
    lm = build(llama, schedule=schedule, max_batch=3)
    assert lm.generate(mixed()) == alone(llama)
    shapes = Recorder.made
    assert 0 < shapes < lm.stats.steps, "a step is recorded each time"
    assert lm.generate(mixed()) == alone(llama)
    assert Recorder.made == shapes, "recordings are not kept from call to call"


def test_steps_that_cannot_be_recorded_are_launched(
    recorded: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: Any) -> Any:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    monkeypatch.setattr(Recorder, "__call__", refused)
    lm = build(llama)
    for _ in range(2):
        assert lm.generate(mixed()) == alone(llama)
    assert caplog.messages == [
        "Decoding steps are not recorded as CUDA graphs: CUDA error: operation not permitted when stream is capturing."
    ]
    assert isinstance(lm._loop, SlotDecoder) and lm._loop.memory is not None and not lm._loop.memory.recordable


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Memory for two slots and no more."""
    tried: list[int] = []
    whole = slots.Slots

    def scarcely(shapes: Any, count: int, *given: Any) -> Any:
        tried.append(count)
        if count > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(shapes, count, *given)

    monkeypatch.setattr(gpu_decoder, "Slots", scarcely)
    return iter([tried])


def test_out_of_memory_halves_the_slots_and_goes_on(scarce: Any) -> None:
    lm = build(llama, max_batch=16)
    assert lm.generate(mixed()) == alone(llama)
    assert next(scarce) == [16, 8, 4, 2]
    assert lm.generate(mixed()) == alone(llama)


def test_out_of_memory_on_the_way_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = build(llama, max_batch=4)
    assert lm.own_loop
    run, calls = slots.Step.run, [0]

    def fails_once(self: Any, model: Any) -> None:
        calls[0] += 1
        if calls[0] == 40:
            raise torch.OutOfMemoryError("CUDA out of memory")
        run(self, model)

    monkeypatch.setattr(slots.Step, "run", fails_once)
    begun: list[int] = []
    monkeypatch.setattr(lm._loop, "_run", noted(lm._loop._run, begun))
    assert lm.generate(mixed()) == alone(llama)
    assert len(begun) == 2 and begun[1] < begun[0] == len(mixed()), "texts that were done were decoded again"
    assert lm._loop.max_batch == 2


def noted(run: Callable[..., None], begun: list[int]) -> Callable[..., None]:
    def noting(work: Work) -> None:
        begun.append(len(work.open))
        run(work)

    return noting


def test_no_memory_for_one_row_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: Any, **named: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    lm = build(llama)
    assert lm.own_loop
    monkeypatch.setattr(gpu_decoder, "Slots", never)
    with pytest.raises(ModelError, match="ran out of memory"):
        lm.generate([GenerationRequest("red", 4)] * 3)
    whole = build(llama, loop=False, max_batch=4)
    monkeypatch.setattr(whole.model, "generate", never)
    with pytest.raises(ModelError, match="ran out of memory"):
        whole.generate([GenerationRequest("red", 4)] * 3)


def test_generate_halves_its_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = build(llama, loop=False, max_batch=8)
    generate, sizes = lm.model.generate, []

    def scarcely(input_ids: torch.Tensor, **given: Any) -> Any:
        sizes.append(len(input_ids))
        if len(input_ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return generate(input_ids=input_ids, **given)

    monkeypatch.setattr(lm.model, "generate", scarcely)
    assert lm.generate(mixed()) == alone(llama)
    assert max(sizes) > 2 and lm._reference.max_batch == 2


# --- beginnings in common --------------------------------------------------------------------------------------------


def row(index: int, text: str, prefix: int = 0) -> TokenisedRequest:
    return TokenisedRequest(index, [ord(letter) for letter in text], prefix, 4, ())


def shape(node: PrefixNode) -> Any:
    return ("".join(map(chr, node.tokens)), [r.index for r in node.requests], [shape(child) for child in node.children])


def test_plan_is_a_tree_of_beginnings() -> None:
    rows = [row(0, "abcdXX"), row(1, "abcdYYY"), row(2, "abZ"), row(3, "q"), row(4, "abcdXXcd"), row(5, "abZ")]
    # Of two that are the same all but the last token is common.
    assert [shape(node) for node in plan_prefixes(rows, 1)] == [
        ("", [3], [("ab", [2, 5], [("abcd", [1], [("abcdX", [0, 4], [])])])])
    ]
    # Four share "ab" (6 tokens saved); "abcd" saves 4 more for three.
    assert [shape(node) for node in plan_prefixes(rows, 5)] == [("", [3], [("ab", [2, 5, 0, 1, 4], [])])]
    assert [shape(node) for node in plan_prefixes(rows, 100)] == [("", [3, 2, 5, 0, 1, 4], [])]


def test_plan_holds_every_row_once_and_leaves_a_token() -> None:
    draw = random.Random(0)
    for worth in (1, 3, 10, 40):
        rows = [row(i, "".join(draw.choices("ab", k=draw.randint(1, 12)))) for i in range(200)]
        nodes = [node for root in plan_prefixes(rows, worth) for node in root.walk()]
        assert sorted(r.index for node in nodes for r in node.requests) == list(range(200))
        for node in nodes:
            for member in node.requests:
                assert member.tokens[: len(node.tokens)] == node.tokens and len(node.tokens) < len(member.tokens)
            if node.parent is not None:
                below = sum(len(n.requests) for n in node.walk())
                assert (below - 1) * (len(node.tokens) - len(node.parent.tokens)) >= worth
            assert [len(r.tokens) for r in node.requests] == sorted(len(r.tokens) for r in node.requests)


def test_marked_prefixes_are_roots() -> None:
    rows = [row(0, "abcdefgh-x", 8), row(1, "abcdefgh-y", 8), row(2, "abcdefgh-z")]
    roots = plan_prefixes(rows, 1000)
    assert [(shape(root), root.marked) for root in roots] == [
        (("abcdefgh", [0, 1], []), True),
        (("", [2], []), False),
    ]


def test_common_beginnings_are_computed_once() -> None:
    lm = build(llama)
    heads = [HEAD + "red ball box " * 4, HEAD + "answer = query( " * 4]
    requests = [GenerationRequest(head + word, 2) for head in heads for word in ("red", "ball?", "left of")]
    prompts = [lm.tokenizer(str(request.prompt))["input_ids"] for request in requests]
    # Every different beginning is one token to compute.
    distinct = {tuple(tokens[:end]) for tokens in prompts for end in range(1, len(tokens) + 1)}
    assert isinstance(lm._loop, SlotDecoder)
    lm._loop.schedule = Schedule(steps=1, rounds_in_flight=0, prefill_tokens=256, least_saving=1, length_multiple=1)
    assert lm.own_loop
    before = lm.stats.prefilled_tokens
    lm.generate(requests)
    assert lm.stats.prefilled_tokens - before == len(distinct)
    assert len(distinct) < sum(map(len, prompts)) / 2


def test_the_oldest_marked_prefix_is_forgotten() -> None:
    kept = MarkedPrefixes(10, len)
    for key, past in ((1, "1111"), (2, "2222"), (1, "11111"), (3, "3333"), (4, "4" * 11)):
        kept.keep((key,), past)
    assert [kept.get((key,)) for key in (1, 2, 3, 4)] == ["11111", None, "3333", None]
    assert kept.currsize == 9
    kept.clear()
    assert kept.get((1,)) is None and kept.currsize == 0
