"""What language models read and write texts with: a tokenizer of transformers, or ``tokenizer.json`` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tokenizers import Tokenizer as Backend

from ..weights import read_json

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
        made = cls(folder, settings)
        special = [one.content for one in made._backend.get_added_tokens_decoder().values() if one.special]
        whole = all(settings.get(name) in (None, *special) for name in _NAMED)
        return made if whole and not settings.get("clean_up_tokenization_spaces") else None

    def encode(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """Returns texts' tokens, with those that the tokenizer opens a text with unless ``special`` is False."""
        return [one.ids for one in self._backend.encode_batch(list(texts), add_special_tokens=special)]

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
