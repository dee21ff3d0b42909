"""Any causal language model of transformers, run in this process: greedy, batched, shared prompt prefixes kept.

Decoding is ``model.generate``, not a loop of our own: on a 5M-parameter Llama (width 256, 8 layers) with a 1000-token
prompt on one or two CPU threads its overhead over bare forward passes was below 10 %, for batches of mixed lengths and
very short prompts below 15 %, and it knows the quirks of every architecture. What is added here: an end for each row
(its own token limit and stop strings), and a cache of the attention keys and values of prompt prefixes that many
requests begin with.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import ModelError, ModelNotFoundError, SetupError
from .base import Completion, GenerationRequest, Message, cut_at_stop

_MIN_PREFIX = 8
"""Prefixes of fewer tokens are not worth a forward pass of their own."""
_CONTEXT = 4
"""Prompt tokens decoded along with a completion: some tokenizers drop a leading space at the start of a text."""


@dataclass
class LMStats:
    """What a :class:`TransformersLM` has done so far."""

    requests: int = 0
    generate_calls: int = 0
    """Batches decoded."""
    prefix_hits: int = 0
    """Batches that found their prefix computed."""
    prefix_misses: int = 0
    """Batches that had to compute their prefix first."""
    prefilled_tokens: int = 0
    """Prompt tokens run through the model, padding not counted."""
    reused_tokens: int = 0
    """Prompt tokens that were taken from a kept prefix instead."""


@dataclass(frozen=True)
class _Row:
    """One request, tokenised."""

    index: int
    tokens: list[int]
    prefix: int
    """How many of ``tokens`` are a prefix worth keeping; 0 for none."""
    max_tokens: int
    stop: tuple[str, ...]


class _PrefixCache:
    """Key-value caches of prompt prefixes: least recently used first out, bounded by bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._kept: OrderedDict[tuple[int, ...], tuple[Any, int]] = OrderedDict()

    def get(self, key: tuple[int, ...]) -> Any | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: tuple[int, ...], past: Any) -> None:
        size = sum(layer.keys.nbytes + layer.values.nbytes for layer in past.layers)
        if size > self.limit:
            return
        self._kept[key] = (past, size)
        self.size += size
        while self.size > self.limit:
            _, (_, dropped) = self._kept.popitem(last=False)
            self.size -= dropped


class _RowEnds:
    """Stopping criterion with an end of its own for each row: a token limit, or a stop string."""

    def __init__(self, owner: TransformersLM, rows: Sequence[_Row], width: int) -> None:
        self.owner, self.rows, self.width = owner, rows, width
        self.ends: list[int | None] = [None] * len(rows)
        # Every token stands for at least one byte of text, so the tail that a stop string can lie in is bounded.
        longest = max((len(s.encode()) for row in rows for s in row.stop), default=0)
        self.window = longest + 2 * _CONTEXT

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        made = input_ids.shape[1] - self.width
        tails = input_ids[:, -min(made, self.window) :].tolist()
        for i, (row, tail) in enumerate(zip(self.rows, tails, strict=True)):
            if self.ends[i] is None and (made >= row.max_tokens or self._stopped(row, tail, input_ids[i])):
                self.ends[i] = made
        return torch.tensor([end is not None for end in self.ends], device=input_ids.device)

    def _stopped(self, row: _Row, tail: list[int], sequence: torch.Tensor) -> bool:
        if not row.stop:
            return False
        recent = self.owner.tokenizer.decode(row.tokens[-_CONTEXT:] + tail, skip_special_tokens=True)
        if not any(s in recent for s in row.stop):
            return False
        # The tail is a quick look, and shows some of the prompt: the text itself decides.
        text = self.owner.completion_text(row.tokens, sequence[self.width :].tolist())
        return any(s in text for s in row.stop)


class TransformersLM:
    """A causal language model of transformers as a :class:`~codevqa.models.base.LanguageModel`.

    Completions are plain greedy decoding: sampling settings and repetition penalties that a checkpoint carries are
    not applied. A completion ends at the model's end token, its stop strings, ``max_tokens``, or a full context.

    The prefix that :attr:`GenerationRequest.shared` marks is computed once and kept. Models whose layers do not all
    attend over the whole text (sliding windows, linear attention) get the same results without that reuse.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        max_batch: int = 16,
        prefix_cache_bytes: int = 256 * 2**20,
    ) -> None:
        from transformers import GenerationConfig

        if max_batch < 1:
            raise SetupError(f"max_batch is {max_batch}; it must be at least 1.")
        self.name = name
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.max_batch = max_batch
        self.stats = LMStats()
        self._prefixes = _PrefixCache(prefix_cache_bytes)
        self._reuse = True
        own = model.generation_config
        ends = own.eos_token_id if own.eos_token_id is not None else tokenizer.eos_token_id
        self._ends: set[int] = set(ends) if isinstance(ends, list | tuple) else set() if ends is None else {ends}
        candidates = (tokenizer.pad_token_id, own.pad_token_id, *sorted(self._ends), 0)
        self._pad: int = next(token for token in candidates if token is not None)
        # generate() fills what a call leaves open from here: a checkpoint's sampling settings must not seep in.
        self.model.generation_config = GenerationConfig(
            do_sample=False, eos_token_id=sorted(self._ends) or None, pad_token_id=self._pad
        )
        self.context: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        """Tokens that prompt and completion may take together; None where the architecture has no limit."""

    @classmethod
    def from_pretrained(
        cls,
        model: str | os.PathLike[str],
        *,
        device: str | None = None,
        dtype: str | None = None,
        max_batch: int = 16,
        prefix_cache_bytes: int = 256 * 2**20,
        name: str | None = None,
    ) -> TransformersLM:
        """Loads a model and its tokenizer from a folder or the Hugging Face hub.

        Args:
            model: a folder, or a model id of the hub.
            device: where it runs, e.g. ``"cuda:0"``; None takes a GPU if there is one.
            dtype: e.g. ``"float32"``; None takes bfloat16 on a GPU and float32 elsewhere, whatever the file holds.
            max_batch: most prompts decoded together.
            prefix_cache_bytes: memory for prompt prefixes kept between calls; 0 keeps none.
            name: id reported with answers; None takes the model id or the folder's name.

        Raises:
            ModelNotFoundError: it is not here, not complete, or not a causal language model.
            SetupError: the device or the dtype does not exist.
        """
        folder = Path(model).expanduser()
        local = folder.is_dir()
        looks_local = isinstance(model, os.PathLike) or model.startswith(("/", ".", "~")) or model.count("/") > 1
        if not local and looks_local:
            raise ModelNotFoundError(f"No model folder at {model}.", hint="Check the path.")
        place, number = _resolve(device, dtype)
        source = str(folder) if local else str(model)
        with _quiet(progress=not local):
            network, tokenizer = _load(source, number)
            try:
                network = network.to(place)
            except (torch.OutOfMemoryError, RuntimeError, AssertionError) as error:
                raise SetupError(f"Cannot move {source} to {place}: {_line(error)}") from None
        return cls(
            network,
            tokenizer,
            name=name or (folder.resolve().name if local else str(model)),
            max_batch=max_batch,
            prefix_cache_bytes=prefix_cache_bytes,
        )

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Continues each prompt greedily; batched results equal those of one request at a time.

        Raises:
            ModelError: a prompt is empty or longer than the context, or memory ran out.
            SetupError: a chat prompt, and the tokenizer has no chat template.
        """
        prefixes: dict[str, list[int]] = {}
        rows = [self._tokenise(index, request, prefixes) for index, request in enumerate(requests)]
        groups: dict[tuple[int, ...], list[_Row]] = {}
        for row in sorted(rows, key=lambda row: len(row.tokens)):
            groups.setdefault(tuple(row.tokens[: row.prefix]), []).append(row)
        done: dict[int, Completion] = {}
        with torch.inference_mode(), _quiet():
            for prefix, members in groups.items():
                for start in range(0, len(members), self.max_batch):
                    batch = members[start : start + self.max_batch]
                    try:
                        done.update(self._decode(batch, prefix))
                    except torch.OutOfMemoryError:
                        raise ModelError(
                            f"{self.name} ran out of memory on {len(batch)} prompts of up to "
                            f"{len(batch[-1].tokens)} tokens.",
                            hint="Lower max_batch or show fewer examples.",
                        ) from None
        self.stats.requests += len(rows)
        return [done[index] for index in range(len(rows))]

    def completion_text(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """Returns the text that ``tokens`` add after the tokens of ``prompt``."""
        context = list(prompt[-_CONTEXT:])
        before = self.tokenizer.decode(context, skip_special_tokens=True)
        both = self.tokenizer.decode([*context, *tokens], skip_special_tokens=True)
        if both.startswith(before):
            return str(both[len(before) :])
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def _tokenise(self, index: int, request: GenerationRequest, prefixes: dict[str, list[int]]) -> _Row:
        prefix = 0
        if isinstance(request.prompt, str):
            tokens: list[int] = self.tokenizer(request.prompt)["input_ids"]
            if request.shared > 0 and self._reuse:
                head = request.prompt[: request.shared]
                if head not in prefixes:
                    prefixes[head] = self.tokenizer(head)["input_ids"]
                # The last token of the head may join with what follows it, and one token must be left to continue.
                prefix = min(_common(prefixes[head], tokens), len(tokens) - 1)
        else:
            tokens = self.tokenizer(self._render(request.prompt), add_special_tokens=False)["input_ids"]
        if not tokens:
            raise ModelError("The prompt is empty.", hint="Give the model something to continue.")
        if request.max_tokens < 1:
            raise ModelError(f"max_tokens is {request.max_tokens}; it must be at least 1.")
        room = request.max_tokens
        if self.context is not None:
            if len(tokens) >= self.context:
                raise ModelError(
                    f"The prompt is {len(tokens)} tokens long; {self.name} has a context of {self.context}.",
                    hint="Show fewer in-context examples or use a model with a longer context.",
                )
            room = min(room, self.context - len(tokens))
        stop = tuple(s for s in request.stop if s)
        return _Row(index, tokens, prefix if prefix >= _MIN_PREFIX else 0, room, stop)

    def _render(self, messages: Sequence[Message]) -> str:
        from jinja2 import TemplateError

        if not self.tokenizer.chat_template:
            raise SetupError(
                f"{self.name} has no chat template, so it cannot read chat prompts.",
                hint="Use the completion form, or an instruction-tuned model.",
            )
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        except TemplateError as error:
            raise SetupError(f"The chat template of {self.name} refuses this prompt: {_line(error)}") from None

    def _decode(self, batch: Sequence[_Row], prefix: tuple[int, ...]) -> dict[int, Completion]:
        past = self._prefix(prefix) if prefix else None
        head = len(prefix) if past is not None else 0
        if past is not None:
            # generate() grows the cache it is given.
            past = copy.deepcopy(past)
            past.batch_repeat_interleave(len(batch))
        rests = [row.tokens[head:] for row in batch]
        longest = max(map(len, rests))
        # Left padding, after the prefix: positions follow from the mask, so padding moves no token.
        pads = [longest - len(rest) for rest in rests]
        ids = [[*prefix[:head], *[self._pad] * n, *rest] for n, rest in zip(pads, rests, strict=True)]
        mask = [[1] * head + [0] * n + [1] * len(rest) for n, rest in zip(pads, rests, strict=True)]
        ends = _RowEnds(self, batch, head + longest)
        self.stats.generate_calls += 1
        self.stats.prefilled_tokens += sum(map(len, rests))
        self.stats.reused_tokens += head * len(batch)
        output = self.model.generate(
            input_ids=torch.tensor(ids, device=self.model.device),
            attention_mask=torch.tensor(mask, device=self.model.device),
            past_key_values=past,
            stopping_criteria=[ends],
            max_new_tokens=max(row.max_tokens for row in batch),
        )
        made = output[:, head + longest :].tolist()
        return {
            row.index: self._finish(row, tokens[:end]) for row, tokens, end in zip(batch, made, ends.ends, strict=True)
        }

    def _finish(self, row: _Row, tokens: list[int]) -> Completion:
        count = next((i for i, token in enumerate(tokens) if token in self._ends), len(tokens))
        text = cut_at_stop(self.completion_text(row.tokens, tokens[:count]), row.stop)
        return Completion(text, prompt_tokens=len(row.tokens), completion_tokens=min(count + 1, len(tokens)))

    def _prefix(self, prefix: tuple[int, ...]) -> Any | None:
        """Returns the keys and values of a prefix, computed unless kept; None where they cannot be reused."""
        from transformers.cache_utils import DynamicCache, DynamicLayer

        past = self._prefixes.get(prefix)
        if past is not None:
            self.stats.prefix_hits += 1
            return past
        if not self._reuse:
            return None
        past = DynamicCache(config=self.model.config)
        # Elsewhere padding after the prefix would take places in the window, or enter the state.
        if any(type(layer) is not DynamicLayer for layer in past.layers):
            self._reuse = False
            return None
        ids = torch.tensor([prefix], device=self.model.device)
        self.model(input_ids=ids, attention_mask=torch.ones_like(ids), past_key_values=past, use_cache=True)
        if past.get_seq_length() != len(prefix):
            self._reuse = False
            return None
        self.stats.prefix_misses += 1
        self.stats.prefilled_tokens += len(prefix)
        self._prefixes.put(prefix, past)
        return past


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    for place, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return place
    return min(len(left), len(right))


def _line(error: BaseException) -> str:
    """First line of a message, without the advice that often follows it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0].rstrip(":")[:300] if lines else ""
    return f"{type(error).__name__} {first}".strip() if isinstance(error, KeyError) or not first else first


def _resolve(device: str | None, dtype: str | None) -> tuple[torch.device, torch.dtype]:
    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise SetupError(f"Unknown device {device!r}: {_line(error)}", hint="Use cpu or cuda.") from None
    if dtype is None:
        return place, torch.bfloat16 if place.type == "cuda" else torch.float32
    number = getattr(torch, dtype, None)
    if not isinstance(number, torch.dtype) or not number.is_floating_point:
        raise SetupError(f"Unknown dtype {dtype!r}.", hint="Use float32, bfloat16 or float16.")
    return place, number


def _load(source: str, dtype: torch.dtype) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    wrong = (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError, SafetensorError)
    # The model first: where nothing of that name exists, its message says so best.
    try:
        network, report = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except wrong as error:
        raise ModelNotFoundError(f"Cannot load the language model {source}: {_line(error)}") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except wrong as error:
        raise ModelNotFoundError(
            f"Cannot load the tokenizer of {source}: {_line(error)}", hint="Is its tokenizer.json there, and whole?"
        ) from None
    # transformers would go on with random weights in the place of these.
    for kind, keys in (("missing", report["missing_keys"]), ("not of the shape config.json says", _mismatched(report))):
        if keys:
            raise ModelNotFoundError(
                f"The language model {source} is not complete: {len(keys)} weights are {kind}, e.g. {min(keys)}."
            )
    return network, tokenizer


def _mismatched(report: Any) -> list[str]:
    # Entries are (name, shape on disk, shape expected).
    return [key if isinstance(key, str) else key[0] for key in report["mismatched_keys"]]


@contextlib.contextmanager
def _quiet(*, progress: bool = False) -> Iterator[None]:
    """Keeps transformers' advice off the terminal; with ``progress`` download bars stay."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if not progress and bars:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if not progress and bars:
            logging.enable_progress_bar()
