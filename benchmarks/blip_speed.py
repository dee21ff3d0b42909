"""Times the BLIP back end at the real sizes, with random weights, which take as long as trained ones.

Usage: ``python benchmarks/blip_speed.py [base|large] [--device cpu|cuda] [--pictures N] [--texts N] [--captions N]``

Prints seconds and rows a second of: a fresh picture through the vision tower, one text's GradCAM and ITM on a picture
already seen, an ITC score likewise, and a sampled caption of 20 patches.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as PILImage
from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipForImageTextRetrieval
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from codevqa.core.images import load_picture
from codevqa.models.base import CaptionRequest, MatchRequest, SimilarityRequest
from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.blip.checkpoint import Checkpoint

VISION = {
    "base": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    "large": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
}
PIECES = 30_522
WORDS = ["is", "there", "a", "red", "dog", "to", "the", "left", "of", "bench"]


def checkpoint(architecture: Any, size: str, device: torch.device, vocabulary: Path) -> Checkpoint:
    """Returns a random network of a released size, as loading one would."""
    config = BlipConfig(vision_config=VISION[size], text_config={"num_attention_heads": 12, "initializer_range": 0.2})
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    model = architecture(config).to(device=device, dtype=dtype).eval().requires_grad_(False)
    tokenizer = BertTokenizer(vocab=str(vocabulary))
    return Checkpoint(size, model, tokenizer, BlipImageProcessorPil(), device, dtype, 24, PIECES, PIECES + 1)


def timed(name: str, rows: Sequence[Any], run: Callable[[Sequence[Any]], object]) -> None:
    """Prints how long one call takes; it ends with its results on the CPU, so that the GPU has finished."""
    start = time.perf_counter()
    run(rows)
    seconds = time.perf_counter() - start
    print(f"{name:34}{len(rows):5d} rows {seconds:8.3f} s {1000 * seconds / len(rows):9.2f} ms a row")


def main() -> None:
    """Parses the arguments and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", default="base", choices=sorted(VISION))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pictures", type=int, default=4)
    parser.add_argument("--texts", type=int, default=8, help="texts on each picture")
    parser.add_argument("--captions", type=int, default=8, help="captions of each picture")
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    device = torch.device(options.device)
    generator = np.random.default_rng(0)

    def fresh(count: int) -> list[Any]:
        noise = generator.integers(0, 256, (count, 384, 384, 3), dtype=np.uint8)
        return [load_picture(PILImage.fromarray(pixels)) for pixels in noise]

    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.txt"
        vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "picture"]) + "\n")
        matcher = BlipMatcher(
            checkpoint(BlipForImageTextRetrieval, options.size, device, vocabulary),
            max_batch=options.batch,
            feature_cache_bytes=2**32,
        )
        captioner = BlipCaptioner(
            checkpoint(BlipForConditionalGeneration, options.size, device, vocabulary),
            max_batch=options.batch,
            feature_cache_bytes=2**32,
        )
    texts = [" ".join(generator.permutation(WORDS)) for _ in range(options.texts)]
    for turn in ("warm-up", "measured"):
        pictures = fresh(options.pictures)
        print(f"{turn}: BLIP {options.size}, {device}, batches of {options.batch}")
        timed("fresh picture, ITC", [SimilarityRequest(picture, texts[0]) for picture in pictures], matcher.similarity)
        timed("seen picture, ITC", [SimilarityRequest(p, t) for p in pictures for t in texts], matcher.similarity)
        timed("seen picture, GradCAM and ITM", [MatchRequest(p, t) for p in pictures for t in texts], matcher.match)
        timed(
            "fresh picture, one caption", [CaptionRequest(picture, (0,), 0) for picture in pictures], captioner.caption
        )
        wanted = [
            CaptionRequest(picture, tuple(sorted(generator.permutation(576)[:20].tolist())), seed)
            for picture in pictures
            for seed in range(options.captions)
        ]
        timed("seen picture, caption of 20 patches", wanted, captioner.caption)


if __name__ == "__main__":
    main()
