"""Packed decoding with guesses, on tiny random models of several architectures, against ``model.generate`` alone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from lm_kit import CONTEXT, HEAD, alone, build, gpt2, llama, mixed, qwen2

from codevqa.core.errors import ModelError
from codevqa.models.base import GenerationRequest
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.causal_lm.cpu import decoder as cpu_decoder
from codevqa.models.causal_lm.cpu import forward_pass
from codevqa.models.causal_lm.cpu.decoder import PackedDecoder
from codevqa.models.causal_lm.cpu.prefix_cache import KeyValueBlock, PrefixCache
from codevqa.models.causal_lm.cpu.speculation import Drafter
from codevqa.models.causal_lm.work import Work


@pytest.fixture(params=[1, 2], ids=["one worker", "two workers"])
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The number of cores, and so of threads that decode."""
    before = torch.get_num_threads()
    monkeypatch.setattr(PackedDecoder, "_cores", lambda self: request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("tokens", [256, 9], ids=["", "short passes"])
@pytest.mark.parametrize(
    "slots", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(16, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("make", [llama, qwen2, gpt2])
def test_equals_generate_one_by_one(
    make: Callable[[], Any], slots: int, tokens: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_decoder, "_PASS", tokens)
    expected = alone(make)
    lm = build(make, max_batch=slots)
    assert lm.own_loop
    assert lm.generate(mixed()) == expected
    assert lm.generate(list(reversed(mixed()))) == expected[::-1], "what is left of the last call is in the way"
    assert lm.stats.generate_calls == 0 and lm.stats.steps > 0
    assert lm.stats.confirmed_tokens > 0 and lm.stats.reused_tokens > 0


def test_many_calls_forget_and_split_what_is_kept(workers: int) -> None:
    # So little memory that beginnings are forgotten all the time.
    lm = build(llama, prefix_cache_bytes=30_000, max_batch=4)
    draw = random.Random(1)
    expected = dict(zip(map(repr, mixed()), alone(llama), strict=True))
    for _ in range(12):
        asked = draw.choices(mixed(), k=6)
        assert lm.generate(asked) == [expected[repr(request)] for request in asked]
        assert isinstance(lm._loop.prefixes, PrefixCache) and 0 < lm._loop.prefixes.size <= 30_000


def test_the_model_is_left_as_it_was() -> None:
    lm = build(llama)
    before = lm.model.config._attn_implementation
    lm.generate(mixed())
    assert lm.model.config._attn_implementation == before


# --- guesses ---------------------------------------------------------------------------------------------------------


def guessing(
    lm: TransformersLM, monkeypatch: pytest.MonkeyPatch, guess: Callable[[Sequence[int], int], list[int]]
) -> None:
    assert isinstance(lm._loop, PackedDecoder)
    monkeypatch.setattr(lm._loop._drafter, "guess", guess)


def test_wrong_guesses_change_nothing(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    lm = build(llama)
    draw = random.Random(0)
    guessing(lm, monkeypatch, lambda text, count: [draw.randrange(3, 400) for _ in range(count)])
    assert lm.generate(mixed()) == alone(llama)
    assert lm.stats.guessed_tokens > 5 * lm.stats.confirmed_tokens


def test_what_has_been_written_is_guessed_from(workers: int) -> None:
    lm = build(llama)
    steps = []
    for _ in range(2):
        before = lm.stats.steps
        assert lm.generate(mixed()) == alone(llama)
        steps.append(lm.stats.steps - before)
    assert steps[1] < steps[0] / 2, "the same again takes as many passes"


@pytest.mark.parametrize("right", [0.5, 1.0])
def test_right_guesses_save_passes_and_end_where_the_text_ends(monkeypatch: pytest.MonkeyPatch, right: float) -> None:
    requests = [GenerationRequest(HEAD + word, 30) for word in ("red", "box", "img")]
    monkeypatch.setattr(PackedDecoder, "_cores", lambda self: 1)
    lm = build(llama)
    lm.own_loop = False
    lm._ends = set()
    lm.model.generation_config.eos_token_id = None
    prompts = [lm.tokenizer(r.prompt)["input_ids"] for r in requests]
    whole: list[list[int]] = []
    for ids in prompts:
        given = torch.tensor([ids])
        whole.append(lm.model.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=60)[0].tolist())
    plain = lm.generate(requests)
    lm.own_loop = True
    draw = random.Random(0)

    def guess(text: Sequence[int], count: int) -> list[int]:
        known = next(one for one in whole if one[: len(text)] == list(text))
        return [token if draw.random() < right else 5 for token in known[len(text) : len(text) + count]]

    guessing(lm, monkeypatch, guess)
    assert lm.generate(requests) == plain
    assert [completion.completion_tokens for completion in plain] == [30] * 3
    assert lm.stats.steps <= (6 if right == 1 else 25)
    stop = plain[0].text[10:14]
    (stopped,) = lm.generate([GenerationRequest(HEAD + "red", 30, (stop,))])
    assert stopped.text == plain[0].text[: plain[0].text.index(stop)]


def test_a_full_context_ends_the_row_whatever_is_guessed() -> None:
    # GPT-2 has no position past its context: to step there would be an error.
    lm, plain = build(gpt2), build(gpt2, loop=False)
    longest = "<s>"
    while len(lm.tokenizer(longest)["input_ids"]) < CONTEXT - 7:
        longest += " x="
    requests = [GenerationRequest(longest, 100), GenerationRequest("red ball", 40), GenerationRequest(longest[:-9], 90)]
    expected = [plain.generate([request])[0] for request in requests]
    for _ in range(3):
        assert lm.generate(requests) == expected
    assert expected[0].completion_tokens <= 7 and lm.stats.confirmed_tokens > 0


def test_guesses_follow_what_was_written_lately_then_the_prompt() -> None:
    drafter = Drafter()
    assert drafter.guess([], 4) == [] == drafter.guess([1, 2, 3], 4)
    # The first place in the prompt: the most similar example comes first.
    assert drafter.guess([7, 1, 2, 3, 9, 1, 2, 4, 1, 2], 3) == [3, 9, 1]
    assert drafter.guess([7, 1, 2, 3, 9, 1, 2, 4, 1, 2], 0) == []
    drafter.learn([5, 1, 2], [8, 8, 6])
    assert drafter.guess([7, 1, 2, 3, 9, 1, 2], 9) == [8, 8, 6], "one text went on into the next"
    drafter.learn([1, 2], [4, 4])
    assert drafter.guess([7, 1, 2, 3, 9, 1, 2], 2) == [4, 4], "the latest counts"
    assert drafter.guess([5, 1, 2], 2) == [8, 8], "a longer match, though it is older"
    assert drafter.guess([1, 30, 9, 1], 2) == [2, 4]
    assert drafter.guess([6, 30, 9, 6], 2) == [30, 9], "a text ended there, the prompt goes on"


def test_guesses_match_whole_tokens_only() -> None:
    drafter = Drafter()
    # As bytes 256 holds a 1 and then zeros, across the bounds of tokens.
    assert drafter.guess([256, 0, 3, 1], 2) == []
    drafter.learn([256, 0], [3, 3])
    assert drafter.guess([2, 1, 0], 2) == [3, 3]
    assert drafter.guess([2, 2, 1], 2) == []


def test_what_was_written_is_bounded() -> None:
    drafter = Drafter()
    for number in range(3000):
        drafter.learn([number, number + 1], [number + 2] * 20)
    assert len(drafter._written) <= 4 * (1 << 14)
    assert drafter.guess([2999, 3000], 1) == [3001]
    assert drafter.guess([1, 2], 1) == []


# --- beginnings ------------------------------------------------------------------------------------------------------


def bank(tokens: Sequence[int], start: int) -> KeyValueBlock:
    """Something to keep for each token that says which beginning it belongs to."""
    sums = torch.tensor([float(sum(tokens[: end + 1]) * 7 + end) for end in range(start, len(tokens))])
    return sums.view(1, 1, -1, 1).clone(), -sums.view(1, 1, -1, 1).clone()


def found(tree: PrefixCache, tokens: Sequence[int]) -> int:
    """How much of some tokens is known; what is kept must be theirs."""
    known, banks = tree.find(tokens)
    key, value = bank(tokens[:known], 0)
    if known:
        assert torch.equal(torch.cat([one for one, _ in banks], 2), key)
        assert torch.equal(torch.cat([one for _, one in banks], 2), value)
    return known


def test_tree_knows_the_longest_beginning() -> None:
    draw = random.Random(0)
    tree = PrefixCache(10**9)
    kept: list[list[int]] = []
    for _ in range(300):
        tokens = [draw.randrange(2) for _ in range(draw.randint(1, 14))]
        longest = max((n for n in range(len(tokens) + 1) if any(one[:n] == tokens[:n] for one in kept)), default=0)
        assert found(tree, tokens) == longest
        if draw.random() < 0.5:
            tree.add(tokens, lambda start, tokens=tokens: bank(tokens, start))  # type: ignore[misc]
            kept.append(tokens)
    distinct = {tuple(one[:n]) for one in kept for n in range(1, len(one) + 1)}
    assert tree.size == 8 * len(distinct), "beginnings in common are kept once"
    tree.clear()
    assert tree.size == 0 and found(tree, kept[0]) == 0


def test_tree_forgets_the_least_recently_used_ends_first() -> None:
    tree = PrefixCache(8 * 12)
    for tokens in ([1, 2, 3, 4], [1, 2, 5, 6], [9, 9, 9]):
        tree.add(tokens, lambda start, tokens=tokens: bank(tokens, start))  # type: ignore[misc]
    assert tree.size == 8 * 9
    assert found(tree, [1, 2, 3, 4]) == 4
    tree.add([7] * 5, lambda start: bank([7] * 5, start))
    assert found(tree, [1, 2, 5, 6]) == 2, "5, 6 was used longest ago"
    assert [found(tree, one) for one in ([1, 2, 3, 4], [9, 9, 9], [7] * 5)] == [4, 3, 5]
    # What can never fit drives nothing out.
    tree.add([3] * 13, lambda start: bank([3] * 13, start))
    assert found(tree, [3] * 13) == 0 and found(tree, [1, 2, 3, 4]) == 4


def test_tree_stays_within_its_bytes() -> None:
    draw = random.Random(2)
    tree = PrefixCache(8 * 40)
    for _ in range(500):
        tokens = [draw.randrange(3) for _ in range(draw.randint(1, 20))]
        found(tree, tokens)
        tree.add(tokens, lambda start, tokens=tokens: bank(tokens, start))  # type: ignore[misc]
        assert tree.size <= 8 * 40
        assert tree.size == sum(branch.size for branch in tree._kept)
        assert found(tree, tokens) in (0, len(tokens)) or tree.size > 8 * 20


def test_each_beginning_is_computed_once_and_kept() -> None:
    lm = build(llama)
    heads = [HEAD + "red ball box " * 4, HEAD + "answer = query( " * 4]
    requests = [GenerationRequest(head + word, 2) for head in heads for word in ("red", "ball?", "left of")]
    prompts = [lm.tokenizer(str(request.prompt))["input_ids"] for request in requests]
    distinct = {tuple(tokens[:end]) for tokens in prompts for end in range(1, len(tokens) + 1)}
    assert lm.own_loop
    first = lm.generate(requests)
    # Beginnings too short to wait for may be computed by two at once.
    assert len(distinct) <= lm.stats.prefilled_tokens <= len(distinct) + 16 * len(requests)
    assert lm.stats.prefilled_tokens < sum(map(len, prompts)) / 2
    before = lm.stats.prefilled_tokens
    assert lm.generate(requests) == first
    assert lm.stats.prefilled_tokens - before == len(requests), "one token of each prompt is left to go on from"


def test_nothing_is_kept_where_nothing_may_be() -> None:
    lm = build(llama, prefix_cache_bytes=0)
    assert lm.generate(mixed()) == alone(llama)
    assert isinstance(lm._loop.prefixes, PrefixCache) and lm._loop.prefixes.size == 0
    assert lm.stats.reused_tokens == 0


# --- slots -----------------------------------------------------------------------------------------------------------


def test_a_slot_is_taken_again_while_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [40, 5, 5, 5, 5, 5, 5, 5]
    requests = [GenerationRequest(f"{word} ball", limit) for word, limit in zip("abcdefgh", limits, strict=True)]
    lm = build(llama, max_batch=2)
    guessing(lm, monkeypatch, lambda text, count: [])
    monkeypatch.setattr(PackedDecoder, "_cores", lambda self: 1)
    completions = lm.generate(requests)
    assert [completion.completion_tokens for completion in completions] == limits
    assert lm.stats.steps == 40, "seven short texts pass through one slot, one after another, beside the long one"
    (memory,) = lm._loop._memories  # type: ignore[union-attr]
    assert memory.count == 2


def test_slots_are_kept_from_call_to_call_and_grow_with_need(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    whole = forward_pass.KeyValues

    def counted(shape: Any, count: int, length: int, *given: Any) -> Any:
        made.append((count, length))
        return whole(shape, count, length, *given)

    lm = build(llama)
    assert lm.own_loop
    monkeypatch.setattr(PackedDecoder, "_cores", lambda self: 1)
    monkeypatch.setattr(cpu_decoder, "KeyValues", counted)
    short = [GenerationRequest("red", 8), GenerationRequest("box", 8)]
    lm.generate(short)
    lm.generate(short[:1])
    assert made == [(2, 64)]
    lm.generate([GenerationRequest("red ball " * 9, 60)])
    lm.generate(short * 2)
    lm.generate(short)
    assert made == [(2, 64), (2, 128), (4, 128)]


def test_out_of_memory_halves_the_slots_and_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    lm = build(llama, max_batch=4)
    assert lm.own_loop
    forward, calls = lm._loop._forward, [0]

    def fails_once(*given: Any) -> Any:
        calls[0] += 1
        if calls[0] == 40:
            raise torch.OutOfMemoryError("out of memory")
        return forward(*given)

    monkeypatch.setattr(lm._loop, "_forward", fails_once)
    begun: list[int] = []
    run = lm._loop._run

    def noting(work: Work) -> None:
        begun.append(len(work.open))
        run(work)

    monkeypatch.setattr(lm._loop, "_run", noting)
    assert lm.generate(mixed()) == alone(llama)
    assert len(begun) == 2 and begun[1] < begun[0] == len(mixed()), "texts that were done were decoded again"
    assert lm._loop.max_batch == 2


def test_no_memory_for_one_row_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: Any, **named: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    lm = build(llama)
    assert lm.own_loop
    monkeypatch.setattr(cpu_decoder, "KeyValues", never)
    with pytest.raises(ModelError, match="ran out of memory"):
        lm.generate([GenerationRequest("red", 4)] * 3)


def test_a_failure_in_one_worker_is_the_failure_of_the_call(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    lm = build(llama)
    assert lm.own_loop
    forward, calls = lm._loop._forward, [0]

    def fails_once(memory: Any, *given: Any) -> Any:
        calls[0] += 1
        if memory is lm._loop._memories[0] and len(calls) == 1:  # type: ignore[union-attr]
            calls.append(1)
            raise RuntimeError("broken")
        time.sleep(0.01)
        return forward(memory, *given)

    monkeypatch.setattr(lm._loop, "_forward", fails_once)
    with pytest.raises(RuntimeError, match="broken"):
        lm.generate(mixed())
    stopped = calls[0]
    time.sleep(0.1)
    assert calls[0] == stopped, "the other worker went on behind the caller's back"
    assert lm.generate(mixed()) == alone(llama), "the next call begins afresh"


def test_workers_leave_other_threads_their_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    try:
        torch.set_num_threads(2)
        lm = build(llama)
        assert lm.own_loop
        forward = lm._loop._forward

        def watched(*given: Any) -> Any:
            seen.append(torch.get_num_threads())
            return forward(*given)

        monkeypatch.setattr(lm._loop, "_forward", watched)
        lm.generate(mixed())
        assert set(seen) == {1} and torch.get_num_threads() == 2
        for large in (True, False):
            seen.clear()
            lm._loop._large = large  # type: ignore[union-attr]
            lm.generate(mixed()[:1])
            assert set(seen) == {2 if large else 1}, "a text alone has all cores where they help"
    finally:
        torch.set_num_threads(before)
