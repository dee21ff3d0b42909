"""Guesses how a text goes on, for a model to confirm many tokens in one pass instead of making one.

Programs and answers repeat one another nearly word for word. A guess is what followed the last few tokens where they
stood before: in texts written lately (as in SuffixDecoding, Oliaro et al., 2024), else in the prompt itself (prompt
lookup, Saxena, 2023). The model takes of a guess what it would have written anyway, so guesses change no text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

_LONGEST = 8
"""Tokens that are looked for at most; the longest match is followed."""
_BEFORE = 16
"""Tokens of a prompt that are kept with what was written after them."""
_KEPT = 1 << 14
"""Tokens of texts written lately that are kept."""
_WIDTH = array("I").itemsize
_NONE = 2 ** (8 * _WIDTH) - 1
"""No token: ends each text kept."""


class Drafter:
    """What was written lately, to guess from."""

    def __init__(self) -> None:
        self._written = b""

    def learn(self, prompt: Sequence[int], made: Sequence[int]) -> None:
        """Remembers what was written after a prompt."""
        new = array("I", [*prompt[-_BEFORE:], *made, _NONE]).tobytes()
        self._written = (self._written + new)[-_KEPT * _WIDTH :]

    def guess(self, text: Sequence[int], count: int) -> list[int]:
        """Returns up to ``count`` tokens that may follow ``text``."""
        if count < 1:
            return []
        own = array("I", text).tobytes()
        longest = min(_LONGEST, len(text))
        # The latest of what was written, the first of the prompt, where the most similar example stands.
        for look, last in ((self._written, True), (own, False)):
            for length in range(longest, 0, -1):
                after = _after(look, own[-length * _WIDTH :], last)
                found = array("I", look[after : after + count * _WIDTH]).tolist() if after >= 0 else []
                if found and found[0] != _NONE:
                    return found[: found.index(_NONE)] if _NONE in found else found
        return []


def _after(text: bytes, part: bytes, last: bool) -> int:
    """Returns where the first or last occurrence of a part ends that something follows; -1 if there is none."""
    end = len(text) - _WIDTH
    find = text.rfind if last else text.find
    at = find(part, 0, end)
    # Bytes that match across the bounds of tokens do not count.
    while at >= 0 and at % _WIDTH:
        at = find(part, 0, at + len(part) - 1) if last else find(part, at + 1, end)
    return at + len(part) if at >= 0 else -1
