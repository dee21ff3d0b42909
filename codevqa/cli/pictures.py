"""IMAGE: pictures from files, or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.images import Picture

STDIN = "-"


def read_pictures(words: Iterable[str]) -> tuple[Picture, ...]:
    """Reads the pictures that a command names; ``-`` is standard input.

    Raises:
        ImageError: there is none, or one cannot be used.
        InputError: one is a web address.
    """
    from ..core.images import load_pictures

    return load_pictures([_stdin() if word == STDIN else source(word) for word in words])


def source(word: str, folder: Path = Path()) -> Path:
    """Returns the file that a word names, below the folder unless its path is absolute.

    Raises:
        InputError: it is a web address.
    """
    if word.lower().startswith(("http://", "https://")):
        from ..core.errors import InputError

        raise InputError(
            f"{word} is a web address, not a file.",
            hint="Download the picture: curl ADDRESS | codevqa ask - ...",
        )
    return folder / word


def _stdin() -> Picture:
    from ..core.images import MAX_BYTES, decode_picture

    return decode_picture(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
