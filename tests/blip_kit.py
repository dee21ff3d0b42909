"""What transformers' own BLIP makes of a folder: the reference for ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tiny import noise_picture
from transformers import (
    BertTokenizer,
    BlipForConditionalGeneration,
    BlipForImageTextRetrieval,
    LogitsProcessor,
    LogitsProcessorList,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from codevqa.core.images import Picture
from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.protocols import CaptionRequest, MatchRequest

BLOCK = 1
PICTURES = [noise_picture(seed) for seed in range(5)]
TEXTS = ["a dog", "is there any yellow ball on the large car", "two cats in the park", "red", "the small tree"]
MATCHES = [MatchRequest(PICTURES[index * index % 4], TEXTS[index % 5]) for index in range(7)]
"""Several texts on some pictures, of several lengths."""
Numbers = npt.NDArray[Any]


def load(folder: str, **options: Any) -> BlipMatcher:
    return BlipMatcher.from_pretrained(folder, device="cpu", **{"block": BLOCK, **options})


def captioner(folder: str, **options: Any) -> BlipCaptioner:
    return BlipCaptioner.from_pretrained(folder, device="cpu", **options)


class SeededTopK(LogitsProcessor):  # type: ignore[misc]
    """Samples from the top-k softmax inside greedy decoding, each row that has a seed with the numbers of its seed."""

    def __init__(self, seeds: Sequence[int | None], opening: int, steps: int, top_k: int, temperature: float) -> None:
        self.rows = [row for row, seed in enumerate(seeds) if seed is not None]
        drawn = [np.random.Generator(np.random.PCG64(seed % 2**64)) for seed in seeds if seed is not None]
        self.numbers = [generator.random(steps) for generator in drawn]
        self.opening, self.top_k, self.temperature = opening, top_k, temperature

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns scores whose only finite entry, in rows with a seed, is the sampled token."""
        step, result = input_ids.shape[1] - self.opening, scores.clone()
        for row, numbers in zip(self.rows, self.numbers, strict=True):
            logits = scores[row].double() / self.temperature
            least = logits.topk(min(self.top_k, len(logits))).values[-1]
            below = logits.masked_fill(logits < least, -torch.inf).softmax(-1).cumsum(-1)
            result[row] = -torch.inf
            result[row, int((below > numbers[step] * below[-1]).int().argmax())] = 0.0
        return result


class Reference:
    """A folder's network as transformers loads and computes it, one request at a time."""

    def __init__(self, folder: str) -> None:
        captions = "Conditional" in (Path(folder) / "config.json").read_text()
        kind = BlipForConditionalGeneration if captions else BlipForImageTextRetrieval
        self.model: Any = kind.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = self.tokenizer_of(folder)
        self.processor: Any = BlipImageProcessorPil.from_pretrained(folder)

    @staticmethod
    def tokenizer_of(folder: str) -> Any:
        return BertTokenizer.from_pretrained(folder)

    def features(self, picture: Picture) -> torch.Tensor:
        """(1, 1 + patches, width)."""
        pixels = self.processor(images=[picture.pixels], return_tensors="pt")["pixel_values"]
        last_hidden_state: torch.Tensor = self.model.vision_model(pixel_values=pixels).last_hidden_state
        return last_hidden_state

    def gradcam(self, picture: Picture, text: str, block: int = BLOCK) -> tuple[Numbers, Numbers]:
        """Maps of every token and ITM logits by the definition: autograd through all of it, vision tower included."""
        encoded = self.tokenizer(text, return_tensors="pt", split_special_tokens=True)
        encoded["input_ids"][:, 0] = self.tokenizer.convert_tokens_to_ids("[ENC]")
        output = self.model.text_encoder(
            input_ids=encoded["input_ids"],
            attention_mask=encoded["attention_mask"],
            encoder_hidden_states=self.features(picture),
            output_attentions=True,
        )
        logits = self.model.itm_head(output.last_hidden_state[:, 0])
        probabilities = output.cross_attentions[block]
        (gradient,) = torch.autograd.grad(logits[0, 1], probabilities)
        maps = (probabilities * gradient.clamp(min=0))[0, :, :, 1:].mean(0).detach()
        side = int(maps.shape[-1] ** 0.5)
        return maps.reshape(-1, side, side).numpy(), logits[0].detach().numpy()

    @torch.no_grad()
    def similarity(self, picture: Picture, text: str) -> float:
        """The ITC score."""
        encoded = self.tokenizer(text, return_tensors="pt")
        inputs = {name: encoded[name] for name in ("input_ids", "attention_mask")}
        words = self.model.text_proj(self.model.text_encoder(**inputs).last_hidden_state[0, 0])
        seen = self.model.vision_proj(self.features(picture)[0, 0])
        return float(torch.nn.functional.cosine_similarity(words, seen, dim=0))

    @torch.no_grad()
    def caption(
        self,
        request: CaptionRequest,
        *,
        prompt: str = "a picture of ",
        min_length: int = 10,
        max_length: int = 20,
        top_k: int = 50,
        temperature: float = 1.0,
    ) -> list[int]:
        """A caption's tokens as ``generate`` writes them."""
        opening = self.tokenizer(prompt)["input_ids"][1:-1]
        ids = torch.tensor([[self.tokenizer.convert_tokens_to_ids("[DEC]"), *opening]])
        steps, end = max_length - ids.shape[1], self.tokenizer.sep_token_id
        sampling = SeededTopK([request.seed], ids.shape[1], steps, top_k, temperature)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "encoder_hidden_states": self.seen(request)}
        bounds = {
            "min_length": min_length,
            "max_length": max_length,
            "logits_processor": LogitsProcessorList([sampling]),
        }
        ends = {"eos_token_id": end, "pad_token_id": self.tokenizer.pad_token_id}
        output = self.model.text_decoder.generate(**inputs, **bounds, **ends, do_sample=False)
        tokens: list[int] = output[0, ids.shape[1] :].tolist()
        return tokens[: tokens.index(end) + 1] if end in tokens else tokens

    @torch.inference_mode()
    def prompt_logits(self, request: CaptionRequest, prompt: str = "a picture of ") -> torch.Tensor:
        """The decoder's logits after each token of the prompt; benchmarks/parity.py compares them."""
        opening = self.tokenizer(prompt)["input_ids"][1:-1]
        ids = torch.tensor([[self.tokenizer.convert_tokens_to_ids("[DEC]"), *opening]])
        logits: torch.Tensor = self.model.text_decoder(
            input_ids=ids, encoder_hidden_states=self.seen(request), use_cache=False
        ).logits[0]
        return logits

    def seen(self, request: CaptionRequest) -> torch.Tensor:
        """What a caption sees: chosen patches after CLS, or all with it."""
        features = self.features(request.picture)
        return features if request.patches is None else features[:, [1 + patch for patch in sorted(request.patches)]]
