"""Text told as it is written: what of an unfinished completion is certain to stay, and when to say so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from .protocols import GenerationRequest, cut_at_stop

_EVERY_TOKENS = 4
_EVERY_S = 0.02


class TextStream:
    """Tells one listener the text so far of one completion.

    Each text told is one that the completion begins with. Where a back end begins again, so does the text.

    Args:
        on_text: called with the text so far, whenever there is more of it.
        stop: the stop strings of the request.
    """

    def __init__(self, on_text: Callable[[str], None], stop: Sequence[str]) -> None:
        self._on_text, self._stop = on_text, tuple(s for s in stop if s)
        self._last_text = ""
        self._tokens, self._time = 0, 0.0
        self._over = False

    def due(self, tokens: int) -> bool:
        """Says whether text of so many tokens is worth decoding: every few tokens, or each where they are slow."""
        now = time.monotonic()
        if abs(tokens - self._tokens) < _EVERY_TOKENS and now - self._time < _EVERY_S:
            return False
        self._tokens, self._time = tokens, now
        return True

    def tell(self, text: str) -> None:
        """Tells what is certain of an unfinished text."""
        sure = certain(text, self._stop)
        if sure and not self._over:
            self._say(sure)

    def finish(self, text: str) -> None:
        """Tells the whole completion, unless that has been told; nothing comes after it."""
        self._over = True
        self._say(text)

    def _say(self, text: str) -> None:
        if text != self._last_text:
            self._last_text = text
            self._on_text(text)


def stream_of(request: GenerationRequest) -> TextStream | None:
    """Returns a stream to this request's listener, if there is one."""
    return None if request.on_text is None else TextStream(request.on_text, request.stop)


def certain(text: str, stop: Sequence[str]) -> str:
    """Returns the part of an unfinished text that what follows cannot change.

    Held back are a character whose last bytes are yet to come, and an end that may turn out to begin a stop string.
    """
    cut = cut_at_stop(text, stop)
    if cut != text:
        return cut
    text = text.rstrip("\ufffd")
    held = max((n for s in stop for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
    return text[: len(text) - held]
