"""Vision-language models of transformers: Idefics3 and SmolVLM, Qwen-VL, LFM2-VL and others of its auto class.

A request becomes one turn of the model's own chat template, pictures first and text last. Each picture goes through the
vision tower alone, and its features are kept for further questions about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..core.errors import ModelError, ModelNotFoundError, SetupError
from .blip.picture_input import run_in_batches
from .gpu_lock import lock_on
from .library_errors import quiet, while_loading
from .protocols import LookRequest, Sight
from .vlm_prompts import PictureFeatures, Prompts, Row
from .weights import load_network, load_pretrained, precision_text

_WHAT = "The vision-language model"
_LOGITS = {"output_logits": True, "return_dict_in_generate": True}


class TransformersEyes:
    """A vision-language model in this process. Implements :class:`codevqa.models.protocols.Eyes`.

    Decoding is greedy; a checkpoint's own sampling and penalties are not applied. Where a request has choices, the
    answer is the likeliest. The chance of a choice is that of its first token where no two choices begin with the same
    token, else that of all its tokens and the end of the turn. Chances of all choices sum to 1.

    Features are kept by picture where the network accepts features in the place of pictures, and shows several
    pictures as it shows each alone. Otherwise each request runs alone, and encodes its pictures again: models without
    ``mm_encoder_outputs``, and LLaVA-OneVision with several pictures.

    Args:
        network: one of those that :meth:`from_pretrained` loads.
        processor: makes its input of pictures and texts; it has a chat template.
        name: id it reports.
        cache_bytes: bytes of features of pictures kept in memory, where the network is.
    """

    def __init__(self, network: Any, processor: Any, *, name: str, cache_bytes: int = 256 << 20) -> None:
        from transformers import GenerationConfig

        if cache_bytes < 0:
            raise SetupError(f"A cache of {cache_bytes} bytes is impossible.", hint="Use 0 to keep nothing.")
        self.name = name
        self.computes = precision_text(network.dtype, network.device)
        """Precision and device."""
        self.batch = 16 if network.device.type == "cuda" else 4
        self.turn = lock_on(network.device, network, processor, urgent=False)
        self._network, self._processor, self._tokenizer = network, processor, processor.tokenizer
        own = network.generation_config.eos_token_id
        ends = dict.fromkeys([*(own if isinstance(own, list) else [own]), self._tokenizer.eos_token_id])
        self._ends = [end for end in ends if end is not None]
        self._pad: int = self._tokenizer.pad_token_id or 0
        network.generation_config = GenerationConfig(eos_token_id=self._ends or None, pad_token_id=self._pad)
        self._prompts = Prompts(network, processor, name=name, pad=self._pad, cache_bytes=cache_bytes)

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        cache_bytes: int = 256 << 20,
    ) -> TransformersEyes:
        """Loads a vision-language model, e.g. ``HuggingFaceTB/SmolVLM-256M-Instruct`` or ``Qwen/Qwen3-VL-2B-Instruct``.

        Args:
            name: folder or hub id.
            device: where it runs; None takes a GPU if there is one.
            dtype: precision of the weights; None takes bfloat16 on a GPU, and float32 elsewhere.
            cache_bytes: bytes of features of pictures kept in memory.

        Raises:
            ModelNotFoundError: it is not here, not complete, or not a model for chats about pictures.
            SetupError: the device, the precision, an option or a package cannot be had.
        """
        from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoConfig, AutoModelForImageTextToText

        what = "the vision-language model"
        config = load_pretrained(AutoConfig, what, name)
        if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
            refused = f"{name} is a {config.model_type!r} network, which cannot answer about pictures."
            raise ModelNotFoundError(refused, hint="Choose a vision-language model, such as SmolVLM-256M-Instruct.")
        processor = _processor(name)
        network = load_network(AutoModelForImageTextToText, what, name, device, dtype)
        return cls(network, processor, name=name, cache_bytes=cache_bytes)

    @property
    def context(self) -> int:
        """Tokens that a prompt with its pictures and the answer may take together."""
        return self._prompts.context

    def count(self, request: LookRequest) -> int:
        """Returns how many tokens a request takes; no picture is encoded.

        Raises:
            ModelError: the model cannot be shown so many pictures.
        """
        with self.turn:
            return self._prompts.count(request)

    def look(self, requests: Sequence[LookRequest]) -> list[Sight]:
        """Answers each request greedily, or with the likeliest of its choices.

        Raises:
            ModelError: a prompt is longer than the context, the model cannot be shown so many pictures, or it failed.
        """
        # Those with choices first, and questions about one picture side by side.
        keys = [(not request.choices, [picture.key for picture in request.pictures]) for request in requests]
        order = sorted(range(len(requests)), key=keys.__getitem__)
        with self.turn:
            several = [requests[place] for place in order]
            sights = run_in_batches(self._look_at_batch, several, self.batch, self._prompts.kept.clear, what=_WHAT)
        by_place = dict(zip(order, sights, strict=True))
        return [by_place[place] for place in range(len(requests))]

    @torch.inference_mode()
    def _look_at_batch(self, requests: Sequence[LookRequest]) -> list[Sight]:
        seen: dict[str, PictureFeatures] = {}
        groups: dict[tuple[bool, int], list[int]] = {}
        rows = [self._prompts.read(request, seen) for request in requests]
        for place, row in enumerate(rows):
            groups.setdefault((bool(row.request.choices), -1 if row.parts else place), []).append(place)
        sights: dict[int, Sight] = {}
        for (choices, _), places in groups.items():
            answered = (self._choose_answers if choices else self._write_answers)([rows[place] for place in places])
            sights.update(zip(places, answered, strict=True))
        return [sights[place] for place in range(len(rows))]

    def _write_answers(self, rows: Sequence[Row]) -> list[Sight]:
        batch = self._prompts.batch(rows)
        room = [min(row.request.max_tokens, self._prompts.context - len(row.tokens)) for row in rows]
        outputs = self._network.generate(**batch, max_new_tokens=max(room))[:, batch["input_ids"].shape[1] :].tolist()
        sights = []
        for row, most, tokens in zip(rows, room, outputs, strict=True):
            count = next((place for place, token in enumerate(tokens[:most]) if token in self._ends), most)
            text = self._tokenizer.decode(tokens[:count], skip_special_tokens=True).strip()
            sights.append(Sight(text, (), len(row.tokens), min(count + 1, most)))
        return sights

    def _choose_answers(self, rows: Sequence[Row]) -> list[Sight]:
        output = self._network.generate(**self._prompts.batch(rows), max_new_tokens=1, **_LOGITS)
        sights = []
        for row, logits in zip(rows, output.logits[0].float(), strict=True):
            tokens = [self._next(row.tokens, choice) for choice in row.request.choices]
            scores = [logits[ids[0]] for ids in tokens]
            if len({ids[0] for ids in tokens}) < len(tokens):
                several = [tokens[start : start + self.batch] for start in range(0, len(tokens), self.batch)]
                scores = [score for some in several for score in self._scores(row, some)]
            chances = torch.stack(scores).softmax(0).tolist()
            best = max(range(len(chances)), key=chances.__getitem__)
            choices = tuple(zip(row.request.choices, chances, strict=True))
            sights.append(Sight(choices[best][0], choices, len(row.tokens), len(tokens[best])))
        return sights

    def _next(self, prompt: Sequence[int], text: str) -> list[int]:
        """Returns a text's tokens as they would follow a prompt."""
        if not text.strip():
            raise ModelError("A choice is empty.", hint="Give each choice a text.")
        tail = self._tokenizer.decode(prompt[-1:])
        apart = prompt[-1] in self._tokenizer.all_special_ids or tail[-1:].isspace()
        whole = f"{tail}{'' if apart else ' '}{text}"
        before, joined, own = (
            self._tokenizer(part, add_special_tokens=False).input_ids for part in (tail, whole, text)
        )
        tokens: list[int] = joined[len(before) :] if joined[: len(before)] == before else own
        return tokens

    def _scores(self, row: Row, choices: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """Returns the log-probability of each choice, its end included: what begins another would always win."""
        begin, whole = len(row.tokens), [[*choice, *self._ends[:1]] for choice in choices]
        output = self._network.generate(
            **self._prompts.batch([row] * len(whole)),
            max_new_tokens=max(map(len, whole)),
            prefix_allowed_tokens_fn=lambda place, ids: whole[place][len(ids) - begin :][:1] or [self._pad],
            **_LOGITS,
        )
        steps = torch.stack(output.logits, 1).float().log_softmax(-1)
        return [scores[range(len(own)), own].sum() for scores, own in zip(steps, whole, strict=True)]


def _processor(name: str) -> Any:
    from transformers import AutoImageProcessor, AutoProcessor
    from transformers.utils import is_torchvision_available

    def load_error(why: str) -> SetupError:
        if "torchvision" in why.lower() and not is_torchvision_available():
            return SetupError(f"{name} needs torchvision to read pictures.", hint='Run: pip install "codevqa[vlm]"')
        return ModelNotFoundError(f"Cannot load the processor of {name}: {why}.")

    source = str(Path(name).expanduser())
    with quiet(), while_loading(load_error):
        processor = AutoProcessor.from_pretrained(source, trust_remote_code=False)
        if not hasattr(processor, "tokenizer"):
            refused = f"{name} has no processor of pictures and texts."
            raise ModelNotFoundError(refused, hint="Its processor files must be there.")
        # Pillow resizes the same whether or not torchvision is there. A processor of videos would refuse a back end.
        processor.image_processor = AutoImageProcessor.from_pretrained(source, trust_remote_code=False, backend="pil")
    if not processor.chat_template:
        raise ModelNotFoundError(f"{name} has no chat template.", hint="Use a model for chats (Instruct).")
    return processor
