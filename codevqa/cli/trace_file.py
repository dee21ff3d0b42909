"""``--trace``: the page that shows how an answer came about."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..core.answer import Answer

Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html",
        help="Write a self-contained page too: the pictures, the program with the value at each line, and the evidence"
        " behind each call.",
    ),
]


def check_place(trace: Path | None) -> None:
    """Checks, before any model is loaded, that the page can be written, and replaces nothing but another page.

    Raises:
        InputError: it cannot.
    """
    from ..core.errors import InputError

    if trace is None:
        return
    try:
        folder = trace.parent
        if not folder.is_dir():
            raise InputError(
                f"Cannot write the trace {trace}: there is no folder {folder}.", hint="Make the folder first."
            )
        if trace.is_dir():
            raise InputError(f"Cannot write the trace {trace}: it is a folder.", hint="Give a file, such as out.html.")
        if not os.access(folder, os.W_OK):
            raise InputError(
                f"Cannot write the trace {trace}: you may not write to {folder}.", hint="Give another folder."
            )
        if trace.exists() and not _is_page(trace):
            raise InputError(
                f"Cannot write the trace {trace}: it exists and is not a trace page.", hint="Give another file."
            )
    except (OSError, ValueError) as error:  # a name too long, or one that no file can have
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot write the trace {str(trace)!r}: {reason}.", hint="Give another file.") from None


def write_trace(answer: Answer, trace: Path | None, quiet: bool) -> None:
    """Writes the page of an answer, where one is wanted.

    Raises:
        SetupError: it cannot be written.
    """
    from .show import warn

    if trace is None:
        return
    answer.save_html(trace)
    if not quiet:
        warn(f"trace written to {trace}")


def _is_page(file: Path) -> bool:
    """Says whether a file is a trace page: each names early on what wrote it."""
    if not file.is_file():  # a pipe would wait for its writer
        return False
    with file.open("rb") as opened:
        return b'<meta name="generator" content="codevqa ' in opened.read(2048)
