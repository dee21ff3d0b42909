"""Tiny random checkpoints of many architectures, loaded and continued as transformers continues each prompt alone."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from lm_kit import HEAD, build, reference, sizes

from codevqa.models.base import GenerationRequest
from codevqa.models.causal_lm.gpu.decoder import GPU
from codevqa.models.causal_lm.network import LlamaNetwork

ORIGINAL = 29
"""``original_max_position_embeddings`` where there is one."""
LONG = HEAD + "red box left of ball query( img answer if " * 4
GROUPED: dict[str, Any] = {**sizes(), "num_key_value_heads": 2, "tie_word_embeddings": False}
EIGHT = {**GROUPED, "head_dim": 8}
MOE = {**EIGHT, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
STRETCHED = {"rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
TURNS = {"short_factor": [1.0] * 4, "long_factor": [2.0, 3.0, 5.0, 8.0]}

OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", GROUPED),
    "llama, tied, biases": (
        "llama",
        {**sizes(), "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "llama, linear": ("llama", {**GROUPED, "rope_parameters": {**STRETCHED, "rope_type": "linear"}}),
    "llama, llama3": (
        "llama",
        {
            **GROUPED,
            "rope_parameters": {**STRETCHED, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        },
    ),
    "mistral": ("mistral", {**EIGHT, "sliding_window": None}),
    "qwen2": ("qwen2", GROUPED),
    "qwen3": ("qwen3", EIGHT),
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": ("gemma3_text", {**EIGHT, "sliding_window": 16}),
    "gpt_oss": ("gpt_oss", {**MOE, "sliding_window": 16}),
    "qwen2, yarn": ("qwen2", {**GROUPED, "rope_parameters": {**STRETCHED, "rope_type": "yarn"}}),
    "mistral, window": ("mistral", {**EIGHT, "sliding_window": 16}),
    "qwen3_moe": ("qwen3_moe", MOE),
    "llama, dynamic": ("llama", {**GROUPED, "rope_parameters": {**STRETCHED, "rope_type": "dynamic"}}),
    "mpt": ("mpt", {"vocab_size": 400, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 160}),
    "rwkv": ("rwkv", {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2}),
    "phi3, longrope": (
        "phi3",
        {
            **GROUPED,
            "original_max_position_embeddings": ORIGINAL,
            "rope_parameters": {**STRETCHED, **TURNS, "rope_type": "longrope"},
        },
    ),
}
ALL = {**OWN, **OTHERS}


@functools.cache
def of(name: str) -> Callable[[], Any]:
    """Makes a network of an architecture."""
    from transformers import AutoConfig, AutoModelForCausalLM

    def make() -> Any:
        kind, given = ALL[name]
        config = AutoConfig.for_model(kind, **given, bos_token_id=1, eos_token_id=2, pad_token_id=0)
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


@pytest.mark.parametrize(("name", "way"), [*((name, "packed") for name in ALL), *((name, "slots") for name in OWN)])
def test_texts_are_those_of_transformers_alone(name: str, way: str) -> None:
    written = [reference(of(name), request.prompt, request.max_tokens) for request in asked()]
    expected = [(text, len(tokens)) for tokens, text in written]
    assert len(set(expected)) > 2
    lm = build(of(name), way, schedule=GPU, max_batch=3)
    for made in (lm.generate(asked()), [lm.generate([request])[0] for request in asked()[::-1]][::-1]):
        assert [(one.text, one.completion_tokens) for one in made] == expected
        assert [one.prompt_tokens for one in made] == [len(lm.tokenizer.encode(str(one.prompt))) for one in asked()]
    assert isinstance(lm.model, LlamaNetwork) == (name in OWN)
