"""Any causal language model of transformers, run in this process: greedy, batched, shared prompt prefixes kept.

Models of Llama's layers (:mod:`.network`) are decoded by loops of our own: in packed passes with guesses on a CPU
(:mod:`.cpu.decoder`), in slots on a GPU (:mod:`.gpu.decoder`). All others are decoded by ``model.generate``
(:mod:`.generate`). All end each request at its own token limit and stop strings, and give the same
completions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from cachetools import LRUCache

from ...core.errors import CodeVQAError, ModelError, PromptTooLongError, SetupError
from ..chat_template import without_system
from ..gpu_lock import lock_on
from ..library_errors import first_line
from ..protocols import Completion, GenerationRequest, Message, cut_at_stop
from ..request_queue import RequestQueue
from ..text_stream import stream_of
from ..weights import precision_text
from .cpu.decoder import PackedDecoder
from .generate import GenerateDecoder
from .gpu.decoder import SlotDecoder
from .loading import load_causal_lm
from .network import LlamaNetwork
from .work import (
    CONTEXT,
    FolderTokenizer,
    LMStats,
    TokenisedRequest,
    Tokenizer,
    Work,
    common_prefix_length,
    control_tokens,
    find_end,
)

_MIN_PREFIX = 8
"""Prefixes of fewer tokens are not worth a forward pass of their own."""
_SLOTS_CPU, _SLOTS_GPU = 16, 128


Decoder: TypeAlias = "PackedDecoder | SlotDecoder | GenerateDecoder"
"""What decodes requests over one network."""


class TransformersLM:
    """A causal language model of transformers as a :class:`~codevqa.models.protocols.LanguageModel`.

    Completions are plain greedy decoding: sampling settings and repetition penalties that a checkpoint carries are
    not applied. A completion ends at the model's end token or any control token (end of a turn, fill in the middle),
    its stop strings, ``max_tokens``, or a full context.

    The prefix that :attr:`GenerationRequest.shared` marks is computed once and kept. Packed passes need no mark: they
    keep every prompt. Models whose layers do not all attend over the whole text (sliding windows, linear attention) get
    the same results without that reuse.

    Args:
        model: the network, one of ours or of transformers.
        tokenizer: its tokenizer.
        name: id reported with answers.
        max_batch: most prompts decoded together; None takes 128 on a GPU and 16 elsewhere. Fewer where memory is short.
        prefix_cache_bytes: memory for prompt prefixes kept between calls; 0 keeps none.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        *,
        name: str,
        max_batch: int | None = None,
        prefix_cache_bytes: int = 256 * 2**20,
    ) -> None:
        if max_batch is None:
            max_batch = _SLOTS_GPU if _device(model).type == "cuda" else _SLOTS_CPU
        if max_batch < 1:
            raise SetupError(f"max_batch is {max_batch}; it must be at least 1.")
        self.name = name
        self.model = model.eval()
        weight = next(model.parameters())
        self.computes = precision_text(weight.dtype, weight.device)
        """Precision and device; linear layers in eight bits count as what they give."""
        self.cheap = weight.device.type == "cuda"
        """Whether several texts at once cost little more than one."""
        self.tokenizer = tokenizer
        self.turn = lock_on(weight.device, model, tokenizer, urgent=False)
        self.max_batch = max_batch
        shots = getattr(model.config, "reading_shots", None)
        self.reading_shots = shots if type(shots) is int and shots >= 0 else None
        """Examples of reading that it was trained with; None where any number will do."""
        own = model.generation_config
        ends = own.eos_token_id if own.eos_token_id is not None else tokenizer.end
        self._ends: set[int] = set(ends) if isinstance(ends, list | tuple) else set() if ends is None else {ends}
        self._ends |= control_tokens(tokenizer.vocabulary)
        candidates = (tokenizer.pad, own.pad_token_id, *sorted(self._ends), 0)
        pad: int = next(token for token in candidates if token is not None)
        self.context: int | None
        """Tokens that prompt and completion may take together; None where the architecture has no limit."""
        if isinstance(model, LlamaNetwork):
            self.context, self._vocabulary = model.config.context, model.config.vocabulary
        else:
            self.context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
            self._vocabulary = model.get_input_embeddings().weight.shape[0]
        self.decoder = self._decoder(pad, prefix_cache_bytes)
        """What decodes."""
        self._heads: LRUCache[str | tuple[Message, ...], list[int]] = LRUCache(64)

    @classmethod
    def from_pretrained(
        cls,
        model: str | os.PathLike[str],
        *,
        device: str | None = None,
        dtype: str | None = None,
        max_batch: int | None = None,
        prefix_cache_bytes: int = 256 * 2**20,
        loop: bool = True,
    ) -> TransformersLM:
        """Loads a model and its tokenizer from a folder or the Hugging Face hub.

        Args:
            model: a folder, or a model id of the hub.
            device: where it runs, e.g. ``"cuda:0"``; None takes a GPU if there is one.
            dtype: e.g. ``"float32"``, or ``"int8"`` on a CPU, which rounds; None takes bfloat16 on a GPU and float32
                elsewhere, whatever the file holds.
            max_batch: most prompts decoded together.
            prefix_cache_bytes: memory for prompt prefixes kept between calls; 0 keeps none.
            loop: False decodes with ``model.generate`` whatever the model.

        Raises:
            ModelNotFoundError: it is not here, not complete, or not a causal language model.
            SetupError: the device or the dtype does not exist.
        """
        network, tokenizer, name = load_causal_lm(model, device, dtype, whole=not loop)
        return cls(network, tokenizer, name=name, max_batch=max_batch, prefix_cache_bytes=prefix_cache_bytes)

    @property
    def stats(self) -> LMStats:
        """What it has done."""
        return self.decoder.stats

    @property
    def chat(self) -> bool:
        """Whether it reads turns of a chat best: its tokenizer has a chat template."""
        return bool(self.tokenizer.chat_template)

    @property
    def joins(self) -> bool:
        """Whether requests may join others that it works on: in slots, on a GPU."""
        return self.decoder.joins

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Continues each prompt greedily; batched results equal those of one request at a time.

        Raises:
            PromptTooLongError: a prompt is longer than the context.
            ModelError: a prompt is empty, or memory ran out.
            SetupError: a chat prompt, and the tokenizer has no chat template that takes it; or the tokenizer is of
                another model.
        """
        completions: dict[int, Completion] = {}

        def give(request: TokenisedRequest, tokens: Sequence[int]) -> None:
            completions[request.index] = self._finish(request, tokens)

        with self.turn:
            tokenised = self._tokenise(list(enumerate(requests)), _raise)
            if tokenised:
                self._run(Work(tokenised, self._find_end, give))
            return [completions[request.index] for request in tokenised]

    def generate_joining(self, feed: RequestQueue[GenerationRequest, Completion]) -> None:
        """Continues the prompts of a feed until it has no more; each begins as soon as another has ended.

        Raises:
            ModelError: memory ran out on one prompt.
        """

        def take(most: int) -> list[TokenisedRequest]:
            return self._tokenise(feed.take(most), feed.give)

        def give(request: TokenisedRequest, tokens: Sequence[int]) -> None:
            feed.give(request.index, self._finish(request, tokens))

        with self.turn:
            while begun := take(self.max_batch):
                self._run(Work(begun, self._find_end, give, take))

    def count(self, prompt: str | tuple[Message, ...]) -> int:
        """Returns how many tokens a prompt takes.

        Raises:
            SetupError: it is a chat, and there is no chat template for it.
        """
        with self.turn:
            return len(self._tokens(prompt))

    def _decoder(self, pad: int, prefix_bytes: int) -> Decoder:
        options: dict[str, Any] = {"max_batch": self.max_batch, "prefix_bytes": prefix_bytes, "stats": LMStats()}
        if isinstance(self.model, LlamaNetwork):
            if _device(self.model).type == "cpu":
                return PackedDecoder(self.model, **options)
            return SlotDecoder(self.model, pad=pad, **options)
        ends = sorted(self._ends)
        return GenerateDecoder(self.model, pad=pad, ends=ends, context=self.context, **options)

    def _run(self, work: Work) -> None:
        """Decodes; what does not fit into memory is a ModelError."""
        try:
            with torch.inference_mode():
                self.decoder.run(work)
        except torch.OutOfMemoryError:
            longest = max((len(request.tokens) for request in work.open.values()), default=0)
            raise ModelError(
                f"{self.name} ran out of memory on one prompt of up to {longest} tokens.",
                hint="Show fewer examples, or free memory of the device.",
            ) from None

    def completion_text(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """Returns the text that ``tokens`` add after the tokens of ``prompt``."""
        context = list(prompt[-CONTEXT:])
        before = self.tokenizer.decode(context)
        both = self.tokenizer.decode([*context, *tokens])
        if both.startswith(before):
            return both[len(before) :]
        return self.tokenizer.decode(tokens)

    def _find_end(self, request: TokenisedRequest, tokens: Sequence[int], fresh: int) -> int | None:
        end = find_end(request, tokens, fresh, self._ends, self.tokenizer.decode, self.completion_text)
        stream = request.stream
        if stream is not None and end is not None:
            stream.finish(self._finish(request, tokens[:end]).text)
        elif stream is not None and stream.due(len(tokens)):
            stream.tell(self._finish(request, tokens).text)
        return end

    def _tokenise(
        self,
        requests: Sequence[tuple[int, GenerationRequest]],
        refuse: Callable[[int, CodeVQAError], object],
    ) -> list[TokenisedRequest]:
        """Returns numbered requests in tokens, but for those that it refuses."""
        texts: list[tuple[int, GenerationRequest, str]] = []
        for index, request in requests:
            try:
                texts.append((index, request, self._text(request.prompt)))
            except CodeVQAError as error:
                refuse(index, error)
        tokenised: list[TokenisedRequest] = []
        # Many at once: a tokenizer spreads them over the cores.
        for chat in (False, True):
            some = [each for each in texts if isinstance(each[1].prompt, str) != chat]
            encoded = self.tokenizer.encode([text for *_, text in some], special=not chat)
            for (index, request, _), tokens in zip(some, encoded, strict=True):
                try:
                    tokenised.append(self._tokenise_request(index, request, tokens))
                except CodeVQAError as error:
                    refuse(index, error)
        return tokenised

    def _tokenise_request(self, index: int, request: GenerationRequest, tokens: list[int]) -> TokenisedRequest:
        prefix = 0
        if request.shared > 0:
            # The last token of the head may join with what follows it, and one token must be left to continue.
            prefix = min(common_prefix_length(self._head(request.prompt[: request.shared]), tokens), len(tokens) - 1)
        if not tokens:
            raise ModelError("The prompt is empty.", hint="Give the model something to continue.")
        if request.max_tokens < 1:
            raise ModelError(f"max_tokens is {request.max_tokens}; it must be at least 1.")
        room = request.max_tokens
        if self.context is not None:
            if len(tokens) >= self.context:
                raise PromptTooLongError(
                    f"The prompt is {len(tokens)} tokens long; {self.name} has a context of {self.context}.",
                    hint="Show fewer in-context examples or use a model with a longer context.",
                )
            room = min(room, self.context - len(tokens))
        if max(tokens) >= self._vocabulary:
            raise SetupError(
                f"The tokenizer of {self.name} makes token {max(tokens)}, and the model knows {self._vocabulary}.",
                hint="Put the tokenizer.json there that was saved with these weights.",
            )
        stop = tuple(s for s in request.stop if s)
        kept = prefix if prefix >= _MIN_PREFIX else 0
        return TokenisedRequest(index, tokens, kept, room, stop, stream_of(request))

    def _tokens(self, prompt: str | tuple[Message, ...], *, whole: bool = True) -> list[int]:
        """Returns a prompt, or its beginning, in tokens."""
        (tokens,) = self.tokenizer.encode([self._text(prompt, whole)], special=isinstance(prompt, str))
        return tokens

    def _text(self, prompt: str | tuple[Message, ...], whole: bool = True) -> str:
        return prompt if isinstance(prompt, str) else self._render(prompt, whole)

    def _head(self, head: str | tuple[Message, ...]) -> list[int]:
        """Returns the beginning of a prompt in tokens; none where a chat template wants more turns."""
        known = self._heads.get(head)
        if known is None:
            try:
                known = self._tokens(head, whole=False)
            except SetupError:
                known = []
            self._heads[head] = known
        return known

    def _render(self, messages: Sequence[Message], whole: bool = True) -> str:
        if isinstance(self.tokenizer, FolderTokenizer) or not self.tokenizer.chat_template:
            raise SetupError(
                f"{self.name} has no chat template, so it cannot read chat prompts.",
                hint="Use the completion form, or an instruction-tuned model.",
            )
        turns = [{"role": message.role, "content": message.content} for message in messages]
        texts, refusals = [], []
        # Some templates refuse system turns, or leave them out without a word.
        for form in (turns, without_system(turns)):
            try:
                text = self.tokenizer.render(form, whole=whole)
            except Exception as error:  # noqa: BLE001 - a template is a program of its own
                refusals.append(first_line(error))
                continue
            if turns[0]["content"].strip() in text:
                return text
            texts.append(text)
        if texts:
            return texts[0]
        raise SetupError(
            f"The chat template of {self.name} refuses this prompt: {refusals[0]}.",
            hint="Mend chat_template.jinja (or tokenizer_config.json) in its folder, or use the completion form.",
        )

    def _finish(self, request: TokenisedRequest, tokens: Sequence[int]) -> Completion:
        count = next((i for i, token in enumerate(tokens) if token in self._ends), len(tokens))
        text = cut_at_stop(self.completion_text(request.tokens, tokens[:count]), request.stop)
        return Completion(text, prompt_tokens=len(request.tokens), completion_tokens=min(count + 1, len(tokens)))


def _raise(index: int, error: CodeVQAError) -> None:
    raise error


def _device(model: Any) -> torch.device:
    device: torch.device = next(model.parameters()).device
    return device
