"""Keys and passwords taken out of what a server says."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable

_KEY_LIKE = re.compile(r"\b(?:sk|pk|key)-[\w*.\-]{4,}")
_SHOWN = "[API key]"
_SHORTEST = 4
"""Characters of a secret: shorter ones are in every text."""
_PIECE = 8
"""Characters in a row that tell a piece of a secret from chance."""


class Redaction:
    """Hides secrets, however a server repeats them: whole, in pieces of half or eight characters, or in base64.

    Args:
        secrets: what is hidden; what is shorter than four characters is not.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._pieces: dict[int, set[str]] = {}
        for secret in {secret for secret in secrets if len(secret) >= _SHORTEST}:
            # In base64 a secret looks in three ways, by what comes before it, and its ends depend on its neighbours.
            coded = [b64encode(b" " * shift + secret.encode()).decode() for shift in range(3)]
            for text in (secret, *(text[4 if shift else 0 :].rstrip("=")[:-1] for shift, text in enumerate(coded))):
                size = max(_SHORTEST, min(_PIECE, len(text) // 2))
                grams = {_lower(text[start : start + size]) for start in range(len(text) - size + 1)}
                self._pieces.setdefault(size, set()).update(grams)

    def __call__(self, text: str) -> str:
        """Returns a text without them."""
        lower = _lower(text)
        hidden = bytearray(len(text))
        for size, pieces in self._pieces.items():
            for start in range(len(text) - size + 1):
                if lower[start : start + size] in pieces:
                    hidden[start : start + size] = b"x" * size
        parts, shown = [], 0
        for run in re.finditer(b"x+", hidden):
            parts += [text[shown : run.start()], _SHOWN]
            shown = run.end()
        return _KEY_LIKE.sub(_SHOWN, "".join([*parts, text[shown:]]))


def _lower(text: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)  # as long as it was
