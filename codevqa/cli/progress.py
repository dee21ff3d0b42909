"""How far an evaluation is, on standard error: one line that changes on a terminal, else a line now and then."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from ..core.text import visible

if TYPE_CHECKING:
    from ..eval.run.session import Status


class Bar:
    """Shows the status of a run; call it with each new one, in a ``with`` block.

    Args:
        quiet: show nothing.
        every: seconds between lines where standard error is no terminal.
    """

    def __init__(self, quiet: bool = False, every: float = 10.0) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self.pause = 0.1 if self.live else every
        self._last: Status | None = None
        self._shown = time.monotonic() if not self.live else 0.0

    def __call__(self, status: Status) -> None:
        """Shows a status, unless the one before was shown a moment ago."""
        self._last = status
        if self.quiet or time.monotonic() - self._shown < self.pause:
            return
        self._show(status)

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._last is not None and not self.quiet:
            self._show(self._last)
            if self.live:
                print(file=sys.stderr, flush=True)

    def _show(self, status: Status) -> None:
        self._shown = time.monotonic()
        text = visible(line(status))
        if self.live:
            width = shutil.get_terminal_size().columns
            print(f"\r{text[: width - 1]:<{width - 1}}", end="", file=sys.stderr, flush=True)
        else:
            print(f"codevqa: {text}", file=sys.stderr, flush=True)


def line(status: Status) -> str:
    """Returns a status as one line."""
    of = "" if status.total is None else f" of {status.total:,}"
    share = "" if not status.total else f" ({status.examples / status.total:.1%})"
    parts = [f"{status.examples:,}{of} questions{share}", f"{status.rate:.2f}/s"]
    if status.left is not None:
        parts.append(f"{clock(status.left)} left" if status.left >= 1 else f"took {clock(status.seconds)}")
    if status.skipped:
        parts.append(f"{status.skipped:,} done before")
    if status.errors:
        parts.append(f"{status.errors:,} errors")
    if status.repeated:
        parts.append(f"{status.repeated:,} ids twice, left out")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """Returns a time as ``1:02:03``, or ``2:03`` below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
