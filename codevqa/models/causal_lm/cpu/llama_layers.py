"""The forward pass of models built like Llama, without what it costs to go through their modules.

The same layers in fewer steps, and the last one only for the tokens whose logits are asked for: of the others nothing
but keys and values is ever read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from .forward_pass import Pack

__all__ = ["BUILT_ALIKE", "LlamaLayers"]

BUILT_ALIKE = ("llama", "mistral", "qwen2")
"""Types of models built of these layers."""


class LlamaLayers:
    """The forward pass of one model.

    Args:
        model: a causal language model of transformers, for which :meth:`fits` holds.
    """

    def __init__(self, model: Any) -> None:
        base = model.base_model
        self._embed, self._rotary, self._norm, self._head = base.embed_tokens, base.rotary_emb, base.norm, model.lm_head
        self._layers = list(base.layers)
        tried = torch.linspace(-9, 9, 64, device=model.device)
        self._silu = all(torch.equal(layer.mlp.act_fn(tried), functional.silu(tried)) for layer in self._layers)
        """Whether their activation can be computed in place."""

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether the model is of these layers, in full precision."""
        # Half precision rounds after each step: fewer of them would not give the same text.
        if model.config.model_type not in BUILT_ALIKE or model.dtype is not torch.float32:
            return False
        # A hook would be passed over.
        return not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())

    def __call__(self, phase: Pack, wanted: Sequence[int]) -> torch.Tensor:
        """Runs a pass; returns the logits of the last ``wanted`` tokens of each part, one after another."""
        state = self._embed(phase.ids)[0]
        cos, sin = (one[0, :, None] for one in self._rotary(state[None], phase.positions))
        half = cos.shape[-1] // 2
        # The halves change places; what comes from the second one changes its sign.
        turn = (cos, torch.cat([-sin[..., :half], sin[..., half:]], -1))
        for index, layer in enumerate(self._layers):
            own = layer.self_attn
            seen = layer.input_layernorm(state)
            key = _rotated(_heads(own.k_proj(seen), own.head_dim), turn)
            value = _heads(own.v_proj(seen), own.head_dim)
            pair = phase.update(key.transpose(0, 1)[None], value.transpose(0, 1)[None], index)
            if index == len(self._layers) - 1:
                places = phase.narrow(wanted)
                state, seen, turn = state[places], seen[places], (turn[0][places], turn[1][places])
                if not len(places):
                    break
            query = _rotated(_heads(own.q_proj(seen), own.head_dim), turn)
            read = phase.attend(query.transpose(0, 1)[None], *pair, own.scaling)
            state = state + own.o_proj(read[0].transpose(0, 1).flatten(1))
            state += self._mlp(layer.mlp, layer.post_attention_layernorm(state))
        logits: torch.Tensor = self._head(self._norm(state))
        return logits

    def _mlp(self, mlp: Any, seen: torch.Tensor) -> torch.Tensor:
        gate = mlp.gate_proj(seen)
        gate = functional.silu(gate, inplace=True) if self._silu else mlp.act_fn(gate)
        made: torch.Tensor = mlp.down_proj(gate.mul_(mlp.up_proj(seen)))
        return made


def _heads(tokens: torch.Tensor, width: int) -> torch.Tensor:
    return tokens.view(len(tokens), -1, width)


def _rotated(heads: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Turns keys or queries, shape (tokens, heads, width), by their positions."""
    cos, sin = turn
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)
