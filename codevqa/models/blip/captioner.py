"""BLIP captions of a picture, or of some of its patches, sampled so that each can be drawn again alone.

Follows "Plug-and-Play VQA" (Tiong et al., EMNLP 2022 Findings): the decoder sees the chosen patch embeddings without
CLS, starts from "a picture of", and samples among the likeliest tokens.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from transformers import BlipForConditionalGeneration

from ...core.errors import ModelError, SetupError
from ..base import CaptionRequest
from ..core_pool import Cores
from ..cuda_graphs import enabled
from .checkpoint import Checkpoint, DType, load_checkpoint
from .fast.caption_decoder import CaptionDecoder, CaptionRules, Drafts
from .fast.caption_decoder_cpu import CaptionWriter
from .fast.caption_text import CaptionText
from .fast.sampling import numbers_of
from .gpu.caption_graphs import ROWS, CaptionGraphs, unrecorded
from .vision_tower import DEFAULT_CACHE_BYTES, BlipStats, VisionTower, fitting, in_batches

_CPU_CAPTIONS = 64


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
        max_batch: int | None = None,
        feature_cache_bytes: int = DEFAULT_CACHE_BYTES,
        feature_cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.name = checkpoint.name
        self.grid = checkpoint.grid
        self.stats = BlipStats()
        self._at = checkpoint
        # [CLS] a picture of [SEP], of which [CLS] becomes [DEC] and [SEP] goes.
        opening = (checkpoint.dec_id, *checkpoint.tokenizer(prompt)["input_ids"][1:-1])
        if not len(opening) < max_length or min_length > max_length or top_k < 1 or temperature <= 0:
            raise SetupError(
                f"No caption has {min_length} to {max_length} tokens, {len(opening)} of them the prompt's, "
                f"with top_k {top_k} and temperature {temperature}.",
                hint="Lengths count the prompt; top_k is at least 1 and the temperature above 0.",
            )
        positions = int(checkpoint.model.config.text_config.max_position_embeddings)
        if max_length > positions:
            raise SetupError(f"{checkpoint.name} has captions of up to {positions} tokens, not {max_length}.")
        tokenizer = checkpoint.tokenizer
        self._rules = CaptionRules(
            opening, tokenizer.sep_token_id, tokenizer.pad_token_id, min_length, max_length, top_k, temperature
        )
        self._text = CaptionText(tokenizer)
        self._decoder = CaptionDecoder(checkpoint.model.text_decoder, self._rules)
        self._graphs = _stretches(self._decoder, checkpoint.device)
        self._writer = CaptionWriter(self._decoder)
        self._cores = Cores(checkpoint.model.text_decoder, len(self._decoder.layers), checkpoint.device)
        self._max_batch = max_batch
        self._vision = VisionTower(
            checkpoint, self.stats, feature_cache_bytes, cache_dir=feature_cache_dir, max_batch=max_batch
        )
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
        max_batch: int | None = None,
        feature_cache_bytes: int = DEFAULT_CACHE_BYTES,
        feature_cache_dir: str | os.PathLike[str] | None = None,
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
            max_batch: Captions, and pictures, at a time; None chooses by the memory that is free.
            feature_cache_bytes: Bytes of vision features kept in memory.
            feature_cache_dir: Folder where vision features are kept beyond the run; None keeps none.

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
            feature_cache_dir=feature_cache_dir,
        )

    @property
    def batch(self) -> int:
        """How many requests it likes best at once."""
        return self._max_batch or (_CPU_CAPTIONS if self._at.device.type == "cpu" else ROWS[-1])

    def caption(self, requests: Sequence[CaptionRequest]) -> list[str]:
        """Returns one caption a request, without the prompt.

        A caption depends on its picture, patches and seed alone. Without a seed it is decoded greedily.

        Raises:
            ModelError: a request names patches that do not exist, or none; or the network failed.
        """
        return [self._text(ids) for ids in self.token_ids(requests)]

    def token_ids(self, requests: Sequence[CaptionRequest]) -> list[list[int]]:
        """Returns the tokens of each caption after the prompt, up to its [SEP] where it has one."""
        for request in requests:
            self._check(request)
        groups: dict[int, list[int]] = {}
        for index, request in enumerate(requests):
            # Captions of about as many patches make a batch: what one has fewer is padded, and computed in vain.
            groups.setdefault(_room_for(self._count(request)), []).append(index)
        results: list[list[int]] = [[] for _ in requests]
        with self._lock:
            for patches, indices in groups.items():
                indices.sort(key=lambda index: requests[index].picture.key)
                written = in_batches(
                    self._write, [requests[index] for index in indices], self._batch(patches), release=self._release
                )
                for index, ids in zip(indices, written, strict=True):
                    results[index] = ids
        return results

    @torch.inference_mode()
    def prompt_logits(self, request: CaptionRequest) -> torch.Tensor:
        """Returns the decoder's logits, (prompt tokens, vocabulary), after each token of the prompt."""
        self._check(request)
        with self._lock:
            drafts = self._decoder.blank(1, self._count(request), masked=False)
            self._decoder.show(drafts, *self._seen([request], self._count(request)))
            return self._decoder.read_prompt(drafts)[0].float().cpu()

    def _check(self, request: CaptionRequest) -> None:
        patches = request.patches
        if patches is not None and not (patches and min(patches) >= 0 and max(patches) < self.grid**2):
            raise ModelError(f"Patches must be some of 0 to {self.grid**2 - 1}, not {patches}.")

    def _count(self, request: CaptionRequest) -> int:
        """How many embeddings a caption sees."""
        return 1 + self.grid**2 if request.patches is None else len(request.patches)

    def _batch(self, patches: int) -> int:
        if self._max_batch is not None:
            return self._max_batch
        if self._graphs is None:
            return fitting(self._at.device, self._decoder.row_bytes(patches), _CPU_CAPTIONS)
        # Batches are padded to one of a few sizes, which must fit too.
        fit = fitting(self._at.device, self._decoder.row_bytes(patches), ROWS[-1])
        return max((size for size in ROWS if size <= fit), default=ROWS[0])

    def _release(self) -> None:
        if self._graphs is not None:
            self._graphs.release()

    def _seen(
        self, requests: Sequence[CaptionRequest], room: int, features: dict[str, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What captions see: each distinct embedding once, (embeddings, width), and (captions, room) indices into it.

        Padding names the first of them. Features are asked for where they are not given.
        """
        if features is None:
            features = self._features(requests)
        pictures = {key: place for place, key in enumerate(features)}
        length = 1 + self.grid**2
        wanted = np.zeros((len(requests), room), np.int64)
        for row, request in enumerate(requests):
            # Row 0 of the features is CLS.
            chosen = range(length) if request.patches is None else [1 + patch for patch in sorted(request.patches)]
            wanted[row, : len(chosen)] = chosen
            wanted[row] += length * pictures[request.picture.key]
        distinct, index = np.unique(wanted, return_inverse=True)
        places = self._there(torch.from_numpy(np.concatenate([distinct, index.reshape(-1)])))
        embeddings = torch.cat(list(features.values())).index_select(0, places[: len(distinct)])
        return embeddings, places[len(distinct) :].view(len(requests), room)

    def _there(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the CPU, where the network is; a GPU may still be busy copying it."""
        if self._at.device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self._at.device, non_blocking=True)

    @torch.inference_mode()
    def _write(self, requests: Sequence[CaptionRequest]) -> list[list[int]]:
        counts = [self._count(request) for request in requests]
        masked = min(counts) < max(counts)
        room = _room_for(max(counts)) if masked else max(counts)
        numbers = numbers_of([request.seed for request in requests], self._rules.steps)

        def fill(drafts: Drafts) -> None:
            rows = len(requests)
            self._decoder.show(drafts, *self._seen(requests, room))
            drafts.numbers[:rows] = self._there(numbers)
            drafts.done[:rows] = False
            drafts.done[rows:] = True
            if drafts.hidden_patches is not None:
                beyond = torch.arange(room) >= torch.tensor(counts)[:, None]
                drafts.hidden_patches[:rows, 0, 0] = self._there(
                    torch.zeros(beyond.shape).masked_fill(beyond, -torch.inf)
                )

        if self._graphs is not None:
            with torch.cuda.device(self._at.device):
                tokens = self._graphs.write(len(requests), room, masked, fill)
        else:
            kept = torch.tensor(counts) if masked else None
            tokens = self._cores.run(self._write_here, requests, room, self._features(requests), kept, numbers)
        self.stats.text_rows += len(requests)
        self.stats.text_batches += 1
        end = self._rules.end
        rows = cast("list[list[int]]", tokens.tolist())
        return [ids[: ids.index(end) + 1] if end in ids else ids for ids in rows]

    @torch.inference_mode()
    def _write_here(
        self,
        requests: Sequence[CaptionRequest],
        room: int,
        features: dict[str, torch.Tensor],
        counts: torch.Tensor | None,
        numbers: torch.Tensor,
    ) -> torch.Tensor:
        """Writes on the CPU."""
        return self._writer.write(*self._seen(requests, room, features), counts, numbers)

    def _features(self, requests: Sequence[CaptionRequest]) -> dict[str, torch.Tensor]:
        return self._vision.features([request.picture for request in requests])


def _stretches(decoder: CaptionDecoder, device: torch.device) -> CaptionGraphs | None:
    """How a GPU decodes, a few steps at a time; None on the CPU, which can ask after every step."""
    if device.type != "cuda":
        return None
    return CaptionGraphs(decoder) if enabled(device) else unrecorded(decoder)


def _room_for(patches: int) -> int:
    """How many embeddings a batch has room for: to the next eight, from 64 on to the next quarter of a power of two."""
    step = max(8, 1 << max(0, (patches - 1).bit_length() - 3))
    return -(-patches // step) * step
