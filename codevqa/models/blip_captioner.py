"""BLIP captions of a picture, or of some of its patches, sampled so that each can be drawn again alone.

Follows "Plug-and-Play VQA" (Tiong et al., EMNLP 2022 Findings): the decoder sees the chosen patch embeddings without
CLS, starts from "a picture of", and samples among the likeliest tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from transformers import (
    BlipForConditionalGeneration,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)

from ..errors import ModelError, SetupError
from .base import CaptionRequest
from .blip_checkpoint import Checkpoint, DType, load_checkpoint
from .blip_common import DEFAULT_CACHE_BYTES, BlipStats, VisionTower, in_batches


class BlipCaptioner:
    """BLIP's caption decoder over one vision tower. Implements :class:`codevqa.models.base.Captioner`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        prompt: str = "a picture of ",
        min_length: int = 10,
        max_length: int = 20,
        top_k: int = 50,
        temperature: float = 1.0,
        max_batch: int = 64,
        feature_cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        self.name = checkpoint.name
        self.grid = checkpoint.grid
        self.stats = BlipStats()
        self._at = checkpoint
        # [CLS] a picture of [SEP], of which [CLS] becomes [DEC] and [SEP] goes.
        self._prompt: list[int] = [checkpoint.dec_id, *checkpoint.tokenizer(prompt)["input_ids"][1:-1]]
        if not len(self._prompt) < max_length or min_length > max_length or top_k < 1 or temperature <= 0:
            raise SetupError(
                f"No caption has {min_length} to {max_length} tokens, {len(self._prompt)} of them the prompt's, "
                f"with top_k {top_k} and temperature {temperature}.",
                hint="Lengths count the prompt; top_k is at least 1 and the temperature above 0.",
            )
        self._top_k = top_k
        self._temperature = temperature
        self._steps = max_length - len(self._prompt)
        self._max_batch = max_batch
        self._decoding = GenerationConfig(
            max_length=max_length,
            min_length=min_length,
            do_sample=False,
            num_beams=1,
            eos_token_id=checkpoint.tokenizer.sep_token_id,
            pad_token_id=checkpoint.tokenizer.pad_token_id,
        )
        self._vision = VisionTower(checkpoint, self.stats, feature_cache_bytes)
        self._lock = threading.Lock()

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        device: str | None = None,
        dtype: DType = None,
        prompt: str = "a picture of ",
        min_length: int = 10,
        max_length: int = 20,
        top_k: int = 50,
        temperature: float = 1.0,
        max_batch: int = 64,
        feature_cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> BlipCaptioner:
        """Loads a captioner, e.g. ``Salesforce/blip-image-captioning-base``.

        Args:
            name: Folder or hub id.
            device: "cpu", "cuda", or None for a GPU where there is one.
            dtype: Precision; None for float32 on the CPU and bfloat16 on a GPU.
            prompt: What every caption begins with; not part of what is returned.
            min_length: Fewest tokens of a caption, the prompt's included as in LAVIS.
            max_length: Most tokens, the prompt's included.
            top_k: Sampling draws among so many likeliest tokens.
            temperature: Divides the logits before sampling.
            max_batch: Captions at a time.
            feature_cache_bytes: Bytes of vision features kept.

        Raises:
            ModelNotFoundError: the checkpoint is not here and cannot be fetched.
            SetupError: it is not a BLIP captioner, or the lengths cannot be met.
        """
        checkpoint = load_checkpoint(name, BlipForConditionalGeneration, device=device, dtype=dtype)
        return cls(
            checkpoint,
            prompt=prompt,
            min_length=min_length,
            max_length=max_length,
            top_k=top_k,
            temperature=temperature,
            max_batch=max_batch,
            feature_cache_bytes=feature_cache_bytes,
        )

    def caption(self, requests: Sequence[CaptionRequest]) -> list[str]:
        """Returns one caption a request, without the prompt.

        A caption depends on its picture, patches and seed alone. Without a seed it is decoded greedily.

        Raises:
            ModelError: a request names patches that do not exist, or none; or the network failed.
        """
        tokenizer = self._at.tokenizer
        return [
            tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=True).strip()
            for ids in self.token_ids(requests)
        ]

    def token_ids(self, requests: Sequence[CaptionRequest]) -> list[list[int]]:
        """Returns the tokens of each caption after the prompt, special tokens included."""
        for request in requests:
            self._check(request)
        groups: dict[int, list[int]] = {}
        for index, request in enumerate(requests):
            # Equal numbers of embeddings make a batch: transformers 5 drops BLIP's cross-attention mask, so that
            # padded ones would be attended to.
            groups.setdefault(len(request.patches or ()), []).append(index)
        results: list[list[int]] = [[] for _ in requests]
        with self._lock:
            for indices in groups.values():
                indices.sort(key=lambda index: requests[index].picture.key)
                drawn = in_batches(self._decode, [requests[index] for index in indices], self._max_batch)
                for index, ids in zip(indices, drawn, strict=True):
                    results[index] = ids
        return results

    @torch.inference_mode()
    def prompt_logits(self, request: CaptionRequest) -> torch.Tensor:
        """Returns the decoder's logits, (prompt tokens, vocabulary), after each token of the prompt."""
        self._check(request)
        with self._lock:
            output = self._at.model.text_decoder(
                input_ids=self._prompts(1), encoder_hidden_states=self._seen([request]), use_cache=False
            )
        return cast(torch.Tensor, output.logits[0].float().cpu())

    def _check(self, request: CaptionRequest) -> None:
        patches = request.patches
        if patches is not None and not (patches and min(patches) >= 0 and max(patches) < self.grid**2):
            raise ModelError(f"Patches must be some of 0 to {self.grid**2 - 1}, not {patches}.")

    def _prompts(self, rows: int) -> torch.Tensor:
        return torch.tensor([self._prompt] * rows, device=self._at.device)

    def _seen(self, requests: Sequence[CaptionRequest]) -> torch.Tensor:
        """What the decoder attends to, (rows, embeddings, width): all with equally many."""
        features = self._vision.features([request.picture for request in requests])
        rows = [features[request.picture.key] for request in requests]
        if requests[0].patches is None:
            return torch.stack(rows)
        # Row 0 of the features is CLS.
        index = torch.tensor([sorted(request.patches or ()) for request in requests], device=self._at.device) + 1
        return torch.stack([row[chosen] for row, chosen in zip(rows, index, strict=True)])

    @torch.inference_mode()
    def _decode(self, requests: Sequence[CaptionRequest]) -> list[list[int]]:
        sampler = SeededTopK(
            [request.seed for request in requests], self._steps, len(self._prompt), self._top_k, self._temperature
        )
        ids = self._at.model.text_decoder.generate(
            input_ids=self._prompts(len(requests)),
            attention_mask=torch.ones(len(requests), len(self._prompt), dtype=torch.long, device=self._at.device),
            encoder_hidden_states=self._seen(requests),
            generation_config=self._decoding,
            logits_processor=LogitsProcessorList([sampler]),
        )
        self.stats.text_rows += len(requests)
        return cast("list[list[int]]", ids[:, len(self._prompt) :].tolist())


class SeededTopK(LogitsProcessor):  # type: ignore[misc]
    """Samples from the top-k softmax inside greedy decoding, each row with random numbers of its own.

    A row's numbers come from its seed alone, one for each step, so that a caption does not depend on its batch. The
    token is found by inverting the cumulative distribution in the order of the vocabulary: exact sampling, for which a
    change of rounding in the logits matters only when the number falls within that rounding of a boundary.
    """

    def __init__(
        self, seeds: Sequence[int | None], steps: int, prompt_length: int, top_k: int, temperature: float
    ) -> None:
        self._rows = [row for row, seed in enumerate(seeds) if seed is not None]
        drawn = [np.random.Generator(np.random.PCG64(seed % 2**64)).random(steps) for seed in seeds if seed is not None]
        self._numbers = torch.from_numpy(np.array(drawn, dtype=np.float64).reshape(len(drawn), steps))
        self._prompt_length = prompt_length
        self._top_k = top_k
        self._temperature = temperature

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        """Returns scores whose only finite entry, in rows with a seed, is the sampled token."""
        if not self._rows:
            return scores
        if self._numbers.device != scores.device:
            self._numbers = self._numbers.to(scores.device)
        rows = torch.tensor(self._rows, device=scores.device)
        logits = scores[rows].double() / self._temperature
        least = logits.topk(min(self._top_k, logits.shape[-1])).values[:, -1:]
        # Ties at the edge all stay, as in transformers' own top-k.
        shares = logits.masked_fill(logits < least, -torch.inf).softmax(-1)
        below = shares.cumsum(-1)
        number = self._numbers[:, input_ids.shape[1] - self._prompt_length, None] * below[:, -1:]
        # The first token whose cumulative share exceeds the number: it has a share, as the number before did not.
        token = (below > number).int().argmax(-1, keepdim=True)
        result = scores.clone()
        result[rows] = torch.full_like(result[rows], -torch.inf).scatter(-1, token, 0.0)
        return result
