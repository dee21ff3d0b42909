"""Tokens of language models, by the library ``tokenizers`` and a folder's files alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.normalizers import NFC

from ..weights import read_json

_TYPES, _CLASSES = ("llama", "mistral"), ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Types of models and classes of tokenizers with which transformers does what ``tokenizer.json`` says."""
_QWEN_TYPES, _QWEN = ("qwen2", "qwen3"), ("Qwen2Tokenizer", "Qwen2TokenizerFast")
"""The same, but for the normal form of letters, which their class sets whatever the file says."""
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_CHANGES = ("auto_map", "add_eos_token", "add_prefix_space", "split_special_tokens")
"""Settings with which transformers does something else."""


class FolderTokenizer:
    """The tokenizer of a folder in the hub's format.

    Args:
        folder: holds ``tokenizer.json``, and perhaps ``tokenizer_config.json`` and ``chat_template.jinja``.
        settings: what the second says.

    Raises:
        Exception: the first is damaged; ``tokenizers`` raises no other class.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._backend: Any = Backend.from_file(str(folder / "tokenizer.json"))
        self._backend.no_truncation()
        self._backend.no_padding()
        self._named = {name: _text(settings[name]) for name in _NAMED if settings.get(name)}
        added = {token.content for token in self._backend.get_added_tokens_decoder().values()}
        more = [*self._named.values(), *_extra(settings)]
        self._backend.add_tokens([AddedToken(one, special=True) for one in dict.fromkeys(more) if one not in added])
        self.vocabulary: dict[str, int] = self._backend.get_vocab()
        self.end, self.pad = (self.vocabulary.get(self._named.get(name, "")) for name in ("eos_token", "pad_token"))
        file = folder / "chat_template.jinja"
        self.chat_template: str | None = (
            file.read_text(encoding="utf-8") if file.is_file() else settings.get("chat_template")
        )

    @classmethod
    def of(cls, folder: Path) -> FolderTokenizer | None:
        """Returns the tokenizer in a model's folder; None where only transformers knows what to make of it.

        Raises:
            Exception: a file is damaged.
        """
        if not (folder / "tokenizer.json").is_file() or not (folder / "tokenizer_config.json").is_file():
            return None
        settings = read_json(folder / "tokenizer_config.json")
        kind, template = settings.get("tokenizer_class"), settings.get("chat_template")
        model = read_json(folder / "config.json").get("model_type")
        qwen = kind in _QWEN and model in _QWEN_TYPES
        opens = settings.get("add_bos_token") if qwen else "add_bos_token" in settings
        if not (qwen or (kind in _CLASSES and model in _TYPES)) or opens or any(map(settings.get, _CHANGES)):
            return None
        made = cls(folder, settings)
        if qwen:
            made._backend.normalizer = NFC()
        cleaned = settings.get("clean_up_tokenization_spaces") and type(made._backend.model).__name__ != "BPE"
        known = {token.content: token.special for token in made._backend.get_added_tokens_decoder().values()}
        listed = (settings.get("added_tokens_decoder") or {}).values()
        if cleaned or any(known.get(one["content"]) != one.get("special", False) for one in listed):
            return None
        named = isinstance(template, list) or (folder / "additional_chat_templates").is_dir()
        return None if named or "generation" in (made.chat_template or "").replace("add_generation", "") else made

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Returns a text's tokens, with those that the tokenizer opens a text with unless ``special`` is False."""
        tokens: list[int] = self._backend.encode(text, add_special_tokens=special).ids
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens; special ones say nothing."""
        return str(self._backend.decode(list(tokens), skip_special_tokens=True))

    def render(self, turns: Sequence[Mapping[str, str]], *, whole: bool) -> str:
        """Returns a chat as text, up to where the reply begins where it is ``whole``; raises what the template does."""
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        # As templates are written for transformers; what they may reach is theirs alone.
        jinja = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        jinja.filters["tojson"] = _to_json
        jinja.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
        template = jinja.from_string(self.chat_template or "")
        messages = [dict(turn) for turn in turns]
        return template.render(
            messages=messages, tools=None, documents=None, add_generation_prompt=whole, **self._named
        )


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

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Returns a text's tokens, with those that the tokenizer opens a text with unless ``special`` is False."""
        tokens: list[int] = self._own(text, add_special_tokens=special)["input_ids"]
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens; special ones say nothing."""
        return str(self._own.decode(list(tokens), skip_special_tokens=True))

    def render(self, turns: Sequence[Mapping[str, str]], *, whole: bool) -> str:
        """Returns a chat as text, up to where the reply begins where it is ``whole``; raises what the template does."""
        return str(self._own.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=whole))


Tokenizer: TypeAlias = "FolderTokenizer | TransformersTokenizer"
"""What a language model reads and writes texts with."""


def _text(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _extra(settings: dict[str, Any]) -> list[str]:
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or ()
    return [_text(one) for one in (extra.values() if isinstance(extra, dict) else extra)]


def _refuse(message: str) -> NoReturn:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None, **given: Any) -> str:
    # Jinja's own escapes what HTML would take for marks.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **given)
