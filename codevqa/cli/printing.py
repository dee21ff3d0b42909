"""The way to the terminal: lines that stay, and one that moves while nothing else is said.

Whatever a terminal would obey is spelt out on the way. It needs next to no imports, so it comes at once.
"""

from __future__ import annotations

import sys
import threading
import time
from shutil import get_terminal_size

from ..core.notices import current
from ..core.text import visible

_EVERY_S = 0.1
_FRAMES = "|/-\\"
_shown: tuple[threading.Event, threading.Thread] | None = None


def print_text(*lines: str, error: bool = False, end: str = "\n", exact: bool = False) -> None:
    """Prints lines as a terminal may show them.

    Args:
        lines: none prints nothing.
        error: whether on standard error, for what is no answer.
        end: what ends each line.
        exact: for other programs: into a file or a pipe, the bytes go as they are.
    """
    end_line()
    stream, text = sys.stderr if error else sys.stdout, "".join(f"{line}{end}" for line in lines)
    if exact and not stream.isatty():
        stream.buffer.write(text.encode("utf-8", "surrogateescape"))
    else:
        stream.write(visible(text))
    stream.flush()


def print_json(*records: object) -> None:
    """Prints plain data, each on a line. What :func:`print_text` spells out has the same meaning in JSON."""
    import json

    print_text(*(json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records))


def replace_line(text: str, end: str = "") -> None:
    """Shows on standard error, in the place of the terminal's last line, what of a text it has room for."""
    sys.stderr.write(f"\r\033[K{visible(text)[: get_terminal_size().columns - 1]}{end}")
    sys.stderr.flush()


def begin_line(doing: object) -> None:
    """Shows on standard error what is being done, and for how long, until :func:`end_line`; nothing off a terminal.

    Args:
        doing: its text is shown, and asked for each time.
    """
    global _shown
    end_line()
    if sys.stderr.isatty():
        over = threading.Event()
        _shown = over, threading.Thread(target=_move, args=(doing, over), daemon=True)
        _shown[1].start()


def end_line() -> None:
    """Takes the line away; does nothing where there is none."""
    global _shown
    if _shown is not None:
        over, thread = _shown
        over.set()
        thread.join()
        _shown = None
        replace_line("")


def _move(doing: object, over: threading.Event) -> None:
    started, number = time.monotonic(), 0
    while not over.is_set():
        seconds = time.monotonic() - started
        text = current() or doing
        replace_line(f"codevqa: {text} {_FRAMES[number % 4]}{f' {seconds:.0f} s' if seconds >= 1 else ''}")
        number += 1
        over.wait(_EVERY_S)
