"""LAVIS's BLIP behind the protocols of :mod:`codevqa.models.protocols`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Unpack

import numpy as np

from ...core.errors import ModelNotFoundError, SetupError
from ...core.images import Picture
from ..blip.captioner import check_patches
from ..blip.matcher import tokens_in_focus
from ..options import Average, LavisOptions
from ..protocols import CaptionRequest, Map, Match, MatchRequest, SimilarityRequest
from .messages import Array, Message
from .process import VARIABLE, LavisProcess, python_of

_BATCH = 8
"""Requests in one message. They are computed one after another, and a message has its time limit."""
_R = TypeVar("_R")


class _LavisPart:
    """A model of LAVIS in a process of its own."""

    batch = _BATCH

    def __init__(self, process: LavisProcess, name: str) -> None:
        self.name = f"lavis:{name}"
        self.grid = int(process.described["grid"])
        self.process = process
        self.turn = process.turn

    def close(self) -> None:
        """Ends LAVIS's process; the next request starts another."""
        self.process.close()


class LavisMatcher(_LavisPart):
    """LAVIS's ``blip_image_text_matching``. Implements :class:`codevqa.models.protocols.Matcher`."""

    def __init__(self, process: LavisProcess, name: str, *, average: Average) -> None:
        super().__init__(process, name)
        self._average = average

    @classmethod
    def from_pretrained(
        cls, name: str, *, block: int = 7, average: Average = "words", **options: Unpack[LavisOptions]
    ) -> LavisMatcher:
        """Starts LAVIS with a matcher.

        Args:
            name: LAVIS's model type, "base" or "large", which it fetches; or a checkpoint of LAVIS, ``FILE.pth``.
            block: Text block, counted from 0, whose cross-attention GradCAM reads.
            average: What relevance averages without a focus: "words" (tokens 1..n-2) or "all" tokens.
            options: See :class:`LavisOptions`.

        Raises:
            ModelNotFoundError: there is no such file.
            SetupError: LAVIS is not installed, or cannot load that.
        """
        process = _process("matcher", name, ("base", "large"), {"block": block}, options)
        return cls(process, name, average=average)

    def match(self, requests: Sequence[MatchRequest]) -> list[Match]:
        """Returns GradCAM relevance and the ITM logit of each pair, averaged as the other back end does.

        Raises:
            ModelError: LAVIS failed, died, or took too long.
        """
        matches = []
        for request, (maps, logits, ids, phrase) in zip(requests, self._maps(requests), strict=True):
            chosen = tokens_in_focus(ids, phrase, "words" if request.focus else self._average)
            matches.append(Match(maps[chosen].mean(0), float(logits[1] - logits[0])))
        return matches

    def similarity(self, requests: Sequence[SimilarityRequest]) -> list[float]:
        """Returns the ITC score of each pair.

        Raises:
            ModelError: LAVIS failed, died, or took too long.
        """
        scores: list[float] = []
        for some in _batches(requests):
            pictures, places = _distinct_pictures([request.picture for request in some])
            pairs = [(place, request.text) for place, request in zip(places, some, strict=True)]
            scores += self.process.ask("similarity", {"pairs": pairs}, pictures)[1][0].tolist()
        return scores

    def token_maps(self, requests: Sequence[MatchRequest]) -> list[tuple[Map, Map]]:
        """Returns GradCAM of every token and the ITM logits, as :meth:`codevqa.models.blip.BlipMatcher.token_maps`."""
        return [(maps, logits) for maps, logits, *_ in self._maps(requests)]

    def _maps(self, requests: Sequence[MatchRequest]) -> list[tuple[Map, Map, list[int], list[int]]]:
        """Returns of each request GradCAM of every token, the ITM logits, and the tokens of its text and its focus."""
        results: list[tuple[Map, Map, list[int], list[int]]] = []
        for some in _batches(requests):
            pictures, places = _distinct_pictures([request.picture for request in some])
            pairs = [(place, request.text, request.focus or "") for place, request in zip(places, some, strict=True)]
            reply, arrays = self.process.ask("match", {"pairs": pairs}, pictures)
            results += zip(arrays[::2], arrays[1::2], reply["tokens"], reply["focus"], strict=True)
        return results


class LavisCaptioner(_LavisPart):
    """LAVIS's ``blip_caption``, as few-shot PnP-VQA asks it. Implements :class:`codevqa.models.protocols.Captioner`."""

    def __init__(
        self, process: LavisProcess, name: str, *, min_length: int = 10, max_length: int = 20, top_k: int = 50
    ) -> None:
        super().__init__(process, name)
        self._lengths = min_length, max_length
        self._top_k = top_k

    @classmethod
    def from_pretrained(
        cls, name: str, *, min_length: int = 10, max_length: int = 20, top_k: int = 50, **options: Unpack[LavisOptions]
    ) -> LavisCaptioner:
        """Starts LAVIS with a captioner.

        Args:
            name: LAVIS's model type, "base_coco" or "large_coco", which it fetches; or a checkpoint of LAVIS,
                ``FILE.pth``.
            min_length: Fewest tokens of a caption, the prompt's included.
            max_length: Most tokens, the prompt's included.
            top_k: Tokens drawn among.
            options: See :class:`LavisOptions`.

        Raises:
            ModelNotFoundError: there is no such file.
            SetupError: LAVIS is not installed, or cannot load that.
        """
        process = _process("captioner", name, ("base_coco", "large_coco"), {}, options)
        return cls(process, name, min_length=min_length, max_length=max_length, top_k=top_k)

    def caption(self, requests: Sequence[CaptionRequest]) -> list[str]:
        """Returns one caption a request, without the prompt; one without a seed is decoded greedily.

        Raises:
            ModelError: a request names patches that do not exist, or none; LAVIS failed, died, or took too long.
        """
        return [
            text.strip() for some in _batches(requests) for text in self._ask_captioner("caption", some)[0]["texts"]
        ]

    def token_ids(self, requests: Sequence[CaptionRequest]) -> list[list[int]]:
        """Returns the tokens of each caption after the prompt, as LAVIS wrote them."""
        return [ids.tolist() for some in _batches(requests) for ids in self._ask_captioner("caption", some)[1]]

    def prompt_logits(self, request: CaptionRequest) -> Map:
        """Returns the decoder's logits, (prompt tokens, vocabulary), after each token of the prompt."""
        return self._ask_captioner("prompt_logits", [request])[1][0]

    def _ask_captioner(self, do: str, requests: Sequence[CaptionRequest]) -> Message:
        for request in requests:
            check_patches(request, self.grid)
        pictures, places = _distinct_pictures([request.picture for request in requests])
        captions = [
            (request.picture.key, place, request.patches, request.seed, request.tokens or self._lengths)
            for place, request in zip(places, requests, strict=True)
        ]
        return self.process.ask(do, {"captions": captions, "top_k": self._top_k}, pictures)


def _process(
    part: str, name: str, kinds: Sequence[str], more: Mapping[str, Any], options: LavisOptions
) -> LavisProcess:
    file = Path(name).expanduser().absolute()
    if name not in kinds and not file.is_file():
        raise ModelNotFoundError(
            f"No LAVIS {part} {name!r}.", hint=f"Name {', '.join(kinds)}, or a checkpoint of LAVIS, FILE.pth."
        )
    python = python_of(options.get("folder"))
    if not python.is_file():
        raise SetupError(
            f"LAVIS's Python is not at {python}.", hint=f"Install LAVIS, or set {VARIABLE}: docs/reports/lavis.md."
        )
    beside = file.with_name("vocab.txt")
    model = {
        "part": part,
        "name": name if name in kinds else str(file),
        "vocabulary": options.get("vocabulary") or (str(beside) if name not in kinds and beside.is_file() else None),
        "device": options.get("device"),
        **more,
    }
    return LavisProcess(python, Path(__file__).with_name("worker.py"), model, limit=options.get("limit", 600.0))


def _batches(requests: Sequence[_R]) -> list[Sequence[_R]]:
    return [requests[begin : begin + _BATCH] for begin in range(0, len(requests), _BATCH)]


def _distinct_pictures(pictures: Sequence[Picture]) -> tuple[list[Array], list[int]]:
    """Each distinct picture once, and which of them is whose."""
    distinct = {picture.key: picture for picture in pictures}
    places = {key: place for place, key in enumerate(distinct)}
    return [np.asarray(picture.pixels) for picture in distinct.values()], [places[picture.key] for picture in pictures]
