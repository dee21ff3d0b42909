"""Llama's layers and those built like them, on a CPU and on a GPU, in fewer steps than transformers takes.

The network computes layers. Which tokens stand in a pass, and what each of them attends to, the pass says
(:class:`Pass`): packed texts on a CPU, slots on a GPU. The last layer is computed only for the tokens whose logits are
asked for: of the others nothing but keys and values is ever read. Weights have the names that checkpoints give them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import torch
from torch import nn
from torch.nn import functional

from ..library_errors import quiet
from ..weights import Embedding, Linear, join_projections, parameter

_TYPES = ("llama", "mistral", "qwen2", "qwen3")
_NEEDED = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("max_position_embeddings", "rms_norm_eps", "hidden_act"),
)


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a network, as its ``config.json`` says."""

    vocabulary: int
    width: int
    wide: int
    layers: int
    heads: int
    key_heads: int
    """Heads of keys and values; each is read by as many heads of queries."""
    head_width: int
    context: int
    """Tokens that prompt and completion may take together."""
    eps: float
    rope: dict[str, Any]
    tied: bool
    """Whether the last layer has the embeddings' weights."""
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    head_norms: bool
    """Whether queries and keys are normed head by head."""
    reading_shots: int | None
    """Examples of reading that the model was trained with; None where it was trained with any number."""

    @classmethod
    def of(cls, settings: dict[str, Any]) -> LlamaConfig | None:
        """Returns the sizes of a network that these layers compute, None of any other."""
        kind = settings.get("model_type")
        if kind not in _TYPES or any(name not in settings for name in _NEEDED) or "quantization_config" in settings:
            return None
        window = settings.get("sliding_window", 0) if kind == "mistral" else settings.get("use_sliding_window")
        layers = set(settings.get("layer_types") or ())
        rope = _rope(settings)
        if settings["hidden_act"] != "silu" or rope is None or window not in (None, False) or layers - {_WHOLE}:
            return None
        heads, bias = settings["num_attention_heads"], bool(settings.get("attention_bias"))
        return cls(
            vocabulary=settings["vocab_size"],
            width=settings["hidden_size"],
            wide=settings["intermediate_size"],
            layers=settings["num_hidden_layers"],
            heads=heads,
            key_heads=settings.get("num_key_value_heads") or heads,
            head_width=settings.get("head_dim") or settings["hidden_size"] // heads,
            context=settings["max_position_embeddings"],
            eps=settings["rms_norm_eps"],
            rope=rope,
            tied=bool(settings.get("tie_word_embeddings", False)),
            qkv_bias=kind == "qwen2" or bias,
            out_bias=kind in ("llama", "qwen3") and bias,
            mlp_bias=kind == "llama" and bool(settings.get("mlp_bias")),
            head_norms=kind == "qwen3",
            reading_shots=settings.get("reading_shots"),
        )


_WHOLE = "full_attention"


def _rope(settings: dict[str, Any]) -> dict[str, Any] | None:
    """Returns how positions turn keys and queries, None where that is not one of the ways of :func:`_frequencies`."""
    older = settings.get("rope_scaling") or {}
    rope = {"rope_theta": settings.get("rope_theta", 10000.0), **older, **(settings.get("rope_parameters") or {})}
    rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
    known = rope["rope_type"] in ("default", "linear", "llama3") and rope.get("partial_rotary_factor", 1.0) == 1.0
    return rope if known else None


def _frequencies(rope: dict[str, Any], width: int) -> torch.Tensor:
    """Returns by which angle each pair of numbers is turned from one position to the next, (width / 2,)."""
    turns: torch.Tensor
    if rope["rope_type"] == "default":
        turns = 1.0 / (rope["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width))
        return turns
    from transformers import LlamaConfig as Sizes
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    with quiet():
        turns, _ = ROPE_INIT_FUNCTIONS[rope["rope_type"]](Sizes(head_dim=width, rope_parameters=dict(rope)))
    return turns


class _RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = parameter(width), eps
        self.kernels: Any = None

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if self.kernels is not None:
            normed: torch.Tensor = self.kernels.norm(states, self.weight, self.eps)
            return normed
        whole = states.float()
        whole = whole * torch.rsqrt(whole.pow(2).mean(-1, keepdim=True) + self.eps)
        scaled: torch.Tensor = self.weight * whole.to(states.dtype)
        return scaled


def _layer(config: LlamaConfig) -> nn.Module:
    width, head = config.width, config.head_width
    own = nn.ModuleDict(
        {
            "q_proj": Linear(width, config.heads * head, config.qkv_bias),
            "k_proj": Linear(width, config.key_heads * head, config.qkv_bias),
            "v_proj": Linear(width, config.key_heads * head, config.qkv_bias),
            "o_proj": Linear(config.heads * head, width, config.out_bias),
        }
    )
    if config.head_norms:
        own["q_norm"], own["k_norm"] = _RMSNorm(head, config.eps), _RMSNorm(head, config.eps)
    mlp = nn.ModuleDict(
        {
            "gate_proj": Linear(width, config.wide, config.mlp_bias),
            "up_proj": Linear(width, config.wide, config.mlp_bias),
            "down_proj": Linear(config.wide, width, config.mlp_bias),
        }
    )
    norms = {name: _RMSNorm(width, config.eps) for name in ("input_layernorm", "post_attention_layernorm")}
    return nn.ModuleDict({"self_attn": own, "mlp": mlp, **norms})


Rotation: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""Cosine and signed sine of the angles by which heads are turned, (tokens, 1, width)."""


class Pass(Protocol):
    """Tokens of one or many texts, side by side, and what they attend to."""

    ids: torch.Tensor
    """The tokens, (tokens,)."""
    positions: torch.Tensor
    """Where each stands in its text, (tokens,)."""

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int) -> None:
        """Keeps the tokens' keys and values at a layer, each (tokens, heads, width)."""

    def narrow(self) -> torch.Tensor | None:
        """Returns the places of the tokens whose logits are asked for; None for all. Attends from now on for those."""

    def attend(self, query: torch.Tensor, scale: float) -> torch.Tensor:
        """Returns what queries, (tokens, heads, width), read at the layer kept last, (tokens, heads * width)."""


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values of tokens side by side, not turned yet."""

    states: torch.Tensor
    """(tokens, (heads + 2 * key heads) * width)."""
    turn: Rotation
    norms: tuple[torch.Tensor, torch.Tensor, float] | None
    """Weights of the norms of queries and of keys, and what is added to the mean square."""
    kernels: Any

    def turn_and_keep(
        self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Puts keys and values into memory, (slots, key heads, places, width); returns queries, (tokens, heads, width).

        Each token's slot is in ``slots``, and its place there in ``positions``, both (tokens,).
        """
        query: torch.Tensor = self.kernels.turn_and_keep(
            self.states, self.turn, keys, values, slots, positions, self.norms
        )
        return query


class FusedPass(Pass, Protocol):
    """A pass for networks that :meth:`LlamaNetwork.fuse` was called of."""

    def keep(self, heads: Heads, layer: int) -> torch.Tensor:
        """Keeps keys and values at a layer; returns the queries, (tokens, heads, width)."""


class LlamaNetwork(nn.Module):
    """The forward pass of one model.

    Args:
        config: its sizes.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.model = nn.ModuleDict(
            {
                "embed_tokens": Embedding(config.vocabulary, config.width),
                "layers": nn.ModuleList([_layer(config) for _ in range(config.layers)]),
                "norm": _RMSNorm(config.width, config.eps),
            }
        )
        self.lm_head = Linear(config.width, config.vocabulary, bias=False)
        self.generation_config: Any = None
        """What the checkpoint says of how to generate: ``eos_token_id`` and ``pad_token_id``."""
        self._kernels: Any = None
        self._turns: torch.Tensor
        self.register_buffer("_turns", _frequencies(config.rope, config.head_width), persistent=False)

    @property
    def blocks(self) -> nn.Module:
        """The layers, without embeddings and last layer."""
        layers: nn.Module = self.model["layers"]
        return layers

    def complete(self, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns weights with those that a checkpoint leaves out because others are the same."""
        words = weights.get("model.embed_tokens.weight")
        return weights | {"lm_head.weight": words} if self.config.tied and words is not None else weights

    def share(self) -> None:
        """Makes one tensor of weights that are the same by the checkpoint's own word."""
        if self.config.tied:
            words: Any = self.model["embed_tokens"]
            self.lm_head.weight = words.weight

    def fuse(self, kernels: Any) -> None:
        """Computes with kernels of a GPU (:mod:`.gpu.kernels`) from now on, and joins projections of one input.

        It then takes each :class:`FusedPass`, and no other.
        """
        self._kernels = kernels
        for module in self.modules():
            if isinstance(module, _RMSNorm):
                module.kernels = kernels
        layers: Any = self.blocks
        for layer in layers:
            own, mlp = layer.self_attn, layer.mlp
            layer.qkv = join_projections(own.q_proj, own.k_proj, own.v_proj)
            layer.gates = join_projections(mlp.gate_proj, mlp.up_proj)
            norms = (own.q_norm.weight, own.k_norm.weight, self.config.eps) if self.config.head_norms else None
            layer.head_norms = norms

    def forward(self, phase: Pass) -> torch.Tensor:
        """Runs a pass; returns the logits of the tokens that it asks for, (tokens, vocabulary)."""
        base: Any = self.model
        state = base.embed_tokens(phase.ids)
        angles = (phase.positions.float()[:, None] * self._turns).repeat(1, 2)
        cos, sin = angles.cos()[:, None].to(state.dtype), angles.sin()[:, None].to(state.dtype)
        half = cos.shape[-1] // 2
        # The halves change places; what comes from the second one changes its sign.
        turn = (cos, torch.cat([-sin[..., :half], sin[..., half:]], -1))
        last = self.config.layers - 1
        for index, layer in enumerate(base.layers):
            own = layer.self_attn
            seen = layer.input_layernorm(state)
            if self._kernels is None:
                values = own.v_proj(seen).view(len(seen), -1, self.config.head_width)
                phase.update(self._heads(own, "k", seen, turn), values, index)
            else:
                heads = Heads(functional.linear(seen, *layer.qkv), turn, layer.head_norms, self._kernels)
                query = cast(FusedPass, phase).keep(heads, index)
            if index == last and (places := phase.narrow()) is not None:
                state, seen, turn = state[places], seen[places], (turn[0][places], turn[1][places])
                if not len(places):
                    break
            if self._kernels is None:
                query = self._heads(own, "q", seen, turn)
            state = state + own.o_proj(phase.attend(query, self.config.head_width**-0.5))
            seen, mlp = layer.post_attention_layernorm(state), layer.mlp
            if self._kernels is None:
                gate = functional.silu(mlp.gate_proj(seen), inplace=True).mul_(mlp.up_proj(seen))
            else:
                gate = self._kernels.gate(functional.linear(seen, *layer.gates))
            state += mlp.down_proj(gate)
        logits: torch.Tensor = self.lm_head(base.norm(state))
        return logits

    def _heads(self, own: Any, which: str, seen: torch.Tensor, turn: Rotation) -> torch.Tensor:
        """Returns queries or keys, shape (tokens, heads, width), turned by their positions."""
        heads: torch.Tensor = own[f"{which}_proj"](seen).view(len(seen), -1, self.config.head_width)
        if self.config.head_norms:
            heads = own[f"{which}_norm"](heads)
        cos, sin = turn
        return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)
