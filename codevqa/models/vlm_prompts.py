"""What a vision-language model is given: prompts with pictures, each of them encoded once.

Most networks of transformers accept features in the place of pictures (``mm_encoder_outputs``), in the order of their
placeholders. So the features of each picture are kept, and what its processor makes of it besides pixels.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from cachetools import LRUCache
from torch.nn.functional import pad

from ..core.errors import ModelError, PromptTooLongError
from ..core.images import Picture
from .library_errors import first_line
from .protocols import LookRequest

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PictureFeatures:
    """What is kept of a picture."""

    features: Any  # as the vision tower and the projector give them
    processor_output: (
        tuple[Mapping[str, Any], str] | None
    )  # what the processor makes of it, without pixels; its placeholders


@dataclass(frozen=True)
class Row:
    """A request as the network takes it."""

    request: LookRequest
    tokens: Sequence[int]  # of the prompt, with a placeholder for each feature of a picture
    inputs: Mapping[str, torch.Tensor]  # what the processor made
    parts: Sequence[PictureFeatures]  # of each picture; none where the network encodes the pictures itself


class Prompts:
    """Makes the input of a network for requests.

    Args:
        network: a vision-language model of transformers.
        processor: its processor.
        name: what it is called in messages.
        pad: token that stands before shorter prompts of a batch.
        cache_bytes: bytes of features that are kept.
    """

    def __init__(self, network: Any, processor: Any, *, name: str, pad: int, cache_bytes: int) -> None:
        self.name = name
        self._network, self._processor, self._pad = network, processor, pad
        added = processor.tokenizer.added_tokens_decoder.values()
        self._special = [token.content for token in added if token.special and len(token.content) > 1]
        self.context: int = getattr(network.config.get_text_config(), "max_position_embeddings", None) or 1 << 60
        self._encoder: Any = getattr(network.base_model, "get_image_features", None)
        accepted = inspect.signature(network.forward).parameters
        self._apart = self._encoder is not None and "mm_encoder_outputs" in accepted
        if not self._apart:
            _log.warning("%s accepts no features: it encodes a picture again for each question.", name)
        self._alike: bool | None = None
        """Whether several pictures are shown as each alone; the first prompt with several tells."""
        self.kept: LRUCache[str, PictureFeatures] = LRUCache(
            cache_bytes, getsizeof=lambda part: _feature_bytes(part.features)
        )
        self._known_outputs: Sequence[Any] = ()
        self._processor_output: Any = None
        if hasattr(processor, "_process_images"):
            self._process_images, processor._process_images = processor._process_images, self._process_once

    def read(self, request: LookRequest, seen: dict[str, PictureFeatures]) -> Row:
        """Returns a request with the features of its pictures; ``seen`` has those of this batch."""
        pictures = request.pictures
        parts = [self._part(picture, seen) for picture in pictures] if self._apart else []
        inputs = self._read(pictures, request.text, parts)
        tokens = inputs["input_ids"][0].tolist()
        if len(pictures) > 1 and parts and self._alike is None:
            self._alike = self._read(pictures, request.text)["input_ids"][0].tolist() == tokens
        # Features must be as many as their placeholders.
        features = sum(tensor.numel() // tensor.shape[-1] for part in parts for tensor in part.features.pooler_output)
        places = tokens.count(getattr(self._network.config, "image_token_id", None))
        if parts and (places != features or (len(pictures) > 1 and not self._alike)):
            parts, inputs = [], self._read(pictures, request.text)
            tokens = inputs["input_ids"][0].tolist()
        if len(tokens) >= self.context:
            shown = f"{len(tokens)} tokens of a prompt with {len(pictures)} pictures: its context is {self.context}"
            raise PromptTooLongError(
                f"{self.name} has no room for {shown}.", hint="Ask about fewer pictures, or shorter."
            )
        return Row(request, tokens, inputs, parts)

    def count(self, request: LookRequest) -> int:
        """Returns how many tokens a request takes, those of its pictures included."""
        return int(self._read(request.pictures, request.text)["input_ids"].shape[1])

    def _part(self, picture: Picture, seen: dict[str, PictureFeatures]) -> PictureFeatures:
        """Returns what is kept of a picture; one that is new is encoded."""
        part = seen.get(picture.key) or self.kept.get(picture.key)
        if part is None:
            self._processor_output = None
            inputs = self._read([picture], "")
            takes = inputs.keys() & inspect.signature(self._encoder).parameters
            output = self._encoder(**{key: self._to_device(inputs[key]) for key in takes}, return_dict=True)
            # No text model reads the rest.
            fields = {key: output[key] for key in ("pooler_output", "deepstack_features") if key in output}
            part = PictureFeatures(type(output)(**fields), self._processor_output)
            if _feature_bytes(part.features) <= self.kept.maxsize:
                self.kept[picture.key] = part
        seen[picture.key] = part
        return part

    def _process_once(self, images: Any, **options: Any) -> tuple[Any, Sequence[str]]:
        """Does the processor's work on pictures, unless all are known: it can take longer than the network's."""
        if self._known_outputs:
            several = [data for data, _ in self._known_outputs]
            return {key: _cat([data[key] for data in several]) for key in several[0]}, [
                text for _, text in self._known_outputs
            ]
        inputs, texts = self._process_images(images, **options)
        self._processor_output = {key: value for key, value in inputs.items() if not key.startswith("pixel_")}, texts[0]
        return inputs, texts

    def _read(
        self, pictures: Sequence[Picture], text: str, parts: Sequence[PictureFeatures] = ()
    ) -> dict[str, torch.Tensor]:
        """Returns the network's input for one prompt, without pixels where all pictures are known."""
        self._known_outputs = (
            [part.processor_output for part in parts] if all(part.processor_output for part in parts) else ()
        )
        for token in self._special:  # a question may say <image>, and means the word
            text = text.replace(token, f"{token[0]} {token[1:]}")
        content: list[dict[str, Any]] = [{"type": "image", "image": picture.pixels} for picture in pictures]
        turn = {"role": "user", "content": [*content, {"type": "text", "text": text}]}
        options = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "return_tensors": "pt"}
        try:
            inputs = self._processor.apply_chat_template([turn], **options)
        except (ValueError, TypeError, LookupError, RuntimeError) as error:
            raise ModelError(f"{self.name} cannot be shown {len(pictures)} pictures: {first_line(error)}.") from error
        finally:
            self._known_outputs = ()
        return {key: value for key, value in inputs.items() if isinstance(value, torch.Tensor)}

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._network.device, self._network.dtype if tensor.is_floating_point() else tensor.dtype)

    def batch(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Returns rows as one input, padded on the left. Those that have no features are of one request."""
        longest = max(len(row.tokens) for row in rows)
        batch: dict[str, Any] = {}
        for key, first in rows[0].inputs.items():
            if key.startswith("pixel_") and rows[0].parts:
                continue
            several = [row.inputs[key] for row in rows]
            if first.shape == (1, len(rows[0].tokens)):
                value = self._pad if key == "input_ids" else 0
                several = [pad(tensor, (longest - tensor.shape[1], 0), value=value) for tensor in several]
            batch[key] = self._to_device(torch.cat(several))
        if rows[0].parts:
            batch["mm_encoder_outputs"] = {
                "image": _join_features([part.features for row in rows for part in row.parts])
            }
        return batch


def _feature_bytes(part: Any) -> int:
    """Returns what the features of a picture, or of some, take in memory."""
    several = part.values() if isinstance(part, Mapping) else part
    return part.nbytes if isinstance(part, torch.Tensor) else sum(map(_feature_bytes, several))


def _cat(several: Sequence[Any]) -> Any:
    return (
        torch.cat(list(several))
        if isinstance(several[0], torch.Tensor)
        else [feature for own in several for feature in own]
    )


def _join_features(parts: Sequence[Any]) -> Any:
    """Returns the features of several pictures as the network would give them together."""
    fields = {"pooler_output": _cat([part.pooler_output for part in parts])}
    if "deepstack_features" in parts[0]:  # of each depth, each picture's
        depths = zip(*(part["deepstack_features"] for part in parts), strict=True)
        fields["deepstack_features"] = [_cat(depth) for depth in depths]
    return type(parts[0])(**fields)
