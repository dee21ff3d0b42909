"""Tiny random checkpoints of many architectures, loaded and continued as transformers continues each prompt alone."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_kit import CONTEXT, HEAD, sizes
from tiny_lm import build_tokenizer

from codevqa.models.base import GenerationRequest
from codevqa.models.causal_lm import LMStats, TransformersLM
from codevqa.models.causal_lm.gpu.decoder import GPU, SlotDecoder
from codevqa.models.causal_lm.loading import load
from codevqa.models.causal_lm.network import LlamaNetwork
from codevqa.models.causal_lm.tokenised_request import control_tokens

ORIGINAL = 29
"""``original_max_position_embeddings`` where there is one."""
LONG = HEAD + "red box left of ball query( img answer if " * 4
GROUPED: dict[str, Any] = {**sizes(), "num_key_value_heads": 2, "tie_word_embeddings": False}
EIGHT = {**GROUPED, "head_dim": 8}
MOE = {**EIGHT, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GPT = {"vocab_size": 400, "n_positions": 160, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.25}
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
    "gpt2": ("gpt2", GPT),
    "phi3": ("phi3", GROUPED),
    "qwen2, yarn": ("qwen2", {**GROUPED, "rope_parameters": {**STRETCHED, "rope_type": "yarn"}}),
    "starcoder2": ("starcoder2", {**GROUPED, "sliding_window": None}),
    "mistral, window": ("mistral", {**EIGHT, "sliding_window": 16}),
    "qwen3_moe": ("qwen3_moe", MOE),
}
ALONE: dict[str, tuple[str, dict[str, Any]]] = {
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
ALL = {**OWN, **OTHERS, **ALONE}
RARE = {"llama, linear", "starcoder2"}


def named(names: dict[str, Any]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow if name in RARE else ()) for name in names]


@functools.cache
def tokenizer() -> Any:
    return build_tokenizer()


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("architectures")


def checkpoint(shelf: Path, name: str) -> Path:
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = shelf / name
    if not folder.exists():
        kind, given = ALL[name]
        torch.manual_seed(0)
        config = AutoConfig.for_model(kind, **given, bos_token_id=1, eos_token_id=2, pad_token_id=0)
        model = AutoModelForCausalLM.from_config(config)
        for label, weight in model.named_parameters():
            if label.endswith("bias") or kind in ("mpt", "rwkv"):
                weight.data.normal_(0, 0.25)
        model.save_pretrained(folder)
        tokenizer().save_pretrained(folder)
    return folder


def asked() -> list[GenerationRequest]:
    """Short and long ones, three with the same beginning, and one that passes the original context on the way."""
    ends = ("red", "ball box left", "img")
    requests = [GenerationRequest(HEAD + end, 9, shared=len(HEAD)) for end in ends]
    return [*requests, GenerationRequest("box", 20), GenerationRequest(LONG, 7)]


@torch.inference_mode()
def by_transformers(folder: Path, requests: Sequence[GenerationRequest]) -> list[str]:
    """What ``model.generate`` of transformers says to each prompt alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, own, said = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder), []
    for request in requests:
        ids = own(request.prompt, return_tensors="pt")["input_ids"]
        room = min(request.max_tokens, CONTEXT - ids.shape[1])
        given = {
            "attention_mask": torch.ones_like(ids),
            "do_sample": False,
            "eos_token_id": list(control_tokens(own.get_vocab())),
        }
        tokens = model.generate(ids, max_new_tokens=room, **given)[0, ids.shape[1] :]
        said.append(own.decode(tokens, skip_special_tokens=True))
    assert len(set(said)) > 2
    return said


def texts(lm: TransformersLM, requests: Sequence[GenerationRequest]) -> list[str]:
    return [completion.text for completion in lm.generate(requests)]


@pytest.mark.parametrize("name", named(ALL))
def test_texts_are_those_of_transformers_alone(shelf: Path, name: str) -> None:
    folder = checkpoint(shelf, name)
    lm = TransformersLM.from_pretrained(folder, device="cpu")
    expected = by_transformers(folder, asked())
    assert texts(lm, asked()) == expected
    assert [lm.generate([request])[0].text for request in reversed(asked())] == expected[::-1]
    assert isinstance(lm.model, LlamaNetwork) == (name in OWN)


@pytest.mark.parametrize("name", named(OWN))
def test_texts_in_slots_are_those_of_transformers_alone(shelf: Path, name: str) -> None:
    folder = checkpoint(shelf, name)
    network, tokenizer, given = load(folder, "cpu", None)
    slots = SlotDecoder(network, pad=0, max_batch=3, prefix_bytes=2**20, stats=LMStats(), schedule=GPU)
    lm = TransformersLM(network, tokenizer, name=given, decoder=slots)
    assert texts(lm, asked()) == by_transformers(folder, asked())
