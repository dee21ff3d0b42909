"""What a wait is for, for lines that show progress: whoever waits says it, whoever has a line shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_notices: dict[object, str] = {}


@contextmanager
def notice(text: str) -> Iterator[None]:
    """Lets progress lines show a text for the length of the block."""
    mine = object()
    _notices[mine] = text
    try:
        yield
    finally:
        del _notices[mine]


def current() -> str:
    """Returns the newest text, empty where there is none; from any thread."""
    texts = tuple(_notices.values())
    return texts[-1] if texts else ""
