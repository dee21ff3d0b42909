"""Vision-language models of transformers: Idefics3 and SmolVLM, Qwen-VL, LFM2-VL and others of its auto class.

A request becomes one turn of the model's own chat template, pictures first and text last. Each picture goes through the
vision tower by itself, and its features are kept for further questions about it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cachetools import LRUCache
from torch.nn.functional import pad

from ..core.errors import ModelError, ModelNotFoundError, SetupError
from ..core.images import Picture
from .base import LookRequest, Sight
from .blip.batches import run_in_batches
from .causal_lm.loading import place_for
from .library_errors import first_line, quiet, while_loading
from .turn import Turn

_log = logging.getLogger(__name__)
_WHAT = "The vision-language model"


@dataclass(frozen=True)
class _Row:
    """A request as the network takes it."""

    request: LookRequest
    tokens: tuple[int, ...]
    """Of the prompt, with a placeholder for each feature of a picture."""
    given: Mapping[str, torch.Tensor]
    """What the processor made, with one row of text."""
    parts: tuple[Any, ...] = ()
    """Features of each picture; none where the network encodes the pictures itself."""


class TransformersEyes:
    """A vision-language model in this process. Implements :class:`codevqa.models.base.Eyes`.

    Decoding is greedy, and what the checkpoint says of sampling and penalties is not applied. Where a request has
    choices, the answer is the likeliest of them. The chance of a choice is that of its first token where no two choices
    begin with the same, else that of all its tokens and the end of the turn; chances of all choices sum to 1.

    Features are kept by picture where the network takes them ready (``mm_encoder_outputs``) and those of several
    pictures are no other than each one's. Otherwise, as with LLaVA-OneVision and several pictures, each request runs
    alone and its pictures are encoded with it.

    Args:
        network: one of those that :meth:`from_pretrained` loads.
        processor: makes its input of pictures and texts.
        name: id it reports.
        max_batch: requests at a time; None takes 16 on a GPU, and 4 elsewhere.
        cache_bytes: bytes of features kept in memory, where the network is.

    Raises:
        SetupError: an option cannot be had.
        ModelNotFoundError: there is no chat template.
    """

    def __init__(
        self, network: Any, processor: Any, *, name: str, max_batch: int | None = None, cache_bytes: int = 256 << 20
    ) -> None:
        if (max_batch is not None and max_batch < 1) or cache_bytes < 0:
            raise SetupError(
                f"A vision-language model cannot use batches of {max_batch} and a cache of {cache_bytes} bytes.",
                hint="A batch is at least 1, a cache at least 0.",
            )
        if not getattr(processor, "chat_template", None):
            raise ModelNotFoundError(
                f"{name} has no chat template.", hint="Use a model that was trained for chats, such as an instruct one."
            )
        from transformers import GenerationConfig

        self.name = name
        self.computes = f"{str(network.dtype).removeprefix('torch.')} on {network.device}"
        """Precision and device."""
        self.batch = max_batch or (16 if network.device.type == "cuda" else 4)
        self.turn = Turn(network, processor)
        self._network, self._processor, self._tokenizer = network, processor, processor.tokenizer
        added = self._tokenizer.added_tokens_decoder.values()
        self._special = [one.content for one in added if one.special and len(one.content) > 1]
        ends = network.generation_config.eos_token_id
        ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
        if (own := self._tokenizer.eos_token_id) is not None:
            ends = [*ends, own]
        self._ends = tuple(dict.fromkeys(ends))
        self._pad: int = (
            self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else min(ends, default=0)
        )
        network.generation_config = GenerationConfig(
            do_sample=False, eos_token_id=list(self._ends) or None, pad_token_id=self._pad
        )
        self._context: int | None = getattr(network.config.get_text_config(), "max_position_embeddings", None)
        self._encoder = getattr(network.base_model, "get_image_features", None)
        self._apart = (
            self._encoder is not None and "mm_encoder_outputs" in inspect.signature(network.forward).parameters
        )
        self._kept: LRUCache[str, Any] = LRUCache(cache_bytes, getsizeof=_bytes)
        if not self._apart:
            _log.warning("%s encodes a picture again for each question: it does not take features.", name)

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        max_batch: int | None = None,
        cache_bytes: int = 256 << 20,
    ) -> TransformersEyes:
        """Loads a vision-language model, e.g. ``HuggingFaceTB/SmolVLM-256M-Instruct`` or ``Qwen/Qwen3-VL-2B-Instruct``.

        Args:
            name: folder or hub id.
            device: where it runs; None takes a GPU if there is one.
            dtype: precision of the weights; None takes bfloat16 on a GPU, and float32 elsewhere.
            max_batch: requests at a time; None takes 16 on a GPU, and 4 elsewhere.
            cache_bytes: bytes of features of pictures kept in memory.

        Raises:
            ModelNotFoundError: it is not here, not complete, or not a model for chats about pictures.
            SetupError: the device, the precision, an option or a package cannot be had.
        """
        from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoConfig, AutoModelForImageTextToText

        place, precision = place_for(device, dtype)
        folder = Path(name).expanduser()
        source = str(folder) if folder.is_dir() else name
        with quiet(), while_loading(lambda why: _unloadable(name, why)):
            config = AutoConfig.from_pretrained(source, trust_remote_code=False)
            if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
                raise ModelNotFoundError(
                    f"{name} is a {config.model_type!r} network, which cannot look at pictures and write.",
                    hint="Choose a vision-language model, such as HuggingFaceTB/SmolVLM-256M-Instruct.",
                )
            processor = _processor(name, source)
            network, report = AutoModelForImageTextToText.from_pretrained(
                source, dtype=precision, trust_remote_code=False, output_loading_info=True
            )
            # transformers would go on with random weights in the place of these.
            if missing := report["missing_keys"]:
                raise ModelNotFoundError(
                    f"{_WHAT} {name} is not complete: {len(missing)} weights are missing, e.g. {min(missing)}."
                )
            network = network.to(place).eval().requires_grad_(False)
        return cls(network, processor, name=name, max_batch=max_batch, cache_bytes=cache_bytes)

    def look(self, requests: Sequence[LookRequest]) -> list[Sight]:
        """Answers each request greedily, or with the likeliest of its choices.

        Raises:
            ModelError: a prompt is longer than the context, the model cannot be shown so many pictures, or it failed.
        """

        def company(place: int) -> tuple[bool, tuple[str, ...], int]:
            one = requests[place]
            return not one.choices, tuple(picture.key for picture in one.pictures), len(one.text)

        order = sorted(range(len(requests)), key=company)
        with self.turn:
            rows = [requests[place] for place in order]
            sights = run_in_batches(self._looked, rows, self.batch, self._kept.clear, what=_WHAT)
        return [sight for _, sight in sorted(zip(order, sights, strict=True), key=lambda pair: pair[0])]

    @torch.inference_mode()
    def _looked(self, requests: Sequence[LookRequest]) -> list[Sight]:
        groups: dict[tuple[bool, int], list[int]] = {}
        seen: dict[str, Any] = {}
        rows = [self._row(request, seen) for request in requests]
        for place, row in enumerate(rows):
            groups.setdefault((not row.request.choices, -1 if row.parts else place), []).append(place)
        sights: dict[int, Sight] = {}
        for (free, _), places in groups.items():
            several = [rows[place] for place in places]
            sights.update(zip(places, (self._written if free else self._chosen)(several), strict=True))
        return [sights[place] for place in range(len(rows))]

    def _row(self, request: LookRequest, seen: dict[str, Any]) -> _Row:
        """Returns a request with the features of its pictures; ``seen`` has those of this batch."""
        given = self._read(request.pictures, request.text)
        tokens = tuple(given["input_ids"][0].tolist())
        shown = f"The prompt has {len(tokens)} tokens with {len(request.pictures)} pictures"
        if self._context is not None and len(tokens) >= self._context:
            raise ModelError(
                f"{shown}, and the context of {self.name} is {self._context}.", hint="Ask about fewer pictures at once."
            )
        parts = []
        for picture in request.pictures if self._apart else ():
            part = seen.get(picture.key, self._kept.get(picture.key))
            if part is None:
                part = self._encoded(given if len(request.pictures) == 1 else self._read((picture,), ""))
            if part is None:
                break
            seen[picture.key] = part
            if _bytes(part) <= self._kept.maxsize:
                self._kept[picture.key] = part
            parts.append(part)
        places = tokens.count(getattr(self._network.config, "image_token_id", None))
        # Some networks show each of several pictures otherwise than one alone.
        whole = len(parts) == len(request.pictures) and places == sum(map(_count, parts))
        return _Row(request, tokens, given, tuple(parts) if whole else ())

    def _read(self, pictures: Sequence[Picture], text: str) -> dict[str, torch.Tensor]:
        """Returns the network's input for one prompt, on its device."""
        for token in self._special:  # a question may say <image>, and means the word
            text = text.replace(token, f"{token[0]} {token[1:]}")
        content: list[dict[str, Any]] = [{"type": "image", "image": picture.pixels} for picture in pictures]
        turn = {"role": "user", "content": [*content, {"type": "text", "text": text}]}
        try:
            made = self._processor.apply_chat_template(
                [turn],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
            )
        except (ValueError, TypeError, LookupError, RuntimeError) as error:
            raise ModelError(
                f"{self.name} cannot be shown {len(pictures)} pictures with this text: {first_line(error)}."
            ) from error
        network = self._network
        tensors = {key: one.to(network.device) for key, one in made.items() if isinstance(one, torch.Tensor)}
        return {key: one.to(network.dtype) if one.is_floating_point() else one for key, one in tensors.items()}

    def _encoded(self, given: Mapping[str, torch.Tensor]) -> Any:
        """Returns the features of one picture, without what no text model reads; None where they have another form."""
        takes = inspect.signature(self._encoder).parameters  # type: ignore[arg-type]
        made = self._encoder(**{key: given[key] for key in takes if key in given}, return_dict=True)  # type: ignore[misc]
        pooled, layers = made.pooler_output, getattr(made, "deepstack_features", None)
        if not all(
            isinstance(one, torch.Tensor) for one in [*pooled, *(one for layer in layers or () for one in layer)]
        ):
            return None
        return type(made)(pooler_output=pooled, **({} if layers is None else {"deepstack_features": layers}))

    def _batch(self, rows: Sequence[_Row]) -> dict[str, Any]:
        """Returns rows as one input, padded on the left. Those that have no features are of one request."""
        longest = max(len(row.tokens) for row in rows)
        batch: dict[str, Any] = {}
        for key, own in rows[0].given.items():
            several = [row.given[key] for row in rows]
            if own.shape == rows[0].given["input_ids"].shape:
                value = self._pad if key == "input_ids" else 0
                several = [pad(one, (longest - one.shape[1], 0), value=value) for one in several]
            elif key.startswith("pixel_") and rows[0].parts:
                continue
            batch[key] = torch.cat(several)
        if rows[0].parts:
            batch["mm_encoder_outputs"] = {"image": _joined([part for row in rows for part in row.parts])}
        return batch

    def _written(self, rows: Sequence[_Row]) -> list[Sight]:
        batch = self._batch(rows)
        begin = batch["input_ids"].shape[1]
        room = [row.request.max_tokens for row in rows]
        if self._context is not None:
            room = [min(most, self._context - len(row.tokens)) for most, row in zip(room, rows, strict=True)]
        made = self._network.generate(**batch, max_new_tokens=max(room))[:, begin:].tolist()
        sights = []
        for row, most, tokens in zip(rows, room, made, strict=True):
            own = tokens[:most]
            count = next((place for place, token in enumerate(own) if token in self._ends), len(own))
            text = self._tokenizer.decode(own[:count], skip_special_tokens=True).strip()
            sights.append(Sight(text, (), len(row.tokens), min(count + 1, len(own))))
        return sights

    def _chosen(self, rows: Sequence[_Row]) -> list[Sight]:
        batch = self._batch(rows)
        made = self._network.generate(**batch, max_new_tokens=1, output_logits=True, return_dict_in_generate=True)
        sights = []
        for row, logits in zip(rows, made.logits[0].float(), strict=True):
            choices = row.request.choices
            tokens = [self._next(row.tokens, choice) for choice in choices]
            scores = [logits[one[0]] for one in tokens]
            if len({one[0] for one in tokens}) < len(tokens):
                several = [tokens[start : start + self.batch] for start in range(0, len(tokens), self.batch)]
                scores = [score for some in several for score in self._scores(row, some)]
            chances = torch.stack(scores).softmax(0).tolist()
            best = max(range(len(choices)), key=chances.__getitem__)
            told = tuple(zip(choices, chances, strict=True))
            sights.append(Sight(choices[best], told, len(row.tokens), len(tokens[best])))
        return sights

    def _next(self, prompt: Sequence[int], text: str) -> list[int]:
        """Returns a text's tokens as they would follow a prompt."""
        tail = self._tokenizer.decode(prompt[-1:])
        special = prompt[-1] in self._tokenizer.all_special_ids or tail[-1:].isspace()
        before = self._tokenizer(tail, add_special_tokens=False).input_ids
        joined: list[int] = self._tokenizer(tail + ("" if special else " ") + text, add_special_tokens=False).input_ids
        own = joined[len(before) :] if joined[: len(before)] == before else []
        own = own or self._tokenizer(text, add_special_tokens=False).input_ids
        if not own:
            raise ModelError(
                f"{self.name} has no tokens for the choice {text!r}.", hint="Give choices that say something."
            )
        return own

    def _scores(self, row: _Row, choices: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """Returns the log-probability of each choice, its end included: what begins another would always win."""
        begin, whole = len(row.tokens), [[*choice, *self._ends[:1]] for choice in choices]
        made = self._network.generate(
            **self._batch([row] * len(whole)),
            max_new_tokens=max(map(len, whole)),
            prefix_allowed_tokens_fn=lambda place, ids: whole[place][len(ids) - begin :][:1] or [self._pad],
            output_logits=True,
            return_dict_in_generate=True,
        )
        steps = torch.stack(made.logits, 1).float().log_softmax(-1)
        return [one[range(len(own)), own].sum() for one, own in zip(steps, whole, strict=True)]


def _processor(name: str, source: str) -> Any:
    from transformers import AutoImageProcessor, AutoProcessor
    from transformers.utils import is_torchvision_available

    def told(why: str) -> SetupError:
        if "torchvision" in why.lower() and not is_torchvision_available():
            return SetupError(f"{name} needs torchvision to read pictures.", hint='Run: pip install "codevqa[vlm]"')
        return ModelNotFoundError(f"Cannot load the processor of {name}: {why}.")

    with while_loading(told):
        made = AutoProcessor.from_pretrained(source, trust_remote_code=False)
        if not hasattr(made, "tokenizer") or not hasattr(made, "image_processor"):
            raise ModelNotFoundError(
                f"{name} has no processor for pictures and texts.",
                hint="Its processor files must be there, as on the hub.",
            )
        # Pillow resizes the same whether or not torchvision is there. Processors of videos take no back end.
        made.image_processor = AutoImageProcessor.from_pretrained(source, trust_remote_code=False, backend="pil")
    return made


def _unloadable(name: str, why: str) -> ModelNotFoundError:
    return ModelNotFoundError(f"Cannot load the vision-language model {name}: {why}.")


def _tensors(part: Any) -> list[torch.Tensor]:
    return [*part.pooler_output, *(one for layer in part.get("deepstack_features") or () for one in layer)]


def _bytes(part: Any) -> int:
    return sum(one.nbytes for one in _tensors(part))


def _count(part: Any) -> int:
    """Returns how many placeholders the features of a picture take."""
    return sum(one.numel() // one.shape[-1] for one in part.pooler_output)


def _joined(parts: Sequence[Any]) -> Any:
    """Returns the features of several pictures as the network would give them together."""
    first = parts[0]
    pooled = [part.pooler_output for part in parts]
    fields: dict[str, Any] = {
        "pooler_output": torch.cat(pooled)
        if isinstance(pooled[0], torch.Tensor)
        else [one for part in pooled for one in part]
    }
    if first.get("deepstack_features") is not None:
        layers = zip(*(part.deepstack_features for part in parts), strict=True)
        fields["deepstack_features"] = [[one for part in layer for one in part] for layer in layers]
    return type(first)(**fields)
