"""BLIP captions of a picture, or of some of its patches, sampled so that each can be drawn again alone.

Follows "Plug-and-Play VQA" (Tiong et al., EMNLP 2022 Findings): the decoder sees the chosen patch embeddings without
CLS, starts from "a picture of", and samples among the likeliest tokens.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack, cast

import numpy as np
import torch

from ...core.errors import ModelError, SetupError
from ..options import CaptionerOptions
from ..protocols import CaptionRequest
from ..weights import DType
from .caption_decoder import CaptionDecoder
from .checkpoint import Checkpoint, load_checkpoint
from .picture_input import rows_that_fit, run_in_batches
from .tokens import CaptionRules, numbers_of
from .vision_tower import DEFAULT_CACHE_BYTES, BlipModel


class BlipCaptioner(BlipModel):
    """BLIP's caption decoder over one vision tower. Implements :class:`codevqa.models.protocols.Captioner`.

    Args:
        checkpoint: the network and where it is.
        options: the others are :class:`..options.CaptionerOptions`, too.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        prompt: str = "a picture of ",
        min_length: int = 10,
        max_length: int = 20,
        top_k: int = 50,
        temperature: float = 1.0,
        max_batch: int | None = None,
        feature_cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        text = checkpoint.model.text_decoder
        super().__init__(checkpoint, text, max_batch=max_batch, feature_cache_bytes=feature_cache_bytes)
        # [CLS] a picture of [SEP], of which [CLS] becomes [DEC] and [SEP] goes.
        opening = (checkpoint.dec_id, *checkpoint.tokenizer.encode([prompt])[0][0, 1:-1].tolist())
        self._positions = int(checkpoint.model.config.text_config.max_position_embeddings)
        tokenizer = checkpoint.tokenizer
        rules = CaptionRules(opening, tokenizer.end, tokenizer.pad, min_length, max_length, top_k, temperature)
        self._rules = rules
        self._decoders: dict[tuple[int, int], CaptionDecoder] = {}
        self._decoder = self._thread.run(self._writing, (min_length, max_length))

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike[str],
        *,
        device: str | None = None,
        dtype: DType = None,
        **options: Unpack[CaptionerOptions],
    ) -> BlipCaptioner:
        """Loads a captioner, e.g. ``Salesforce/blip-image-captioning-base``.

        Args:
            name: Folder or hub id.
            device: "cpu", "cuda", or None for a GPU where there is one.
            dtype: Precision; None for float32 on the CPU and bfloat16 on a GPU.
            options: See :class:`..options.CaptionerOptions`.

        Raises:
            ModelNotFoundError: the checkpoint is not here and cannot be fetched.
            SetupError: it is not a BLIP captioner, or the lengths cannot be met.
        """
        return cls(load_checkpoint(name, "captioner", device=device, dtype=dtype), **options)

    @property
    def batch(self) -> int:
        """How many requests it likes best at once."""
        return self._max_batch or self._decoder.batches[-1]

    def caption(self, requests: Sequence[CaptionRequest]) -> list[str]:
        """Returns one caption a request, without the prompt.

        A caption depends on its picture, patches and seed alone. Without a seed it is decoded greedily.

        Raises:
            ModelError: a request names patches that do not exist, or none; or the network failed.
            SetupError: a request wants a length that no caption has.
        """
        return [self._at.tokenizer.decode(ids) for ids in self.token_ids(requests)]

    def token_ids(self, requests: Sequence[CaptionRequest]) -> list[list[int]]:
        """Returns the tokens of each caption after the prompt, up to its [SEP] where it has one."""
        for request in requests:
            check_patches(request, self.grid)
        groups: dict[tuple[int, tuple[int, int] | None], list[int]] = {}
        for index, request in enumerate(requests):
            # Captions of about as many patches make a batch: what one has fewer is padded, and computed in vain.
            groups.setdefault((_room_for(self._count(request)), request.tokens), []).append(index)
        results: list[list[int]] = [[] for _ in requests]
        with self.turn:
            for (patches, tokens), indices in groups.items():
                indices.sort(key=lambda index: requests[index].picture.key)
                decoder = self._writing(tokens)
                written = run_in_batches(
                    self._write, [requests[index] for index in indices], self._batch(patches, decoder), decoder.release
                )
                for index, ids in zip(indices, written, strict=True):
                    results[index] = ids
        return results

    @torch.inference_mode()
    def prompt_logits(self, request: CaptionRequest) -> torch.Tensor:
        """Returns the decoder's logits, (prompt tokens, vocabulary), after each token of the prompt."""
        check_patches(request, self.grid)
        with self.turn:
            embeddings, index = self._caption_inputs([request], self._count(request), self._features([request.picture]))
            return self._decoder.steps.prompt_logits(embeddings[index[0]]).float().cpu()

    def _possible(self, rules: CaptionRules) -> CaptionRules:
        opening = len(rules.prompt)
        lengths = opening < rules.max_length and rules.min_length <= rules.max_length
        if not lengths or rules.top_k < 1 or rules.temperature <= 0:
            raise SetupError(
                f"No caption has {rules.min_length} to {rules.max_length} tokens, {opening} of them the prompt's, "
                f"with top_k {rules.top_k} and temperature {rules.temperature}.",
                hint="Lengths count the prompt; top_k is at least 1 and the temperature above 0.",
            )
        if rules.max_length > self._positions:
            raise SetupError(f"{self.name} has captions of up to {self._positions} tokens, not {rules.max_length}.")
        return rules

    def _writing(self, tokens: tuple[int, int] | None) -> CaptionDecoder:
        """Returns what writes captions of at least and at most so many tokens; None takes the captioner's own."""
        least, most = tokens or (self._rules.min_length, self._rules.max_length)
        if (least, most) not in self._decoders:
            rules = self._possible(replace(self._rules, min_length=least, max_length=most))
            network = self._at.model.text_decoder
            kernels: Any = None
            if self._at.device.type == "cuda":
                from .gpu import kernels
            self._decoders[least, most] = CaptionDecoder(network, rules, kernels)
        return self._decoders[least, most]

    def _count(self, request: CaptionRequest) -> int:
        """How many embeddings a caption sees."""
        return 1 + self.grid**2 if request.patches is None else len(request.patches)

    def _batch(self, patches: int, decoder: CaptionDecoder) -> int:
        if self._max_batch is not None:
            return self._max_batch
        # Batches are padded to one of a few sizes, which must fit too.
        sizes = decoder.batches
        fit = rows_that_fit(self._at.device, decoder.steps.row_bytes(patches), sizes[-1])
        return max((size for size in sizes if size <= fit), default=sizes[0])

    def _caption_inputs(
        self, requests: Sequence[CaptionRequest], room: int, features: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What captions see: each distinct embedding once, (embeddings, width), and (captions, room) indices into it.

        Padding names the first of them.
        """
        pictures = {key: place for place, key in enumerate(features)}
        length = 1 + self.grid**2
        wanted = np.zeros((len(requests), room), np.int64)
        for row, request in enumerate(requests):
            # Row 0 of the features is CLS.
            chosen = range(length) if request.patches is None else [1 + patch for patch in sorted(request.patches)]
            wanted[row, : len(chosen)] = chosen
            wanted[row] += length * pictures[request.picture.key]
        distinct, index = np.unique(wanted, return_inverse=True)
        places = self._at.upload(torch.from_numpy(np.concatenate([distinct, index.reshape(-1)])))
        embeddings = torch.cat(list(features.values())).index_select(0, places[: len(distinct)])
        return embeddings, places[len(distinct) :].view(len(requests), room)

    def _write(self, requests: Sequence[CaptionRequest]) -> list[list[int]]:
        features = self._features([request.picture for request in requests])
        tokens = self._thread.run(self._tokens, requests, features)
        self._count_rows(len(requests))
        end = self._rules.end
        rows = cast("list[list[int]]", tokens.tolist())
        return [ids[: ids.index(end) + 1] if end in ids else ids for ids in rows]

    @torch.inference_mode()
    def _tokens(self, requests: Sequence[CaptionRequest], features: dict[str, torch.Tensor]) -> torch.Tensor:
        counts = [self._count(request) for request in requests]
        masked = min(counts) < max(counts)
        room = _room_for(max(counts)) if masked else max(counts)
        decoder = self._writing(requests[0].tokens)
        numbers = numbers_of([request.seed for request in requests], decoder.steps.rules.steps)
        return decoder.write(
            *self._caption_inputs(requests, room, features),
            self._at.upload(torch.tensor(counts)) if masked else None,
            self._at.upload(numbers),
        )


def check_patches(request: CaptionRequest, grid: int) -> None:
    """Refuses patches that a picture does not have.

    Raises:
        ModelError: there are such, or none at all.
    """
    patches = request.patches
    if patches is not None and not (patches and min(patches) >= 0 and max(patches) < grid**2):
        raise ModelError(f"Patches must be some of 0 to {grid**2 - 1}, not {patches}.")


def _room_for(patches: int) -> int:
    """How many embeddings a batch has room for: to the next eight, from 64 on to the next quarter of a power of two."""
    step = max(8, 1 << max(0, (patches - 1).bit_length() - 3))
    return -(-patches // step) * step
