"""Pictures compared with texts by CLIP or SigLIP: the cosine of two embeddings, which is what they were trained on.

CLIP is Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (2021). SigLIP is Zhai
et al., "Sigmoid Loss for Language Image Pre-Training" (2023), and SigLIP 2 its successor of fixed picture size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from cachetools import LRUCache

from ..core.errors import SetupError
from ..core.images import Picture
from .blip.picture_input import run_in_batches
from .feature_store import FeatureStores
from .gpu_lock import lock_on
from .protocols import SimilarityRequest
from .weights import load_network, load_pretrained, precision_text

_PADDING: Mapping[str, str] = {"clip": "longest", "siglip": "max_length"}
"""How each kind of network was trained to have its texts padded. SigLIP reads the last of a full row."""
_KEPT = 4096
"""Pictures whose embeddings are kept: 4 kB each at most."""


class ContrastiveMatcher:
    """CLIP or SigLIP. Implements :class:`codevqa.models.protocols.Contrast`.

    Args:
        network: one of those that :meth:`from_pretrained` loads.
        processor: makes its input of pictures and texts.
        name: id it reports.
    """

    def __init__(self, network: Any, processor: Any, *, name: str) -> None:
        self.name = name
        self.computes = precision_text(network.dtype, network.device)
        """Precision and device."""
        self.batch = 64 if network.device.type == "cuda" else 8
        self.turn = lock_on(network.device, network, processor)
        self._network, self._processor = network, processor
        self._padding = _PADDING[network.config.model_type]
        self._length = network.config.text_config.max_position_embeddings
        self._kept: LRUCache[str, torch.Tensor] = LRUCache(_KEPT)
        config = network.config
        width = config.vision_config.hidden_size if config.model_type == "siglip" else config.projection_dim
        self._stores = FeatureStores(network, processor.image_processor.to_json_string(), small=True, shape=(width,))

    @classmethod
    def from_pretrained(cls, name: str, *, device: str | None = None, dtype: str | None = None) -> ContrastiveMatcher:
        """Loads a matcher, e.g. ``openai/clip-vit-base-patch32`` or ``google/siglip2-base-patch16-224``.

        The first SigLIP's own tokenizer needs sentencepiece, which is not installed with this; SigLIP 2's does not.

        Args:
            name: folder or hub id.
            device: where it runs; None takes a GPU if there is one.
            dtype: precision of the weights; None takes bfloat16 on a GPU and float32 elsewhere.

        Raises:
            ModelNotFoundError: it is not here, not complete, or neither CLIP nor SigLIP.
            SetupError: the device, the precision or an option cannot be had.
        """
        from transformers import AutoConfig, AutoModel, AutoProcessor

        what = "the matcher"
        kind = load_pretrained(AutoConfig, what, name).model_type
        if kind not in _PADDING:
            raise SetupError(f"{name} is a {kind!r} network.", hint=f"These compare: {', '.join(_PADDING)}.")
        network = load_network(AutoModel, what, name, device, dtype)
        # Pillow resizes the same whether or not torchvision is there.
        return cls(network, load_pretrained(AutoProcessor, what, name, backend="pil"), name=name)

    def similarity(self, requests: Sequence[SimilarityRequest]) -> list[float]:
        """Returns the cosine, -1..1, of the embeddings of each pair. A text that is too long is cut off.

        Raises:
            ModelError: the network failed.
        """
        texts = list(dict.fromkeys(request.text for request in requests))
        pictures = {request.picture.key: request.picture for request in requests}
        with self.turn:
            # Beside the cache, which may be smaller than one call's pictures.
            seen = {key: self._kept[key] for key in pictures if key in self._kept}
            seen |= self._stores.read(picture for key, picture in pictures.items() if key not in seen)
            new = [picture for key, picture in pictures.items() if key not in seen]
            for picture, row in zip(new, self._run(self._of_pictures, new), strict=True):
                seen[picture.key] = self._kept[picture.key] = row
            self._stores.add(new, seen)
            read = dict(zip(texts, self._run(self._of_texts, texts), strict=True))
        return [float(seen[request.picture.key] @ read[request.text]) for request in requests]

    def keep_features(self) -> None:
        """Writes to disk what embeddings of collections are still in memory alone."""
        self._stores.save()

    def _run(self, embed: Any, rows: Sequence[Any]) -> list[torch.Tensor]:
        return run_in_batches(embed, rows, self.batch, self._kept.clear, what="The matcher")

    @torch.inference_mode()
    def _of_pictures(self, pictures: Sequence[Picture]) -> list[torch.Tensor]:
        inputs = self._processor.image_processor(images=[picture.pixels for picture in pictures], return_tensors="pt")
        pixels = inputs["pixel_values"].to(self._network.device, self._network.dtype)
        return _rows(self._network.get_image_features(pixel_values=pixels))

    @torch.inference_mode()
    def _of_texts(self, texts: Sequence[str]) -> list[torch.Tensor]:
        inputs = self._processor.tokenizer(
            [text.lower() for text in texts],  # as all were trained; SigLIP 2's tokenizer does not see to it
            padding=self._padding,
            padding_side="right",  # a tokenizer of Gemma's would pad on the left
            truncation=True,
            max_length=self._length,
            return_tensors="pt",
        ).to(self._network.device)
        # SigLIP was trained without a mask.
        masked = {"attention_mask": inputs["attention_mask"]} if self._padding == "longest" else {}
        return _rows(self._network.get_text_features(input_ids=inputs["input_ids"], **masked))


def _rows(output: Any) -> list[torch.Tensor]:
    """Returns each row of what a network pools, at length 1, on the CPU."""
    return list(torch.nn.functional.normalize(output.pooler_output.float(), dim=-1).cpu())
