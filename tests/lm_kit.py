"""Tiny random language models of several architectures, and requests of many kinds to ask them."""

import functools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plain_kernels
import torch
from tiny_lm import build_tokenizer

from codevqa.models.causal_lm import LMStats, TransformersLM
from codevqa.models.causal_lm.gpu.decoder import Schedule, SlotDecoder
from codevqa.models.causal_lm.loading import load_causal_lm
from codevqa.models.causal_lm.work import control_tokens
from codevqa.models.protocols import Completion, GenerationRequest

_SHELF = tempfile.TemporaryDirectory()
CONTEXT = 160
LATE = Schedule(steps=3, rounds_in_flight=1, prefill_tokens=200, length_multiple=8)
"""As on a GPU: the host looks at what was made when more is under way."""
HEAD = "img = open_image(\n# Image 1: Is the red ball left of the box?\n"


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**sizes(), num_key_value_heads=2))


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = {"bos_token_id": 1, "eos_token_id": 2}
    config = GPT2Config(
        vocab_size=400, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, initializer_range=0.25, **ends
    )
    return GPT2LMHeadModel(config)


def sizes() -> dict[str, Any]:
    layers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    texts = {"vocab_size": 400, "max_position_embeddings": CONTEXT, "tie_word_embeddings": False}
    return {**layers, **texts, "initializer_range": 0.25}


def mixed(count: int = 14, seed: int = 3) -> list[GenerationRequest]:
    """Prompts of many lengths, some with the same beginning, some of them marked, with limits and stop strings."""
    draw = random.Random(seed)
    words = ["red", "ball", "box", "img", "=", "query(", "left", "?", "\n", "answer", "if"]
    requests = []
    for number in range(count):
        text = " ".join(draw.choices(words, k=draw.randint(1, 20)))
        head = HEAD if number % 3 else ""
        stop = ("\n", draw.choice("abcdefgh")) if number % 4 == 1 else ()
        requests.append(GenerationRequest(head + text, draw.randint(1, 30), stop, len(head) if number % 2 else 0))
    # The same prompt twice, one that begins another, and one token.
    return [
        *requests,
        requests[-1],
        GenerationRequest(HEAD, 9),
        GenerationRequest(HEAD + "x", 9),
        GenerationRequest("", 5),
    ]


def ending() -> Any:
    """Llama that may end a text with a token that it writes early on."""
    model = llama()
    tokens, _ = reference(llama, "What color is the car?", 12)
    model.config.eos_token_id = next(token for at, token in enumerate(tokens) if at >= 3 and token not in tokens[:at])
    return model


@functools.cache
def folder_of(make: Callable[[], Any]) -> Path:
    """Where a model and its tokenizer lie on disk."""
    folder = Path(tempfile.mkdtemp(dir=_SHELF.name))
    torch.manual_seed(0)
    model = make().eval()
    model.generation_config.eos_token_id = model.config.eos_token_id = model.config.eos_token_id or 2
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


def build(make: Callable[[], Any], way: str = "packed", *, schedule: Schedule = LATE, **options: Any) -> TransformersLM:
    """A model that decodes in packed passes, in slots as on a GPU, with or without kernels, or by ``generate``."""
    if way not in ("slots", "kernels"):
        return TransformersLM.from_pretrained(folder_of(make), device="cpu", loop=way == "packed", **options)
    network, tokenizer, _ = load_causal_lm(folder_of(make), "cpu", None)
    lm, most = TransformersLM(network, tokenizer, name="tiny", **options), options.get("max_batch") or 16
    more: dict[str, Any] = {"schedule": schedule, "kernels": plain_kernels if way == "kernels" else None}
    lm.decoder = SlotDecoder(network, pad=0, max_batch=most, prefix_bytes=1 << 28, stats=LMStats(), **more)
    return lm


@functools.cache
def theirs(make: Callable[[], Any]) -> tuple[Any, Any]:
    """A model and its tokenizer as transformers loads them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder_of(make), dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(folder_of(make))


@torch.inference_mode()
def reference(make: Callable[[], Any], prompt: Any, most: int) -> tuple[list[int], str]:
    """What transformers itself decodes greedily: tokens and text."""
    model, tokenizer = theirs(make)
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    tokens = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=min(most, CONTEXT - ids.shape[1]),
        do_sample=False,
        eos_token_id=[model.generation_config.eos_token_id, *control_tokens(tokenizer.get_vocab())],
    )[0, ids.shape[1] :].tolist()
    return tokens, tokenizer.decode(tokens, skip_special_tokens=True)


@functools.cache
def alone(make: Callable[[], Any]) -> list[Completion]:
    """What ``model.generate`` says to the mixed prompts, one at a time."""
    lm = build(make, "generate", max_batch=1)
    completions = [lm.generate([GenerationRequest(r.prompt, r.max_tokens, r.stop)])[0] for r in mixed()]
    assert lm.stats.generate_calls == len(mixed()) and lm.stats.steps == 0
    assert len({completion.text for completion in completions}) > len(completions) // 2
    return completions
