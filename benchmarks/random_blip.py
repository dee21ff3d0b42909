"""BLIP at released sizes with random weights, which take as long as trained ones."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from reference import Network
from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipForImageTextRetrieval
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from codevqa.prompts import load_prompt_set as load_prompts

PIECES = 30_522
VISION: dict[str, dict[str, int]] = {
    "tiny": {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 96,
    },
    "base": {},
    "large": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
}
TEXT: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 9, "num_attention_heads": 4},
    "base": {"num_attention_heads": 12},
    "large": {"num_attention_heads": 12},
}
EXAMPLES = load_prompts("gqa").examples


def networks(size: str, device: str) -> tuple[Network, Network]:
    """Returns a matcher's and a captioner's network of a size, in float32, as transformers loads them.

    Args:
        size: ``base`` and ``large`` are BLIP's; ``tiny`` is for trying a benchmark out.
        device: where they go.
    """
    torch.manual_seed(0)
    place = torch.device(device)
    text: dict[str, Any] = {**TEXT[size], "initializer_range": 0.06}
    models = []
    with lend_vocabulary() as folder:
        tokenizer = BertTokenizer(vocab=str(folder / "vocab.txt"))
    for architecture in (BlipForImageTextRetrieval, BlipForConditionalGeneration):
        config = BlipConfig(vision_config=VISION[size], text_config=text)
        with place:
            model = architecture(config).eval().requires_grad_(False)
        side, patch = int(config.vision_config.image_size), int(config.vision_config.patch_size)
        processor = BlipImageProcessorPil(size={"height": side, "width": side})
        models.append(Network(model.to(place), tokenizer, processor, side // patch, PIECES, PIECES + 1, place))
    return models[0], models[1]


@contextmanager
def lend_vocabulary() -> Iterator[Path]:
    """Lends a folder with a whole vocabulary, so that every token that random weights choose is a word."""
    words = sorted(
        {
            word
            for example in EXAMPLES
            for word in re.findall(r"[a-z]+", f"{example.question} {example.program}".lower())
        }
    )
    pieces = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "picture", "of", "?", *words]))
    pieces += [f"word{number}" for number in range(PIECES - len(pieces))]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vocab.txt").write_text("\n".join(pieces) + "\n")
        yield Path(folder)


def save_random_blip(size: str, work: Path) -> tuple[str, str]:
    """Writes the checkpoints of a matcher and a captioner; returns their folders."""
    for name, network in zip(("matcher", "captioner"), networks(size, "cpu"), strict=True):
        network.tokenizer.add_special_tokens({"bos_token": "[DEC]", "additional_special_tokens": ["[ENC]"]})
        for part in (network.model, network.tokenizer, network.processor):
            part.save_pretrained(work / name)
    return str(work / "matcher"), str(work / "captioner")
