"""Objects found by name: Grounding DINO, which the paper's release counts with, OWLv2, or another zero-shot detector.

As in the release a box is kept where its best token scores above 0.3, and nothing else is sorted out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..core.errors import SetupError
from .blip.picture_input import run_in_batches
from .gpu_lock import lock_on
from .protocols import Box, DetectRequest
from .weights import load_network, load_pretrained, precision_text

_ASKED: Mapping[str, str] = {
    "grounding-dino": "{}.",
    "mm-grounding-dino": "{}.",
    "owlv2": "a photo of a {}",
    "owlvit": "a photo of a {}",
}
"""How each kind of network is asked for a phrase."""


class ZeroShotDetector:
    """A detector of transformers that is asked in words. Implements :class:`codevqa.models.protocols.Detector`.

    Args:
        network: one of those that :meth:`from_pretrained` loads.
        processor: makes its input of pictures and texts, and boxes of its output.
        name: id it reports.
        threshold: scores of boxes are above this.
        max_batch: pictures at a time; None takes 8 on a GPU, and one elsewhere.
    """

    def __init__(
        self, network: Any, processor: Any, *, name: str, threshold: float = 0.3, max_batch: int | None = None
    ) -> None:
        kind = network.config.model_type
        if kind not in _ASKED:
            raise SetupError(f"{name} is a {kind!r} network.", hint=f"Detectors are: {', '.join(_ASKED)}.")
        if not 0 <= threshold < 1 or (max_batch is not None and max_batch < 1):
            raise SetupError(
                f"A detector has no threshold {threshold} with batches of {max_batch}.",
                hint="The threshold is from 0 to 1, a batch at least 1.",
            )
        self.name = name
        self.computes = precision_text(network.dtype, network.device)
        """Precision and device."""
        self.batch = max_batch or (8 if network.device.type == "cuda" else 1)
        self._network, self._processor = network, processor
        self.turn = lock_on(network.device, network, processor)
        self._asked = _ASKED[kind]
        self._threshold = threshold

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        threshold: float = 0.3,
        max_batch: int | None = None,
    ) -> ZeroShotDetector:
        """Loads a detector, e.g. ``IDEA-Research/grounding-dino-base`` or ``google/owlv2-base-patch16-ensemble``.

        Args:
            name: folder or hub id.
            device: where it runs; None takes a GPU if there is one.
            dtype: precision of the weights; None takes float32, as the release does.
            threshold: scores of boxes are above this.
            max_batch: pictures at a time; None takes 8 on a GPU, and one elsewhere.

        Raises:
            ModelNotFoundError: it is not here, not complete, or no zero-shot detector.
            SetupError: the device, the precision or an option cannot be had.
        """
        from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

        what = "the detector"
        network = load_network(AutoModelForZeroShotObjectDetection, what, name, device, dtype or "float32")
        # Pillow resizes the same whether or not torchvision is there.
        processor = load_pretrained(AutoProcessor, what, name, backend="pil")
        return cls(network, processor, name=name, threshold=threshold, max_batch=max_batch)

    def detect(self, requests: Sequence[DetectRequest]) -> list[tuple[Box, ...]]:
        """Returns the boxes found for each request, best first.

        Raises:
            ModelError: the network failed.
        """
        detections: list[tuple[Box, ...]] = [()] * len(requests)
        sizes: dict[tuple[int, int], list[int]] = {}
        for place, request in enumerate(requests):
            # Pictures of other sizes would be padded to one, and what is found depend on company.
            sizes.setdefault(request.picture.size, []).append(place)
        with self.turn:
            for places in sizes.values():
                several = [requests[place] for place in places]
                boxes = run_in_batches(self._boxes, several, self.batch, lambda: None, what="The detector")
                for place, own in zip(places, boxes, strict=True):
                    detections[place] = own
        return detections

    @torch.inference_mode()
    def _boxes(self, requests: Sequence[DetectRequest]) -> list[tuple[Box, ...]]:
        pictures = [request.picture.pixels for request in requests]
        texts = [self._asked.format(" ".join(request.phrase.lower().split()).rstrip(".")) for request in requests]
        network = self._network
        inputs = self._processor(
            images=pictures,
            text=texts,
            padding="longest",
            truncation=True,
            max_length=getattr(network.config, "max_text_len", None),  # None is the tokenizer's own
            return_tensors="pt",
        ).to(network.device)
        output = network(**{**inputs, "pixel_values": inputs["pixel_values"].to(network.dtype)})
        detections = self._processor.image_processor.post_process_object_detection(
            output, self._threshold, [(picture.height, picture.width) for picture in pictures]
        )
        return [_sort_boxes(detection["scores"], detection["boxes"]) for detection in detections]


def _sort_boxes(scores: torch.Tensor, boxes: torch.Tensor) -> tuple[Box, ...]:
    order = scores.argsort(descending=True, stable=True)
    rows = zip(boxes[order].tolist(), scores[order].tolist(), strict=True)
    return tuple(Box(left, top, right, bottom, score) for (left, top, right, bottom), score in rows)
