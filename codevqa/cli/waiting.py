"""A line on the terminal that moves while nothing else is said. It needs next to no imports, so it comes at once."""

from __future__ import annotations

import sys
import threading
import time

from ..core.notices import current

_EVERY_S = 0.1
_FRAMES = "|/-\\"
_ERASE = "\r\033[K"
_shown: tuple[threading.Event, threading.Thread] | None = None


def begin(doing: object) -> None:
    """Shows on standard error what is being done, and for how long, until :func:`end`; nothing off a terminal.

    Args:
        doing: its text is shown, and asked for each time.
    """
    global _shown
    end()
    if sys.stderr.isatty():
        over = threading.Event()
        _shown = over, threading.Thread(target=_move, args=(doing, over), daemon=True)
        _shown[1].start()


def end() -> None:
    """Takes the line away; does nothing where there is none."""
    global _shown
    if _shown is not None:
        over, thread = _shown
        over.set()
        thread.join()
        _shown = None
        sys.stderr.write(_ERASE)
        sys.stderr.flush()


def _move(doing: object, over: threading.Event) -> None:
    started, number = time.monotonic(), 0
    while not over.is_set():
        seconds = time.monotonic() - started
        text = current() or doing
        sys.stderr.write(f"{_ERASE}codevqa: {text} {_FRAMES[number % 4]}{f' {seconds:.0f} s' if seconds >= 1 else ''}")
        sys.stderr.flush()
        number += 1
        over.wait(_EVERY_S)
