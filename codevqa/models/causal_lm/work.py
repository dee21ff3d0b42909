"""What a decoding loop has to do: requests in tokens, where their completions end, and those that join on the way.

Texts become tokens by a tokenizer of transformers, or by ``tokenizer.json`` alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tokenizers import Tokenizer as Backend

from ..text_stream import TextStream
from ..weights import read_json

CONTEXT = 4
"""Prompt tokens decoded along with a completion: some tokenizers drop a leading space at the start of a text."""


@dataclass(frozen=True)
class TokenisedRequest:
    """A request whose prompt is tokens."""

    index: int
    """Its place among the requests of a call."""
    tokens: list[int]
    prefix: int
    """How many of ``tokens`` are a prefix worth keeping; 0 for none."""
    max_tokens: int
    """Tokens to make at most: the request's limit, or the room left in the context."""
    stop: tuple[str, ...]
    stream: TextStream | None = None
    """Who is told the text as it is written."""


FindEnd: TypeAlias = "Callable[[TokenisedRequest, Sequence[int], int], int | None]"
"""How many of the tokens made for a request count, given those and how many of them are new; None while it goes on."""


_CONTROL = re.compile(r"<[|｜][\w▁-]+[|｜]>|</?s>|<eos>|<end_of_turn>|<(?:fim|file)_\w+>")
_GO_ON = frozenset(("<|python_tag|>", "<|channel|>", "<|message|>", "<|constrain|>"))
"""What stands before a text, not after it: before code in Llama 3, between the parts of a reply in gpt-oss."""


def control_tokens(vocabulary: Mapping[str, int]) -> set[int]:
    """Returns the tokens that stand for no text: ends of turns, beginnings of others, parts of fill-in-the-middle.

    A converted tokenizer may hold them as ordinary ones; a model that writes one has said what it had to say.
    """
    return {number for token, number in vocabulary.items() if _CONTROL.fullmatch(token) and token not in _GO_ON}


def common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Returns how many first tokens are the same."""
    for place, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return place
    return min(len(left), len(right))


def find_end(
    request: TokenisedRequest,
    tokens: Sequence[int],
    fresh: int,
    end_tokens: Collection[int],
    decode: Callable[[Sequence[int]], str],
    text: Callable[[Sequence[int], Sequence[int]], str],
) -> int | None:
    """Returns how many of the tokens made for a request count, or None while it goes on.

    Args:
        request: the request.
        tokens: all tokens made so far.
        fresh: how many last ones have not been looked at before.
        end_tokens: tokens that end a completion.
        decode: the text of some tokens.
        text: the text that tokens add after those of a prompt.
    """
    seen = len(tokens) - fresh
    last: int | None = None
    for count in range(seen + 1, len(tokens) + 1):
        if count >= request.max_tokens or tokens[count - 1] in end_tokens:
            last = count
            break
    if request.stop:
        upto = len(tokens) if last is None else last
        recent = decode([*request.tokens[-CONTEXT:], *tokens[max(0, seen - _stop_window(request.stop)) : upto]])
        if any(stop in recent for stop in request.stop):
            # That was a quick look, and it shows some of the prompt: the text itself decides.
            for n in range(seen + 1, upto + 1):
                output = text(request.tokens, tokens[:n])
                if any(stop in output for stop in request.stop):
                    return n
    return last


def _stop_window(stops: Collection[str]) -> int:
    """Returns how many last tokens a stop string can lie in: every token stands for at least one byte of text."""
    return max(map(len, map(str.encode, stops))) + 2 * CONTEXT


@dataclass
class LMStats:
    """What a language model of this process has done so far."""

    generate_calls: int = 0
    """Batches decoded by ``model.generate``."""
    steps: int = 0
    """Forward passes of a loop of our own that made tokens."""
    prefilled_tokens: int = 0
    """Prompt tokens run through the model, padding not counted."""
    reused_tokens: int = 0
    """Prompt tokens that were taken from a kept prefix, or one of the same batch, instead."""
    guessed_tokens: int = 0
    """Tokens that the model was given to confirm."""
    confirmed_tokens: int = 0
    """Tokens of those that it did confirm: each saved a step."""


class Work:
    """Requests to be decoded, and those that join them as slots become free.

    Args:
        requests: what to begin with.
        find_end: says where each completion ends.
        give: takes the tokens that were made of a request.
        take: returns up to so many requests that have come meanwhile; None where none may join.
    """

    def __init__(
        self,
        requests: Sequence[TokenisedRequest],
        find_end: FindEnd,
        give: Callable[[TokenisedRequest, Sequence[int]], None],
        take: Callable[[int], Sequence[TokenisedRequest]] | None = None,
    ) -> None:
        self.open = {request.index: request for request in requests}
        """What has not ended."""
        self.find_end = find_end
        self.joins = take is not None
        self._give, self._take = give, take

    def more(self, most: int) -> Sequence[TokenisedRequest]:
        """Returns up to ``most`` requests that have come meanwhile; they are open from now on."""
        taken = self._take(most) if self._take is not None else ()
        self.open |= {request.index: request for request in taken}
        return taken

    def end(self, request: TokenisedRequest, tokens: list[int]) -> None:
        """Hands out what was made of a request."""
        del self.open[request.index]
        self._give(request, tokens)


_TYPES, _CLASSES = ("llama", "mistral"), ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Types of models and classes of tokenizers with which transformers does what ``tokenizer.json`` says."""
_NAMED = {"bos_token", "eos_token", "pad_token", "unk_token"}
_PLAIN = {*_NAMED, "backend", "clean_up_tokenization_spaces", "is_local", "model_max_length", "tokenizer_class"}
"""Settings with which it does nothing else."""


class FolderTokenizer:
    """A tokenizer that ``tokenizer.json`` says all of: importing transformers takes longer than a small model.

    Args:
        folder: holds it.
        settings: of its ``tokenizer_config.json``.

    Raises:
        Exception: the file is damaged; ``tokenizers`` raises no other class.
    """

    chat_template = None

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._backend: Any = Backend.from_file(str(folder / "tokenizer.json"))
        self._backend.no_truncation()
        self._backend.no_padding()
        self.vocabulary: Mapping[str, int] = self._backend.get_vocab()
        self.end, self.pad = (self.vocabulary.get(str(settings.get(name))) for name in ("eos_token", "pad_token"))

    @classmethod
    def of(cls, folder: Path) -> FolderTokenizer | None:
        """Returns the tokenizer in a model's folder; None where only transformers knows what to make of it.

        Raises:
            Exception: a file is damaged.
        """
        if not (folder / "tokenizer.json").is_file() or not (folder / "tokenizer_config.json").is_file():
            return None
        settings = read_json(folder / "tokenizer_config.json")
        if settings.get("tokenizer_class") not in _CLASSES or settings.keys() - _PLAIN:
            return None
        chats = any(folder.glob("*.jinja")) or (folder / "additional_chat_templates").is_dir()
        if chats or read_json(folder / "config.json").get("model_type") not in _TYPES:
            return None
        tokenizer = cls(folder, settings)
        special = [token.content for token in tokenizer._backend.get_added_tokens_decoder().values() if token.special]
        whole = all(settings.get(name) in (None, *special) for name in _NAMED)
        return tokenizer if whole and not settings.get("clean_up_tokenization_spaces") else None

    def encode(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """Returns texts' tokens, with those that the tokenizer opens a text with unless ``special`` is False."""
        return [encoding.ids for encoding in self._backend.encode_batch(list(texts), add_special_tokens=special)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens; special ones say nothing."""
        return str(self._backend.decode(list(tokens), skip_special_tokens=True))


class TransformersTokenizer:
    """A tokenizer of transformers, asked as a :class:`FolderTokenizer` is.

    Args:
        own: the tokenizer.
    """

    def __init__(self, own: Any) -> None:
        self._own = own
        self.chat_template: str | None = own.chat_template
        self.end: int | None = own.eos_token_id
        self.pad: int | None = own.pad_token_id
        self.vocabulary: Mapping[str, int] = own.get_vocab()

    def encode(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """Returns texts' tokens, with those that the tokenizer opens a text with unless ``special`` is False."""
        if not texts:
            return []
        tokens: list[list[int]] = self._own(list(texts), add_special_tokens=special)["input_ids"]
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens; special ones say nothing."""
        return str(self._own.decode(list(tokens), skip_special_tokens=True))

    def render(self, turns: Sequence[Mapping[str, str]], *, whole: bool) -> str:
        """Returns a chat as text, up to where the reply begins where it is ``whole``; raises what the template does."""
        return str(self._own.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=whole))


Tokenizer: TypeAlias = "FolderTokenizer | TransformersTokenizer"
"""What a language model reads and writes texts with."""
