"""What a GGUF file says of itself before its weights: the format of llama.cpp's models.

Little-endian: the magic, a version, the numbers of tensors and of fields, then each field as its name, its type and its
value. The package ``gguf`` reads the same and the weights too, and takes 25 s of a processor for what takes 0.6 s here
(a vocabulary of 150,000): a file is judged before it is loaded.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..core.errors import ModelNotFoundError

__all__ = ["GgufHeader", "read_header"]

_MAGIC = b"GGUF"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""How struct writes the type of each number."""
_STRING, _ARRAY = 8, 9
_CONTROL = 3
"""Type of a token that is a mark and no text."""
_MOST = 1 << 24
"""Items or bytes of one value: more than any vocabulary has, and few enough to read where a file is damaged."""


@dataclass(frozen=True)
class GgufHeader:
    """The fields of a file."""

    fields: Mapping[str, Any]

    @property
    def chat_template(self) -> str:
        """The model's chat template, empty where it has none."""
        template = self.fields.get("tokenizer.chat_template", "")
        return template if isinstance(template, str) else ""

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Tokens that are marks and no text, such as ``<|im_end|>`` and ``<|fim_middle|>``."""
        tokens = self.fields.get("tokenizer.ggml.tokens", ())
        kinds = self.fields.get("tokenizer.ggml.token_type", ())
        return tuple(token for token, kind in zip(tokens, kinds, strict=False) if kind == _CONTROL and token)

    @property
    def context(self) -> int | None:
        """Tokens that the model was trained to see at once."""
        found = self.fields.get(f"{self.fields.get('general.architecture')}.context_length")
        return found if isinstance(found, int) else None


def read_header(path: Path) -> GgufHeader:
    """Reads what a file says of itself.

    Raises:
        ModelNotFoundError: there is no such file, it is not GGUF, or it breaks off.
    """
    if not path.is_file():
        raise ModelNotFoundError(f"No GGUF file at {path}.", hint="Check the path.")
    try:
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                raise ModelNotFoundError(f"{path} is not a GGUF file.", hint="Give one made for llama.cpp.")
            version, _, count = _unpack(file, "IQQ")
            # The first version counted with fewer bytes; nothing that is still around has it.
            if version not in (2, 3) or count > _MOST:
                raise ModelNotFoundError(f"{path} has GGUF version {version}; 2 and 3 are known.")
            return GgufHeader(dict(_field(file) for _ in range(count)))
    except EOFError:
        raise ModelNotFoundError(f"The GGUF file {path} breaks off.", hint="Fetch it again.") from None
    except (OSError, ValueError, KeyError) as error:
        raise ModelNotFoundError(f"The GGUF file {path} cannot be read: {type(error).__name__} {error}.") from None


def _field(file: BinaryIO) -> tuple[str, Any]:
    name = _string(file)
    return name, _value(file, *_unpack(file, "I"))


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _unpack(file, _NUMBERS[kind])[0]
    items, count = _unpack(file, "IQ")
    if count > _MOST:
        raise ValueError(f"a list of {count} items")
    if items == _STRING:
        return [_string(file) for _ in range(count)]
    return list(_unpack(file, f"{count}{_NUMBERS[items]}"))


def _string(file: BinaryIO) -> str:
    (length,) = _unpack(file, "Q")
    if length > _MOST:
        raise ValueError(f"a text of {length} bytes")
    return _read(file, length).decode("utf-8", "replace")


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    layout = f"<{layout}"
    return struct.unpack(layout, _read(file, struct.calcsize(layout)))


def _read(file: BinaryIO, count: int) -> bytes:
    found = file.read(count)
    if len(found) < count:
        raise EOFError
    return found
