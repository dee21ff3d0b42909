"""Parts of the reference that turn logits into text: coupled sampling, and a language model asked prompt by prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor

from codevqa.models.base import Completion, GenerationRequest, cut_at_stop


class Coupled(LogitsProcessor):  # type: ignore[misc]
    """Samples from the top-k softmax with one given random number a row and step, by inverting the distribution.

    The numbers are those the library draws from a caption's seed, so that equal seeds give equal captions.
    """

    def __init__(self, seeds: Sequence[int], steps: int, before: int, top_k: int, temperature: float) -> None:
        self._numbers = np.stack([np.random.Generator(np.random.PCG64(seed % 2**64)).random(steps) for seed in seeds])
        self._before, self._top_k, self._temperature = before, top_k, temperature

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns scores with a single finite entry a row."""
        step = input_ids.shape[1] - self._before
        logits = scores.double().cpu().numpy() / self._temperature
        result = torch.full_like(scores, -torch.inf)
        for row, (values, number) in enumerate(zip(logits, self._numbers[:, step], strict=True)):
            edge = np.sort(values)[-min(self._top_k, len(values))]
            shares = np.where(values >= edge, np.exp(values - values.max()), 0.0)
            below = np.cumsum(shares)
            result[row, int(np.argmax(below > number * below[-1]))] = 0.0
        return result


class PlainLM:
    """A causal language model through transformers' ``generate``: one prompt at a time, nothing kept between them."""

    def __init__(self, folder: str, *, device: str = "cpu") -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.name = folder
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Continues each prompt greedily, one after another."""
        return [self._continue(request) for request in requests]

    @torch.inference_mode()
    def _continue(self, request: GenerationRequest) -> Completion:
        assert isinstance(request.prompt, str), "completion prompts only"
        ids = torch.tensor([self._tokenizer(request.prompt)["input_ids"]], device=self._model.device)
        length = ids.shape[1]

        def ended(tokens: torch.Tensor, _: object, **__: object) -> torch.Tensor:
            recent = self._tokenizer.decode(tokens[0, max(length, tokens.shape[1] - 24) :], skip_special_tokens=True)
            return torch.tensor([any(stop in recent for stop in request.stop)], device=tokens.device)

        limit = self._model.config.max_position_embeddings - length
        made = self._model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=min(request.max_tokens, limit),
            do_sample=False,
            stopping_criteria=[ended],
        )[0]
        # With a little of the prompt, for tokenizers that drop a leading space.
        before = self._tokenizer.decode(made[length - 4 : length], skip_special_tokens=True)
        text = self._tokenizer.decode(made[length - 4 :], skip_special_tokens=True)
        return Completion(cut_at_stop(text[len(before) :], request.stop), length, len(made) - length)
