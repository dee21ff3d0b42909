"""The forward pass of models built like Llama, against that of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lm_kit import gpt2, llama, qwen2, sizes

from codevqa.models.causal_lm.cpu.forward_pass import KeyValues, Pack, Part
from codevqa.models.causal_lm.cpu.llama_layers import LlamaLayers


def gelu() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**sizes(), hidden_act="gelu", mlp_bias=True, attention_bias=True))


def normed() -> Any:
    """Llama with norms of queries and keys."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**sizes(), num_key_value_heads=2, head_dim=8))


def memory(model: Any) -> KeyValues:
    config = model.config
    width = config.hidden_size // config.num_attention_heads
    shape = (config.num_hidden_layers, config.num_key_value_heads, width)
    return KeyValues(shape, 2, 64, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("make", [llama, qwen2, gelu])
@torch.inference_mode()
def test_logits_are_those_of_the_model(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model = make().eval()
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.copy_(torch.randn_like(weight))
    texts = torch.randint(3, 400, (2, 30))
    expected = model(input_ids=texts).logits
    first, second = texts.tolist()
    layers, slots = LlamaLayers(model), memory(model)
    seen = layers(Pack(slots, [Part(1, 0, second[:11]), Part(0, 0, first[:7])]), [1, 7])
    assert torch.allclose(seen, torch.cat([expected[1, 10:11], expected[0, :7]]), atol=1e-4)
    seen = layers(Pack(slots, [Part(0, 7, first[7:20]), Part(1, 11, second[11:])]), [0, 5])
    assert torch.allclose(seen, expected[1, 25:], atol=1e-4)
    seen = layers(Pack(slots, [Part(0, 20, first[20:])]), [10])
    assert torch.allclose(seen, expected[0, 20:], atol=1e-4)


@torch.inference_mode()
def test_the_last_layer_is_for_those_who_are_asked_only() -> None:
    model = llama().eval()
    layers, slots = LlamaLayers(model), memory(model)
    rows: list[tuple[str, int]] = []
    for layer, name in zip(model.base_model.layers, ("first", "last"), strict=True):
        for part in (layer.self_attn.k_proj, layer.self_attn.q_proj, layer.mlp.down_proj):
            part.register_forward_hook(lambda part, given, made, name=name: rows.append((name, len(made))))
    assert layers(Pack(slots, [Part(0, 0, [5] * 9), Part(1, 0, [7] * 4)]), [2, 1]).shape == (3, 400)
    assert rows == [("first", 13)] * 3 + [("last", 13), ("last", 3), ("last", 3)]
    rows.clear()
    assert layers(Pack(slots, [Part(0, 9, [5] * 9)]), [0]).shape == (0, 400)
    assert rows == [("first", 9)] * 3 + [("last", 9)], "nobody is asked: keys and values are all there is to make"


def test_which_models_it_fits() -> None:
    assert all(LlamaLayers.fits(make()) for make in (llama, qwen2, gelu))
    assert not any(LlamaLayers.fits(make()) for make in (gpt2, normed))
    assert not LlamaLayers.fits(llama().bfloat16()), "half precision rounds at every step"
    hooked = llama()
    hooked.base_model.layers[1].register_forward_hook(lambda *given: None)
    assert not LlamaLayers.fits(hooked)
