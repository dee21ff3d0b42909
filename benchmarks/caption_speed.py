"""Captions a second: the library's own decoding against transformers' ``generate`` over the same weights, in one run.

    python benchmarks/caption_speed.py                     # the embedded captioner
    python benchmarks/caption_speed.py tiny                # a random network, to see that it runs
    python benchmarks/caption_speed.py large --device cuda # BLIP-large sizes, random weights

Each row shows milliseconds a caption, both ways, for so many captions of 20 patches at once; features of the pictures
are there already. Both draw the same captions with the same numbers: how many were the same is shown too (all, in
float32).
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image as PILImage
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import (
    BertTokenizer,
    BlipConfig,
    BlipForConditionalGeneration,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from codevqa.core.images import load_picture
from codevqa.models.base import CaptionRequest
from codevqa.models.blip import BlipCaptioner
from codevqa.models.blip.checkpoint import Checkpoint, load_checkpoint
from codevqa.models.cuda_graphs import enabled
from codevqa.presets.assembly import resolve
from codevqa.presets.presets import preset

VISION = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "base": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    "large": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
}
BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "math": SDPBackend.MATH,
}
PIECES = 30_522
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "picture", "of", "red", "dog"]


class SeededTopK(LogitsProcessor):  # type: ignore[misc]
    """Samples from the top-k softmax inside greedy decoding, each row with the numbers of its seed."""

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
        shares = logits.masked_fill(logits < least, -torch.inf).softmax(-1)
        below = shares.cumsum(-1)
        number = self._numbers[:, input_ids.shape[1] - self._prompt_length, None] * below[:, -1:]
        token = (below > number).int().argmax(-1, keepdim=True)
        result = scores.clone()
        result[rows] = torch.full_like(result[rows], -torch.inf).scatter(-1, token, 0.0)
        return result


@torch.inference_mode()
def generate(captioner: BlipCaptioner, requests: Sequence[CaptionRequest]) -> list[list[int]]:
    """Returns the captions' tokens as transformers' ``generate`` writes them, all of equally many patches."""
    rules, at = captioner._rules, captioner._at
    features = captioner._vision.features([request.picture for request in requests])
    rows = [features[request.picture.key] for request in requests]
    if requests[0].patches is not None:
        chosen = torch.tensor([sorted(request.patches or ()) for request in requests], device=at.device) + 1
        rows = [row[index] for row, index in zip(rows, chosen, strict=True)]
    prompts = torch.tensor([rules.prompt] * len(requests), device=at.device)
    seeds = [request.seed for request in requests]
    sampler = SeededTopK(seeds, rules.steps, len(rules.prompt), rules.top_k, rules.temperature)
    made = at.model.text_decoder.generate(
        input_ids=prompts,
        attention_mask=torch.ones_like(prompts),
        encoder_hidden_states=torch.stack(rows),
        generation_config=GenerationConfig(
            max_length=rules.max_length,
            min_length=rules.min_length,
            do_sample=False,
            num_beams=1,
            eos_token_id=rules.end,
            pad_token_id=rules.pad,
        ),
        logits_processor=LogitsProcessorList([sampler]),
    )
    ids = cast("list[list[int]]", made[:, len(rules.prompt) :].tolist())
    # What follows the end pads the batch.
    return [row[: row.index(rules.end) + 1] if rules.end in row else row for row in ids]


def random_checkpoint(size: str, device: torch.device, dtype: torch.dtype = torch.float32) -> Checkpoint:
    """Returns a random captioner of a released size, or a tiny one, as loading one would."""
    text: dict[str, Any] = {"num_attention_heads": 12, "initializer_range": 0.2}
    vision: dict[str, Any] = dict(VISION[size])
    if size == "tiny":
        text |= {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        vision["image_size"] = 128
    torch.manual_seed(0)
    with device:
        model = BlipForConditionalGeneration(BlipConfig(vision_config=vision, text_config=text))
    model = model.to(device=device, dtype=dtype).eval().requires_grad_(False)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.txt"
        vocabulary.write_text("\n".join(WORDS) + "\n")
        tokenizer = BertTokenizer(vocab=str(vocabulary))
    side = int(model.config.vision_config.image_size)
    processor = BlipImageProcessorPil(size={"height": side, "width": side})
    return Checkpoint(size, model, tokenizer, processor, device, dtype, side // 16, PIECES, PIECES + 1)


def wanted(captioner: BlipCaptioner, count: int, pictures: int, generator: np.random.Generator) -> list[CaptionRequest]:
    """Returns captions to write of 20 patches each, of random pictures."""
    noise = generator.integers(0, 256, (pictures, 96, 96, 3), dtype=np.uint8)
    shown = [load_picture(PILImage.fromarray(pixels)) for pixels in noise]
    return [
        CaptionRequest(
            shown[place % pictures],
            tuple(sorted(generator.permutation(captioner.grid**2)[:20].tolist())),
            int(generator.integers(2**62)),
        )
        for place in range(count)
    ]


def seconds(run: Callable[[], object], repeats: int) -> float:
    """Returns the least seconds of a few runs; each ends with its results on the CPU."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    """Parses the arguments and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", default="mini", choices=["mini", *VISION])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, nargs="+", default=[7, 64])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", help="float32 on the CPU, bfloat16 on a GPU")
    parser.add_argument("--sdpa", choices=sorted(BACKENDS), help="attention kernels; PyTorch's choice if left out")
    parser.add_argument("--profile", action="store_true", help="what the time of the last batch goes into")
    options = parser.parse_args()
    device = torch.device(options.device)
    settings: dict[str, Any] = {"max_batch": max(options.rows), "feature_cache_bytes": 2**32}
    if options.size == "mini":
        embedded = preset("mini")
        folder = str(resolve(embedded.captioner.partition(":")[2]))
        network = load_checkpoint(folder, BlipForConditionalGeneration, device=options.device, dtype=options.dtype)
        settings |= embedded.options["captioner"]
    else:
        dtype = getattr(torch, options.dtype or ("float32" if device.type == "cpu" else "bfloat16"))
        network = random_checkpoint(options.size, device, dtype)
    captioner = BlipCaptioner(network, **settings)
    with sdpa_kernel(BACKENDS[options.sdpa]) if options.sdpa else contextlib.nullcontext():
        measure(captioner, options)


def measure(captioner: BlipCaptioner, options: argparse.Namespace) -> None:
    """Prints the table."""
    network = captioner._at
    generator = np.random.default_rng(0)
    about = f"BLIP {options.size}, {network.device}, {network.dtype}, {options.sdpa or 'default'} attention, "
    about += f"CUDA graphs {'on' if enabled(network.device) else 'off'}"
    print(f"{about}; milliseconds a caption of 20 patches")
    print(f"{'captions':>8}{'generate':>10}{'own':>10}{'ratio':>8}{'first call s':>14}  same captions")
    for rows in options.rows:
        requests = wanted(captioner, rows, max(1, rows // 8), generator)
        before = generate(captioner, requests)  # also warms up, and encodes the pictures
        start = time.perf_counter()
        after = captioner.token_ids(requests)
        first = time.perf_counter() - start
        old = seconds(lambda requests=requests: generate(captioner, requests), options.repeats)  # type: ignore[misc]
        new = seconds(lambda requests=requests: captioner.token_ids(requests), options.repeats)  # type: ignore[misc]
        same = sum(one == other for one, other in zip(before, after, strict=True))
        print(
            f"{rows:8}{1000 * old / rows:10.3f}{1000 * new / rows:10.3f}{old / new:8.2f}{first:14.2f}  {same}/{rows}",
            flush=True,
        )
    if options.profile:
        with torch.profiler.profile() as profile:
            captioner.token_ids(requests)
        order = "self_device_time_total" if network.device.type == "cuda" else "self_cpu_time_total"
        print(profile.key_averages().table(sort_by=order, row_limit=16, max_name_column_width=70))


if __name__ == "__main__":
    main()
