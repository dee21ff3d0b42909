"""IMAGE and ``--allow-url``: pictures from files, from standard input, and, where it is allowed, from the web."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..core.images import ImageSource, Picture

AllowUrl = Annotated[
    bool, typer.Option("--allow-url", help="Fetch pictures that are given as addresses of the web; else refuse them.")
]
STDIN = "-"


def read_pictures(words: Iterable[str], *, allow_url: bool = False) -> tuple[Picture, ...]:
    """Reads the pictures that a command names; ``-`` is standard input.

    Raises:
        ImageError: there is none, or one cannot be used.
        InputError: one lies on the web, which was not allowed.
    """
    from ..core.images import load_pictures

    return load_pictures([_stdin() if word == STDIN else source(word, allow_url=allow_url) for word in words])


def source(word: str, *, allow_url: bool, folder: Path = Path()) -> ImageSource:
    """Returns what a word names: a file, below the folder unless its path is absolute, or a picture of the web.

    Raises:
        ImageError: it cannot be fetched.
        InputError: it lies on the web, which was not allowed.
    """
    from ..core.web_picture import fetch_picture, is_url

    if not is_url(word):
        return folder / word
    if not allow_url:
        from ..core.errors import InputError

        raise InputError(f"{word} is an address of the web.", hint="Give --allow-url to fetch it.")
    return fetch_picture(word)


def _stdin() -> Picture:
    from ..core.images import MAX_BYTES, decode_picture

    return decode_picture(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
