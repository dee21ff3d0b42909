"""Keys and passwords taken out of what a server says."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable

_KEY_LIKE = re.compile(r"\b(?:sk|pk|key)-[\w*.\-]{4,}")
_SHORTEST, _PIECE = 4, 8
"""Characters of the shortest secret, and of the shortest piece of a long one: less is in many texts by chance."""


class Redaction:
    """Hides secrets of four characters or more, however they are repeated: whole, in halves, in base64."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._pieces: dict[int, set[str]] = {}
        for secret in (secret for secret in secrets if len(secret) >= _SHORTEST):
            data, texts = secret.encode(), [secret]
            for shift in range(3):  # its base64 depends on what stands before it, but for the letters at both ends
                coded = b64encode(b" " * shift + data).decode()
                texts.append(coded[(8 * shift + 5) // 6 : 8 * (shift + len(data)) // 6])
            for text in texts:
                size = max(_SHORTEST, min(_PIECE, len(text) // 2))
                pieces = {text[start : start + size] for start in range(len(text) - size + 1)}
                self._pieces.setdefault(size, set()).update(pieces)

    def __call__(self, text: str) -> str:
        """Returns a text without them."""
        hidden = bytearray(len(text))
        for size, pieces in self._pieces.items():
            for start in range(len(text) - size + 1):
                if text[start : start + size] in pieces:
                    hidden[start : start + size] = b"x" * size
        for run in reversed([*re.finditer(b"x+", hidden)]):
            text = f"{text[: run.start()]}[API key]{text[run.end() :]}"
        return _KEY_LIKE.sub("[API key]", text)
