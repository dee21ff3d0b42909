"""BLIP through transformers' own forward passes: what the fast ones are held against, and stand in for.

Each class does what its fast counterpart does (:mod:`.forwards` says what), by calling the network as anybody would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .forwards import TextEncoder
from .picture_input import PictureReader
from .sampling import CaptionRules, draw

_ROWS = 64


class PlainVisionEncoder:
    """The vision tower.

    Args:
        tower: transformers' ``BlipVisionModel``.
        reader: what gives it pixels.
    """

    rows = _ROWS

    def __init__(self, tower: Any, reader: PictureReader) -> None:
        self._tower = tower
        self._reader = reader

    def row_bytes(self) -> int:
        """Returns about how much memory one picture of a batch needs while it is computed."""
        config = self._tower.config
        tokens = (config.image_size // config.patch_size) ** 2 + 1
        numbers = tokens * (6 * config.hidden_size + 2 * config.intermediate_size)
        numbers += 3 * config.num_attention_heads * tokens**2  # attention, which is there as a whole
        return int(numbers * self._tower.dtype.itemsize)

    @torch.inference_mode()
    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns features, (pictures, 1 + patches, width), of bytes, (pictures, size, size, 3)."""
        features: torch.Tensor = self._tower(pixel_values=self._numbers(pixels)).last_hidden_state
        return features

    @torch.inference_mode()
    def first_features(self, pixels: torch.Tensor, count: int) -> torch.Tensor:
        """Returns the features, (pictures, count, width), of pictures that have no more than those patches."""
        hidden = self._tower.embeddings(self._numbers(pixels))[:, :count]
        features: torch.Tensor = self._tower.post_layernorm(self._tower.encoder(inputs_embeds=hidden).last_hidden_state)
        return features

    def release(self) -> None:
        """Keeps nothing."""

    def _numbers(self, pixels: torch.Tensor) -> torch.Tensor:
        return self._reader.normalise(pixels).permute(0, 3, 1, 2)


class PlainTextEncoder(TextEncoder):
    """The matcher's text encoder.

    Args:
        encoder: transformers' ``BlipTextModel``.
        head: from the first token's embedding to (rows, 2) logits: no match, match.
        block: text block, counted from 0, whose cross-attention GradCAM reads.
    """

    def __init__(self, encoder: Any, head: Any, block: int) -> None:
        self._encoder, self._head, self._block = encoder, head, block

    def row_bytes(self, patches: int, tokens: int) -> int:
        """Returns about how much memory one (picture, text) pair needs while GradCAM is computed."""
        config, weight = self._encoder.config, self._encoder.embeddings.word_embeddings.weight
        above = config.num_hidden_layers - self._block + 1
        # Each block above GradCAM's keeps its attention, and all it made of the patches, for the backward pass.
        numbers = above * (3 * config.num_attention_heads * tokens * patches + 2 * patches * config.hidden_size)
        return int((numbers + patches * config.encoder_hidden_size) * weight.element_size())

    @torch.inference_mode()
    def first_token(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Returns the first token's last embedding, (rows, width), of texts alone: (rows, tokens) ids and mask."""
        device = self._encoder.device
        output = self._encoder(input_ids=ids.to(device), attention_mask=mask.to(device))
        first: torch.Tensor = output.last_hidden_state[:, 0]
        return first

    def gradcam(
        self, ids: torch.Tensor, mask: torch.Tensor, features: Sequence[torch.Tensor], owners: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes GradCAM of every token and the logits of the head; see :class:`.forwards.TextEncoder`.

        Gradients begin at the attention probabilities of the chosen block, which is what its dropout is given.
        """
        device = self._encoder.device
        mask = mask.to(device)
        kept: list[torch.Tensor] = []

        def begin(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            kept.append(inputs[0].detach().requires_grad_(True))
            return (kept[0],)

        dropout = self._encoder.encoder.layer[self._block].crossattention.self.dropout
        handle = dropout.register_forward_pre_hook(begin)
        try:
            with torch.enable_grad():
                hidden = self._encoder(
                    input_ids=ids.to(device),
                    attention_mask=mask,
                    encoder_hidden_states=torch.stack([features[owner] for owner in owners]),
                ).last_hidden_state
                logits = self._head(hidden[:, 0])
        finally:
            handle.remove()
        (gradient,) = torch.autograd.grad(logits[:, 1].sum(), kept)
        maps = (kept[0].detach().float() * gradient.float().clamp(min=0))[..., 1:].mean(1)
        return maps * mask[:, :, None], logits.detach().float()


class PlainCaptionDecoder:
    """The captioner's decoder.

    Args:
        model: transformers' ``BlipTextLMHeadModel``.
        rules: of every caption.
    """

    batches = range(1, _ROWS + 1)

    def __init__(self, model: Any, rules: CaptionRules) -> None:
        self._model, self._rules = model, rules

    def row_bytes(self, patches: int) -> int:
        """Returns about how much memory one caption of so many patches needs."""
        config = self._model.config
        kept = 2 * config.num_hidden_layers * config.hidden_size * (self._rules.max_length + patches)
        numbers = kept + len(self._rules.prompt) * config.vocab_size
        return int(numbers * self._model.dtype.itemsize + 32 * config.vocab_size)

    def release(self) -> None:
        """Keeps nothing."""

    @torch.inference_mode()
    def write(
        self, embeddings: torch.Tensor, index: torch.Tensor, counts: torch.Tensor | None, numbers: torch.Tensor
    ) -> torch.Tensor:
        """Writes a batch of captions; see :class:`.forwards.CaptionDecoder`."""
        tokens = torch.full(numbers.shape, self._rules.pad, device=numbers.device)
        if counts is None:
            counts = torch.full(index.shape[:1], index.shape[1])
        # Those of equally many patches together: transformers 5 drops the mask of BLIP's attention to them.
        for count in sorted(set(counts.tolist())):
            rows = (counts == count).nonzero()[:, 0].to(index.device)
            tokens[rows] = self._write(embeddings[index[rows, :count]], numbers[rows])
        return tokens.cpu()

    @torch.inference_mode()
    def prompt_logits(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Returns the logits after each token of the prompt, (prompt tokens, vocabulary), given (patches, width)."""
        prompt = torch.tensor([self._rules.prompt], device=embeddings.device)
        logits: torch.Tensor = self._model(input_ids=prompt, encoder_hidden_states=embeddings[None]).logits[0]
        return logits

    def _write(self, patches: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Writes captions of (rows, patches, width) embeddings."""
        rules = self._rules
        tokens = torch.full(numbers.shape, rules.pad, device=numbers.device)
        done = torch.zeros(len(numbers), dtype=torch.bool, device=numbers.device)
        ids, kept = torch.tensor([rules.prompt] * len(numbers), device=numbers.device), None
        for step in range(rules.steps):
            output = self._model(input_ids=ids, encoder_hidden_states=patches, past_key_values=kept, use_cache=True)
            logits, kept = output.logits[:, -1], output.past_key_values
            if step < rules.first_end:
                logits[:, rules.end] = -torch.inf
            token = draw(logits, numbers[:, step : step + 1], rules.top_k, rules.temperature)
            tokens[:, step] = token.masked_fill(done, rules.pad)
            done |= token == rules.end
            if bool(done.all()):
                break
            ids = token[:, None]
        return tokens
