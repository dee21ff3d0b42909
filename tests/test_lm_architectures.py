"""Tiny random checkpoints of many architectures, loaded and continued as transformers continues each prompt alone."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from lm_kit import CONTEXT, HEAD, alone, build, llama, mixed, reference, sizes

from codevqa.batching.model_services import ModelServices
from codevqa.core.errors import CodeVQAError, ModelError
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.causal_lm.gpu.decoder import GPU, SlotDecoder
from codevqa.models.causal_lm.network import LlamaNetwork
from codevqa.models.fakes import FakeCaptioner, FakeMatcher
from codevqa.models.protocols import Completion, GenerationRequest, Models

ORIGINAL = 29
"""``original_max_position_embeddings`` where there is one."""
LONG = HEAD + "red box left of ball query( img answer if " * 4
GROUPED: dict[str, Any] = {**sizes(), "num_key_value_heads": 2, "tie_word_embeddings": False}
EIGHT = {**GROUPED, "head_dim": 8}
MOE = {**EIGHT, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
STRETCHED = {"rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
BIASED = ("tie_word_embeddings", "attention_bias", "mlp_bias")
TURNS = {"short_factor": [1.0] * 4, "long_factor": [2.0, 3.0, 5.0, 8.0]}


def turned(kind: str, **more: Any) -> dict[str, Any]:
    """Sizes with positions that turn in a way of their own."""
    return {**GROUPED, "rope_parameters": {**STRETCHED, "rope_type": kind, **more}}


OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", GROUPED),
    "llama, tied, biases": ("llama", sizes() | dict.fromkeys(BIASED, True)),
    "llama, linear": ("llama", turned("linear")),
    "llama, llama3": ("llama", turned("llama3", low_freq_factor=1.0, high_freq_factor=4.0)),
    "mistral": ("mistral", {**EIGHT, "sliding_window": None}),
    "qwen2": ("qwen2", GROUPED),
    "qwen3": ("qwen3", EIGHT),
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": ("gemma3_text", {**EIGHT, "sliding_window": 16}),
    "gpt_oss": ("gpt_oss", {**MOE, "sliding_window": 16}),
    "qwen2, yarn": ("qwen2", turned("yarn")),
    "mistral, window": ("mistral", {**EIGHT, "sliding_window": 16}),
    "qwen3_moe": ("qwen3_moe", MOE),
    "llama, dynamic": ("llama", turned("dynamic")),
    "mpt": ("mpt", {"vocab_size": 400, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 160}),
    "rwkv": ("rwkv", {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2}),
    "phi3, longrope": ("phi3", {**turned("longrope", **TURNS), "original_max_position_embeddings": ORIGINAL}),
}
ALL = {**OWN, **OTHERS}


@functools.cache
def of(name: str) -> Callable[[], Any]:
    """Makes a network of an architecture."""
    from transformers import AutoConfig, AutoModelForCausalLM

    def make() -> Any:
        kind, options = ALL[name]
        config = AutoConfig.for_model(kind, **options, bos_token_id=1, eos_token_id=2, pad_token_id=0)
        model = AutoModelForCausalLM.from_config(config)
        for label, weight in model.named_parameters():
            if label.endswith("bias") or kind in ("mpt", "rwkv"):
                weight.data.normal_(0, 0.25)
        return model

    return make


def asked() -> list[GenerationRequest]:
    """Short and long ones, three with the same beginning, and one that passes the original context on the way."""
    ends = ("red", "ball box left", "img")
    requests = [GenerationRequest(HEAD + end, 9, shared=len(HEAD)) for end in ends]
    return [*requests, GenerationRequest("box", 20), GenerationRequest(LONG, 7)]


@pytest.mark.parametrize(
    ("name", "way"),
    [*((name, "packed") for name in ALL), *((name, way) for name in OWN for way in ("slots", "kernels"))],
)
def test_texts_are_those_of_transformers_alone(name: str, way: str) -> None:
    written = [reference(of(name), request.prompt, request.max_tokens) for request in asked()]
    expected = [(text, len(tokens)) for tokens, text in written]
    assert len(set(expected)) > 2
    lm = build(of(name), way, schedule=GPU, max_batch=3)
    for completions in (lm.generate(asked()), [lm.generate([request])[0] for request in asked()[::-1]][::-1]):
        assert [(completion.text, completion.completion_tokens) for completion in completions] == expected
        assert [completion.prompt_tokens for completion in completions] == list(
            map(len, lm.tokenizer.encode([str(request.prompt) for request in asked()]))
        )
    assert isinstance(lm.model, LlamaNetwork) == (name in OWN)


def ask(
    lm: TransformersLM, requests: Sequence[GenerationRequest], gap: float = 0.004, ended: list[int] | None = None
) -> list[Any]:
    """Asks one after another, without waiting for answers; returns what came of each, and notes in which order."""

    async def main() -> list[Any]:
        services = ModelServices(Models(lm, FakeMatcher(6), FakeCaptioner()), lm, max_batch=None, max_wait=0.001)

        async def one(number: int, request: GenerationRequest) -> Completion:
            await asyncio.sleep(gap * number)
            completion = await services.read(request)
            if ended is not None:
                ended.append(number)
            return completion

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
    assert all(isinstance(answer, CodeVQAError) and "ZeroDivisionError" in str(answer) for answer in answers)
