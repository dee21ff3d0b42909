"""BLIP image-text matching: where in a picture a text looks (ITM with GradCAM), and how alike they are (ITC).

Follows Tiong et al., "Plug-and-Play VQA" (EMNLP 2022 Findings), as LAVIS computes it: the text opens with ``[ENC]`` for
ITM and with ``[CLS]`` for ITC; relevance is the cross-attention of one block times the positive part of the gradient of
the "match" logit. LAVIS's callers strip a question's trailing "?" first; texts are taken as they are given here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Unpack, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ...core.errors import SetupError
from ...core.images import Picture
from ..feature_store import FeatureStores
from ..options import Average, MatcherOptions
from ..protocols import Map, Match, MatchRequest, SimilarityRequest
from ..weights import DType
from .checkpoint import Checkpoint, load_checkpoint
from .picture_input import rows_that_fit, run_in_batches
from .text_encoder import TextEncoder
from .vision_tower import DEFAULT_CACHE_BYTES, BlipModel

_GPU_PAIRS = 128
_CPU_PAIRS = 64


class BlipMatcher(BlipModel):
    """BLIP's ITM and ITC heads over one vision tower. Implements :class:`codevqa.models.protocols.Matcher`.

    Args:
        checkpoint: the network and where it is.
        options: the others are :class:`..options.MatcherOptions`, too.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        block: int = 7,
        average: Average = "words",
        max_length: int = 35,
        max_batch: int | None = None,
        feature_cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        blocks = checkpoint.model.config.text_config.num_hidden_layers
        if not 0 <= block < blocks:
            raise SetupError(
                f"{checkpoint.name} has text blocks 0 to {blocks - 1}, not {block}.", hint="Choose another for GradCAM."
            )
        if average not in ("words", "all"):
            raise SetupError(f"No average over tokens is called {average!r}.", hint='Use "words" or "all".')
        text = checkpoint.model.text_encoder
        super().__init__(checkpoint, text, max_batch=max_batch, feature_cache_bytes=feature_cache_bytes)
        compares = nn.ModuleList([checkpoint.model.vision_model, checkpoint.model.vision_proj])
        shape = (checkpoint.model.vision_proj.out_features,)
        self._sides = FeatureStores(compares, checkpoint.pictures, small=True, shape=shape)
        self._average = average
        self._max_length = max_length
        self._text = TextEncoder(text, checkpoint.model.itm_head, block)

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike[str],
        *,
        device: str | None = None,
        dtype: DType = None,
        **options: Unpack[MatcherOptions],
    ) -> BlipMatcher:
        """Loads a matcher, e.g. ``Salesforce/blip-itm-base-coco``.

        Args:
            name: Folder or hub id.
            device: "cpu", "cuda", or None for a GPU where there is one.
            dtype: Precision; None for float32 on the CPU and bfloat16 on a GPU.
            options: See :class:`..options.MatcherOptions`.

        Raises:
            ModelNotFoundError: the checkpoint is not here and cannot be fetched.
            SetupError: it is not a BLIP matcher, or has no such block.
        """
        return cls(load_checkpoint(name, "matcher", device=device, dtype=dtype), **options)

    @property
    def batch(self) -> int:
        """How many requests it likes best at once."""
        return self._max_batch or (_GPU_PAIRS if self._at.device.type == "cuda" else _CPU_PAIRS)

    def match(self, requests: Sequence[MatchRequest]) -> list[Match]:
        """Returns GradCAM relevance, averaged over the tokens in focus, and the ITM logit of each pair.

        A focus that has no token in common with the text, as far as that was not cut off, counts as all words. A text
        without words averages all its tokens.

        Raises:
            ModelError: the network failed.
        """
        with self.turn:
            return run_in_batches(self._match, requests, self._batch())

    def logits(self, requests: Sequence[MatchRequest]) -> list[float]:
        """Returns the ITM logit of each pair, as :meth:`match` does, for less work: no maps are made.

        Raises:
            ModelError: the network failed.
        """
        with self.turn:
            return run_in_batches(self._logits, requests, self._batch())

    def similarity(self, requests: Sequence[SimilarityRequest]) -> list[float]:
        """Returns the ITC score (cosine, -1..1) of each pair.

        Raises:
            ModelError: the network failed.
        """
        with self.turn:
            return run_in_batches(self._similarity, requests, self._batch())

    def summaries(self, pictures: Sequence[Picture]) -> list[npt.NDArray[np.float32]]:
        """Returns the first feature of each picture, and mean and standard deviation of the others, (3 * width,).

        Raises:
            ModelError: the network failed.
        """
        with self.turn:
            features = self._features(pictures)
            rows = [features[picture.key].float() for picture in pictures]
            return [torch.cat([row[0], row[1:].mean(0), row[1:].std(0)]).cpu().numpy() for row in rows]

    def keep_features(self) -> None:
        """Writes to disk what features and embeddings of collections are still in memory alone."""
        super().keep_features()
        self._sides.save()

    def token_maps(self, requests: Sequence[MatchRequest]) -> list[tuple[Map, Map]]:
        """Returns GradCAM of every token, (tokens, grid, grid), and the ITM logits (no match, match) of each pair.

        For figures and parity checks; the focus is not looked at.
        """
        with self.turn:
            return run_in_batches(self._token_maps, requests, self._batch())

    def _match(self, requests: Sequence[MatchRequest]) -> list[Match]:
        ids, mask = self._tokens([request.text for request in requests])
        weights, rows = torch.zeros(ids.shape), ids.tolist()
        lengths = mask.sum(1).tolist()
        for row, request in enumerate(requests):
            phrase = self._tokens([request.focus])[0][0, 1:-1].tolist() if request.focus else []
            chosen = tokens_in_focus(rows[row][: lengths[row]], phrase, "words" if request.focus else self._average)
            weights[row, chosen] = 1 / len(chosen)
        features = self._request_features(requests)
        outputs = self._thread.run(self._text.relevance, self._with_enc_token(ids), mask, weights, features)
        self._count_rows(len(requests))
        numbers = outputs.cpu().numpy()
        margins = numbers[:, -1].tolist()
        return [
            Match(row[:-1].reshape(self.grid, self.grid), margin) for row, margin in zip(numbers, margins, strict=True)
        ]

    def _logits(self, requests: Sequence[MatchRequest]) -> list[float]:
        ids, mask = self._tokens([request.text for request in requests])
        self._count_rows(len(requests))
        return self._thread.run(self._text.margins, self._with_enc_token(ids), mask, self._request_features(requests))

    def _token_maps(self, requests: Sequence[MatchRequest]) -> list[tuple[Map, Map]]:
        ids, mask = self._tokens([request.text for request in requests])
        maps, logits = self._thread.run(
            self._text.gradcam, self._with_enc_token(ids), mask, self._request_features(requests)
        )
        self._count_rows(len(requests))
        maps = maps.view(*maps.shape[:2], self.grid, self.grid).cpu()
        lengths = mask.sum(1).tolist()
        return [(maps[row, :length].numpy(), logits[row].cpu().numpy()) for row, length in enumerate(lengths)]

    def _tokens(self, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        return self._at.tokenizer.encode(texts, self._max_length)

    def _request_features(self, requests: Sequence[MatchRequest]) -> list[torch.Tensor]:
        """Features of the picture of each request."""
        features = self._features([request.picture for request in requests])
        return [features[request.picture.key] for request in requests]

    def _with_enc_token(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens that open with the one for texts compared with a picture."""
        ids = tokens.clone()
        ids[:, 0] = self._at.enc_id
        return ids

    def _similarity(self, requests: Sequence[SimilarityRequest]) -> list[float]:
        pictures = [request.picture for request in requests]
        sides = self._sides.read(pictures)  # 1 kB each; what they are made of is hundreds
        new = {picture.key: picture for picture in pictures if picture.key not in sides}
        if new:
            # Indexing asks for this alone: the features of thousands of pictures go to disk, and not into memory.
            features = self._features(list(new.values()), keep=False)
            new_sides = self._thread.run(self._picture_sides, features)
            self._sides.add(new.values(), new_sides)
            sides |= new_sides
        return self._thread.run(self._score_similarity, requests, sides)

    @torch.inference_mode()
    def _picture_sides(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        cls = torch.stack([tensor[0] for tensor in features.values()])
        embeddings = torch.nn.functional.normalize(self._at.model.vision_proj(cls).float(), dim=-1).cpu()
        return dict(zip(features, embeddings.unbind(), strict=True))

    @torch.inference_mode()
    def _score_similarity(self, requests: Sequence[SimilarityRequest], sides: dict[str, torch.Tensor]) -> list[float]:
        texts = list(dict.fromkeys(request.text for request in requests))
        rows = {text: row for row, text in enumerate(texts)}
        first = self._text.first_token(*self._tokens(texts))
        text_side = torch.nn.functional.normalize(self._at.model.text_proj(first).float(), dim=-1).cpu()
        picture_side = torch.stack([sides[request.picture.key] for request in requests])
        chosen = text_side[torch.tensor([rows[request.text] for request in requests])]
        self._count_rows(len(texts))
        return cast("list[float]", (picture_side * chosen).sum(-1).tolist())

    def _batch(self) -> int:
        if self._max_batch is not None:
            return self._max_batch
        return rows_that_fit(self._at.device, self._text.row_bytes(1 + self.grid**2, self._max_length), self.batch)


def tokens_in_focus(ids: Sequence[int], phrase: Sequence[int], average: Average) -> Sequence[int]:
    """Indices of the tokens to average, of those of a text and of a phrase without what opens and ends it."""
    words = range(1, len(ids) - 1)
    if phrase:
        runs = [first for first in words if ids[first : first + len(phrase)] == phrase]
        shared = range(runs[-1], runs[-1] + len(phrase)) if runs else [at for at in words if ids[at] in phrase]
        if shared:
            return shared
    return range(len(ids)) if average == "all" or not words else words
