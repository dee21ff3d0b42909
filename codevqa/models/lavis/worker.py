"""LAVIS's BLIP in a process of its own, which :mod:`.messages` serves: run by the Python that has LAVIS.

The first message names the model, each later one is work for it. Requests are computed one at a time, so that none
depends on its batch.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from pickle import UnpicklingError
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lavis.common.dist_utils import download_cached_file
from lavis.common.registry import registry
from lavis.models.blip_models import blip
from lavis.models.blip_models.blip_image_text_matching import compute_gradcam
from lavis.processors.blip_processors import BlipImageEvalProcessor
from omegaconf import OmegaConf
from PIL import Image
from transformers import BertTokenizer

if TYPE_CHECKING:  # this script runs outside the package
    from .messages import Array, Message

FAMILIES = {"matcher": "blip_image_text_matching", "captioner": "blip_caption"}
_VOCABULARY = "bert-base-uncased"
_WIDTHS = {768: "base", 1024: "large"}
_PICTURES = 32
"""Pictures whose embeddings a captioner keeps: it draws many captions of each."""


def build_lavis(part: str, size: str, vocabulary: str | None) -> tuple[Any, str]:
    """Returns a model of LAVIS without its weights, and where LAVIS has those.

    Args:
        part: "matcher" or "captioner".
        size: LAVIS's model type, or "base" or "large" for the one of that size.
        vocabulary: BERT's vocab.txt; None takes the hub's.
    """
    if vocabulary is not None:
        blip.BertTokenizer = SimpleNamespace(from_pretrained=lambda name: BertTokenizer(vocabulary))
    family = registry.get_model_class(FAMILIES[part])
    kind = next(kind for kind in family.PRETRAINED_MODEL_CONFIG_DICT if kind in (size, f"{size}_coco"))
    config = OmegaConf.load(family.default_config_path(kind)).model
    family.load_checkpoint_from_config = lambda *_: None  # it would unpickle whatever a checkpoint holds
    try:
        return family.from_config(config).eval(), str(config.finetuned)
    except OSError as error:
        words = "without network put BERT's vocab.txt beside the checkpoint"
        raise ValueError(f"{_VOCABULARY}'s tokenizer cannot be had: {words}") from error


def load_model(asked: dict[str, Any]) -> MatchWorker | CaptionWorker:
    """Returns the model that a first message asks for."""
    part, name, vocabulary = asked["part"], asked["name"], asked["vocabulary"]
    path = Path(name)
    if path.is_absolute():
        state = _load_state(path)
        size = _WIDTHS.get(len(state.get("visual_encoder.patch_embed.proj.weight", ())))
        if size is None:
            raise ValueError("it holds no BLIP of LAVIS, base or large")
        model, _ = build_lavis(part, size, vocabulary)
    else:
        model, source = build_lavis(part, name, vocabulary)
        state = _load_state(Path(download_cached_file(source, check_hash=False, progress=False)))
    missing = [key for key in model.load_state_dict(state, strict=False).missing_keys if "position_ids" not in key]
    if missing:
        raise ValueError(f"{name} lacks {len(missing)} weights of LAVIS's {FAMILIES[part]}, the first {missing[0]}")
    device = asked["device"] or ("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).visual_encoder.requires_grad_(False)  # whose gradients nobody reads
    if part == "captioner":
        return CaptionWorker(model, device)
    return MatchWorker(model, device, asked["block"])


def _load_state(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        # Torch before 2.6 can be made to run what its older format holds, whatever it is told.
        if file.read(4) != b"PK\3\4":
            raise ValueError("it is no checkpoint as torch saves them since 1.6")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:  # whose message advises to load it unsafely
        raise ValueError("it is damaged, or holds more than weights") from None
    return state.get("model", state)  # type: ignore[no-any-return]


class _Model:
    def __init__(self, model: Any, device: str) -> None:
        self.model, self.device = model, device
        self.grid = round(model.visual_encoder.patch_embed.num_patches**0.5)
        self._processor = BlipImageEvalProcessor(image_size=self.grid * 16)

    def picture(self, pixels: Array) -> torch.Tensor:
        """A picture as LAVIS's own processor prepares it."""
        prepared: torch.Tensor = self._processor(Image.fromarray(pixels))
        return prepared.unsqueeze(0).to(self.device)


class MatchWorker(_Model):
    """ITM with GradCAM, and ITC."""

    def __init__(self, model: Any, device: str, block: int) -> None:
        super().__init__(model, device)
        self._block = block
        self.describe = {"grid": self.grid, "blocks": model.text_encoder.config.num_hidden_layers}

    def match(self, head: dict[str, Any], pictures: list[Array]) -> Message:
        """For each pair GradCAM of every token, (tokens, grid, grid), and the two ITM logits; the tokens of its text,
        and those of its focus without what opens and ends them."""
        arrays: list[Array] = []
        written, focus = [], []
        for place, text, phrase in head["pairs"]:
            cut = {"truncation": True, "max_length": self.model.max_txt_len}
            tokens = self.model.tokenizer([text], return_tensors="pt", **cut).to(self.device)
            rows, logits = compute_gradcam(
                self.model, self.picture(pictures[place]), [text], tokens, block_num=self._block
            )
            # LAVIS's rows: the first token, the mean over the words, then each token from the second on.
            arrays += [np.concatenate([rows[0][:1].numpy(), rows[0][2:].numpy()]), logits[0].detach().cpu().numpy()]
            written.append(tokens.input_ids[0].tolist())
            focus.append(self.model.tokenizer(phrase, **cut).input_ids[1:-1])
        self.model.zero_grad(set_to_none=True)
        return {"tokens": written, "focus": focus}, arrays

    @torch.no_grad()
    def similarity(self, head: dict[str, Any], pictures: list[Array]) -> Message:
        """The ITC score of each pair."""
        scores = [
            self.model({"image": self.picture(pictures[place]), "text_input": [text]}, match_head="itc").item()
            for place, text in head["pairs"]
        ]
        return {}, [np.array(scores, np.float32)]


class CaptionWorker(_Model):
    """Captions of some patches of a picture."""

    def __init__(self, model: Any, device: str) -> None:
        super().__init__(model, device)
        self._kept: OrderedDict[str, torch.Tensor] = OrderedDict()
        self.describe = {"grid": self.grid, "prompt": model.prompt}

    @torch.no_grad()
    def caption(self, head: dict[str, Any], pictures: list[Array]) -> Message:
        """The text of each caption without the prompt, and its tokens after it."""
        tokenizer, texts, tokens = self.model.tokenizer, [], []
        for key, place, patches, seed, (least, most) in head["captions"]:
            prompt, shown = self._prompt(), self._embed_patches(key, pictures[place], patches)
            torch.manual_seed(seed or 0)
            # As LAVIS's PnP-VQA draws captions. Its generate_from_encoder punishes repetition, whatever it is told.
            ids = self.model.text_decoder.generate(
                input_ids=prompt.input_ids,
                max_length=most,
                min_length=least,
                do_sample=seed is not None,
                top_k=head["top_k"],
                eos_token_id=tokenizer.sep_token_id,
                pad_token_id=tokenizer.pad_token_id,
                encoder_hidden_states=shown,
                encoder_attention_mask=self._all(shown),
            )[0]
            texts.append(tokenizer.decode(ids, skip_special_tokens=True)[len(self.model.prompt) :])
            tokens.append(ids[prompt.input_ids.shape[1] :].cpu().numpy())
        return {"texts": texts}, tokens

    @torch.no_grad()
    def prompt_logits(self, head: dict[str, Any], pictures: list[Array]) -> Message:
        """The decoder's logits after each token of the prompt."""
        key, place, patches, *_ = head["captions"][0]
        shown = self._embed_patches(key, pictures[place], patches)
        output = self.model.text_decoder(
            self._prompt().input_ids,
            encoder_hidden_states=shown,
            encoder_attention_mask=self._all(shown),
            return_dict=True,
        )
        return {}, [output.logits[0].cpu().numpy()]

    def _all(self, shown: torch.Tensor) -> torch.Tensor:
        return torch.ones(shown.shape[:2], dtype=torch.long, device=self.device)

    def _prompt(self) -> Any:
        prompt = self.model.tokenizer([self.model.prompt], return_tensors="pt").to(self.device)
        prompt.input_ids[:, 0] = self.model.tokenizer.bos_token_id
        prompt.input_ids = prompt.input_ids[:, :-1]
        return prompt

    def _embed_patches(self, key: str, pixels: Array, patches: list[int] | None) -> torch.Tensor:
        if key not in self._kept:
            self._kept[key] = self.model.forward_encoder({"image": self.picture(pixels)})
        self._kept.move_to_end(key)
        while len(self._kept) > _PICTURES:
            self._kept.popitem(last=False)
        embeddings = self._kept[key]
        return embeddings if patches is None else embeddings[:, [1 + patch for patch in patches]]


_loaded: list[MatchWorker | CaptionWorker] = []


def answer(head: dict[str, Any], arrays: list[Array]) -> Message:
    """Answers one message."""
    if head["do"] == "load":
        _loaded[:] = [load_model(head)]
        return _loaded[0].describe, []
    return getattr(_loaded[0], head["do"])(head, arrays)  # type: ignore[no-any-return]
