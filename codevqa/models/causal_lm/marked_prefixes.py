"""Keys and values of prompt prefixes that requests mark as shared, kept between calls."""

from __future__ import annotations

import contextlib
from typing import Any

from cachetools import LRUCache


class MarkedPrefixes(LRUCache[tuple[int, ...], Any]):
    """Keys and values of prefixes by their tokens: least recently used first out, bounded by bytes.

    Args:
        maxsize: bytes kept at most; 0 keeps nothing.
        getsizeof: how many bytes the keys and values of a prefix take.
    """

    def keep(self, tokens: tuple[int, ...], past: Any) -> None:
        """Keeps the keys and values of a prefix, unless they alone are over the limit."""
        with contextlib.suppress(ValueError):
            self[tokens] = past
