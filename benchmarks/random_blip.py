"""What the benchmarks ask: BLIP at released sizes with random weights, programs and answers that are replayed.

Random weights take as long as trained ones. Programs are those of the GQA bank, in GQA's proportions; the language
models cost nothing, so that what is measured is everything else.
"""

from __future__ import annotations

import copy
import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as PILImage
from reference import Network
from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipForImageTextRetrieval
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from codevqa import CodeVQA, Models, Settings, Writer, WriterSettings
from codevqa.core.images import Picture, load_picture
from codevqa.core.text import sentence_case
from codevqa.models.base import Completion, GenerationRequest, LanguageModel
from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.blip.checkpoint import Checkpoint
from codevqa.models.blip.picture_input import PictureSettings
from codevqa.models.blip.tokens import WordPieces
from codevqa.prompts import load as load_prompts

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
    made = []
    with vocabulary() as folder:
        tokenizer = BertTokenizer(vocab=str(folder / "vocab.txt"))
    for architecture in (BlipForImageTextRetrieval, BlipForConditionalGeneration):
        config = BlipConfig(vision_config=VISION[size], text_config=text)
        with place:
            model = architecture(config).eval().requires_grad_(False)
        side, patch = int(config.vision_config.image_size), int(config.vision_config.patch_size)
        processor = BlipImageProcessorPil(size={"height": side, "width": side})
        made.append(Network(model.to(place), tokenizer, processor, side // patch, PIECES, PIECES + 1, place))
    return made[0], made[1]


@contextmanager
def vocabulary() -> Iterator[Path]:
    """Lends a folder with a whole vocabulary, so that every token that random weights choose is a word."""
    words = sorted(
        {word for one in EXAMPLES for word in re.findall(r"[a-z]+", f"{one.question} {one.program}".lower())}
    )
    pieces = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "picture", "of", "?", *words]))
    pieces += [f"word{number}" for number in range(PIECES - len(pieces))]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vocab.txt").write_text("\n".join(pieces) + "\n")
        yield Path(folder)


def served(network: Network) -> Checkpoint:
    """Returns a copy as the library serves it: bfloat16 on a GPU, float32 elsewhere."""
    dtype = torch.bfloat16 if network.device.type == "cuda" else torch.float32
    with vocabulary() as folder:
        tokenizer = WordPieces(folder)
    pictures = PictureSettings(int(network.model.config.vision_config.image_size))
    about = (network.device, dtype, network.grid, network.dec_id, network.enc_id)
    return Checkpoint("random", copy.deepcopy(network.model).to(dtype), tokenizer, pictures, *about)


def fresh_pictures(count: int, seed: int) -> list[Picture]:
    """Returns pictures of noise, of the size of most of GQA's."""
    generator = np.random.default_rng(seed)
    return [
        load_picture(PILImage.fromarray(generator.integers(0, 256, (375, 500, 3), dtype=np.uint8)))
        for _ in range(count)
    ]


def questions(seed: int) -> Iterator[str]:
    """Yields the bank's questions in a shuffled order, over and over."""
    order = np.random.default_rng(seed)
    while True:
        for place in order.permutation(len(EXAMPLES)):
            yield EXAMPLES[int(place)].question


class ReplayedWriter:
    """A language model that knows the program of every question of the bank, at no cost."""

    name = "replayed"

    def __init__(self) -> None:
        self._programs = {sentence_case(example.question): example.program for example in EXAMPLES}

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Returns each question's program, after the line that opens the image."""
        return [self._one(request) for request in requests]

    def _one(self, request: GenerationRequest) -> Completion:
        header = str(request.prompt).rpartition("\n")[2]
        program = self._programs[header.partition(": ")[2]]
        return Completion(f'\nimg = open_image("Image1.jpg")\n{program}\n')


class ReplayedReader:
    """A language model that answers a reading prompt by its question alone, at no cost."""

    name = "replayed"

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Returns a number, a colour, or yes or no, as the question asks."""
        return [Completion(" " + self._one(str(request.prompt))) for request in requests]

    def _one(self, prompt: str) -> str:
        question = prompt[prompt.rindex("\nQ: ") + 4 : prompt.rindex("\nA:")].lower()
        pick = hashlib.sha256(question.encode()).digest()[0]
        if question.startswith("how many"):
            return str(pick % 5)
        if question.startswith(("is", "are", "do", "can", "has", "was")):
            return ("yes", "no")[pick % 2]
        return ("red", "wood", "table", "man", "left")[pick % 5]


def writer(model: LanguageModel) -> Writer:
    """Returns a writer of GQA programs: twelve fixed examples, as no retriever is measured."""
    # What random weights answer is of no kind: it is taken as it is.
    return Writer(model, load_prompts("gqa"), settings=WriterSettings(selection="fixed", fit=False))


def engine(matcher: Checkpoint, captioner: Checkpoint, *, at_once: int) -> CodeVQA:
    """Returns the library over two networks and replayed language models.

    Args:
        matcher: as :func:`served` returns it.
        captioner: likewise.
        at_once: questions under way at once.
    """
    keep = 4 * 2**30
    models = Models(
        ReplayedReader(),
        BlipMatcher(matcher, feature_cache_bytes=keep),
        BlipCaptioner(captioner, feature_cache_bytes=keep),
    )
    return CodeVQA(writer(ReplayedWriter()), models, Settings(workers=at_once))
