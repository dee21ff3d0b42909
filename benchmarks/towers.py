"""How near the vision towers and GradCAM come to what the hardware allows, with random weights of the released sizes.

    python -m benchmarks.towers [tiny|base|large] [--device cpu|cuda] [--pictures N]

Prints, in one run: how far the fast forward is from transformers' own; pictures a second of one tower by batch size,
beside transformers' own forward and the matrix rate measured here; the same from fresh 640 x 480 pictures, reading and
resizing included; (picture, text) pairs a second of GradCAM; and whether running out of memory halves the batch.

The roofline: a picture costs ``2 * weights * tokens`` plus ``4 * tokens^2 * width`` a block for attention, which is
0.38 TFLOP for ViT-L/16 at 384 pixels.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as PILImage
from transformers import BertTokenizer, BlipConfig, BlipForImageTextRetrieval
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from codevqa.core.images import Picture, load_picture
from codevqa.models.base import MatchRequest
from codevqa.models.blip.checkpoint import Checkpoint
from codevqa.models.blip.choice import vision_encoder
from codevqa.models.blip.fast.text_encoder import FastTextEncoder
from codevqa.models.blip.forwards import VisionEncoder
from codevqa.models.blip.matcher import BlipMatcher
from codevqa.models.blip.picture_input import PictureReader
from codevqa.models.cuda_graphs import enabled

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4},
    "base": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    "large": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
}
WORDS = ["is", "there", "a", "red", "dog", "to", "the", "left", "of", "bench"]


def checkpoint(size: str, device: torch.device, dtype: torch.dtype, folder: Path) -> Checkpoint:
    """Returns a random matcher, the same for every precision."""
    torch.manual_seed(0)  # on the device: its generator is another, and faster, than the CPU's
    pixels = 64 if size == "tiny" else 384
    text = {"num_attention_heads": 12, "num_hidden_layers": 12, "initializer_range": 0.1}
    vision = SIZES[size] | {"image_size": pixels, "layer_norm_eps": 1e-6}
    config = BlipConfig(vision_config=vision, text_config=text)
    with device:
        model = BlipForImageTextRetrieval(config).to(dtype).eval().requires_grad_(False)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    processor = BlipImageProcessorPil(size={"height": pixels, "width": pixels})
    tokenizer = BertTokenizer(vocab=str(vocabulary))
    return Checkpoint(size, model, tokenizer, processor, device, dtype, pixels // 16, 30_522, 30_523)


def flop(config: Any) -> float:
    """Floating-point operations of one picture through one tower."""
    tokens = (config.image_size // config.patch_size) ** 2 + 1
    width, inner = config.hidden_size, config.intermediate_size
    block = 2 * tokens * (4 * width**2 + 2 * width * inner) + 4 * tokens**2 * width
    return float(config.num_hidden_layers * block + 2 * tokens * 3 * config.patch_size**2 * width)


def seconds(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Seconds of one run, the GPU's work included; warmed up."""
    for _ in range(2):
        run()
    _wait(device)
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    _wait(device)
    return (time.perf_counter() - start) / repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def matrix_rate(device: torch.device, dtype: torch.dtype, side: int) -> float:
    """TFLOP/s of a large matrix product of random numbers: the roofline."""
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 / seconds(lambda: left @ right, device, 5) / 1e12


def photos(count: int, generator: np.random.Generator) -> list[Picture]:
    """Returns pictures of 640 x 480, each unlike the others."""
    noise = generator.integers(0, 256, (count, 480, 640, 3), dtype=np.uint8)
    return [load_picture(PILImage.fromarray(pixels)) for pixels in noise]


def distances(size: str, device: torch.device, dtype: torch.dtype, folder: Path) -> None:
    """Prints how far the features are from transformers' float32, in norm: ours and theirs."""
    pictures = photos(5, np.random.default_rng(1))
    exact = checkpoint(size, device, torch.float32, folder)
    batch = exact.processor(images=[picture.pixels for picture in pictures], return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        expected = exact.model.vision_model(pixel_values=batch.to(device)).last_hidden_state
    for precision in dict.fromkeys((torch.float32, dtype)):
        at = checkpoint(size, device, precision, folder)
        reader = PictureReader(at.processor, device, precision)
        plain, fast = (vision_encoder(at, fast=fast) for fast in (False, True))
        pixels = reader.read(pictures)
        small = torch.cat([fast(pixels[:1]).clone(), fast(pixels[1:4]).clone(), fast(pixels[4:])])
        found = (plain(pixels), fast(pixels).clone(), small)
        apart = [float((one.float() - expected).norm() / expected.norm()) for one in found]
        print(
            f"{str(precision)[6:]}: from transformers' float32: theirs {apart[0]:.1e}, ours {apart[1]:.1e}, "
            f"in small batches {apart[2]:.1e}"
        )


def towers(at: Checkpoint, batches: list[int], roof: float, repeats: int) -> None:
    """Prints pictures a second by batch size."""
    reader = PictureReader(at.processor, at.device, at.dtype)
    plain, fast = (vision_encoder(at, fast=fast) for fast in (False, True))
    work = flop(at.model.vision_model.config) / 1e12

    def measure(name: str, encoder: VisionEncoder, rows: int, repeats: int) -> None:
        pixels = torch.randint(0, 256, (rows, reader.size, reader.size, 3), dtype=torch.uint8, device=at.device)
        _rate(f"{name}, batch {rows}", rows, seconds(lambda: encoder(pixels), at.device, repeats), work, roof)

    for rows in batches:
        measure("ours", fast, rows, repeats)
    measure("transformers", plain, batches[-1], max(1, repeats // 3))


def _rate(name: str, rows: int, took: float, work: float, roof: float) -> None:
    rate = rows * work / took
    print(
        f"{name:28} {1000 * took / rows:9.3f} ms a picture {rate:8.2f} TFLOP/s {100 * rate / roof:6.1f} % of the "
        f"matrix rate {100 * rate / 789:6.1f} % of 789"
    )


def end_to_end(matcher: BlipMatcher, count: int) -> None:
    """Prints what a fresh picture costs with reading, resizing and copying; and with that done by the other tower."""
    work = flop(matcher._at.model.vision_model.config) / 1e12
    for name in ("warm-up", "fresh 640 x 480"):
        pictures = photos(count, np.random.default_rng(len(name)))
        start = time.perf_counter()
        matcher._vision.features(pictures)
        _wait(matcher._at.device)
        _rate(name, count, time.perf_counter() - start, work, 789)
    matcher._vision._kept.clear()
    start = time.perf_counter()
    matcher._vision.features(pictures[-64:])
    _wait(matcher._at.device)
    _rate("already resized", len(pictures[-64:]), time.perf_counter() - start, work, 789)


def gradcam(matcher: BlipMatcher, pairs: int, repeats: int) -> None:
    """Prints pairs a second on pictures already encoded, by how many texts each picture has and by the way chosen."""
    generator = np.random.default_rng(3)
    pictures = photos(pairs, generator)
    texts = [" ".join(generator.permutation(WORDS)) for _ in range(pairs)]
    matcher._vision.features(pictures)
    chosen = FastTextEncoder.absorbs
    for rows, each in ((1, 1), (8, 1), (pairs, 1), (pairs, 4), (pairs, 8), (pairs, pairs)):
        requests = [MatchRequest(pictures[row // each], texts[row]) for row in range(rows)]
        found = []
        for way in (chosen, lambda *_: True, lambda *_: False):
            FastTextEncoder.absorbs = way  # type: ignore[method-assign]
            took = seconds(lambda requests=requests: matcher.match(requests), matcher._at.device, repeats)  # type: ignore[misc]
            found.append(f"{1000 * took / rows:8.3f}")
        print(
            f"GradCAM, {rows:3d} pairs, {each:3d} a picture: {found[0]} ms a pair "
            f"(absorbed {found[1]}, projected {found[2]})"
        )
    FastTextEncoder.absorbs = chosen  # type: ignore[method-assign]


@contextlib.contextmanager
def little_memory(device: torch.device, more: int) -> Iterator[None]:
    """Leaves so many bytes of the GPU beyond what is in use."""
    torch.cuda.empty_cache()
    with torch.cuda.device(device):  # a limit is set for a device by its number
        device = torch.device("cuda", torch.cuda.current_device())
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated(device) + more) / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def starved(at: Checkpoint) -> None:
    """Prints what a batch far too large for the memory left becomes."""
    matcher = BlipMatcher(at, max_batch=64, feature_cache_bytes=2**30)
    pictures = photos(64, np.random.default_rng(4))
    with little_memory(at.device, 500 * 2**20):
        matcher._vision.features(pictures)
    print(f"64 pictures in 500 MiB: {matcher.stats.vision_forwards} encoded in {matcher.stats.vision_batches} batches")


def main() -> None:
    """Parses the arguments and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", default="large", choices=sorted(SIZES))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pictures", type=int, default=192, help="fresh pictures, end to end")
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    device = torch.device(options.device)
    gpu = device.type == "cuda"
    dtype = torch.bfloat16 if gpu else torch.float32
    roof = matrix_rate(device, dtype, 8192 if gpu else 1024)
    print(
        f"BLIP {options.size}, {device}, PyTorch {torch.__version__}, {str(dtype)[6:]}, matrix rate {roof:.1f} TFLOP/s"
        f", CUDA graphs {'on' if enabled(device) else 'off'}"
    )
    with tempfile.TemporaryDirectory() as folder:
        distances(options.size, device, dtype, Path(folder))
        at = checkpoint(options.size, device, dtype, Path(folder))
    print(f"{flop(at.model.vision_model.config) / 1e12:.3f} TFLOP a picture")
    towers(at, [1, 2, 4, 8, 16, 32, 64] if gpu else [1, 8], roof, options.repeats)
    matcher = BlipMatcher(at, feature_cache_bytes=2**32)
    end_to_end(matcher, options.pictures)
    gradcam(matcher, options.pairs, options.repeats)
    if gpu:
        starved(at)


if __name__ == "__main__":
    main()
