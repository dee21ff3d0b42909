"""Reading pictures: any source a user has, to one upright RGB picture of bounded size."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeAlias

from PIL import Image as PILImage
from PIL import ImageOps, UnidentifiedImageError

from .errors import ImageError

ImageSource: TypeAlias = "str | os.PathLike[str] | bytes | PILImage.Image | Picture"

MAX_PIXELS = 64_000_000
"""Largest picture read, in pixels: about three times a phone camera's."""


@dataclass(frozen=True)
class Picture:
    """One picture, upright and in RGB, as every model receives it."""

    pixels: PILImage.Image = field(repr=False, compare=False)
    """The picture itself, mode RGB; treat it as read-only."""
    key: str
    """SHA-256 of size and pixels: equal pictures have equal keys."""
    name: str = ""
    """File name it came from, for messages; may be empty."""


def load_picture(source: ImageSource) -> Picture:
    """Reads one picture from a path, encoded bytes or a PIL image.

    Raises:
        ImageError: it is missing, not a picture, truncated, animated or too large.
    """
    if isinstance(source, Picture):
        return source
    if isinstance(source, PILImage.Image):
        return _opened(source)
    if isinstance(source, bytes | bytearray):
        return _decode(io.BytesIO(bytes(source)), "the given bytes")
    path = Path(source)
    try:
        if path.is_dir():  # which itself fails on a path too long, or in a folder closed to us
            raise ImageError(f"{path} is a folder, not a picture.", hint="Give the picture files.")
        with path.open("rb") as handle:
            return _decode(handle, str(path))
    except FileNotFoundError:
        raise ImageError(f"No picture at {path}.", hint="Check the path.") from None
    except OSError as error:
        raise ImageError(f"Cannot read {path}: {error.strerror or error}.") from None
    except ValueError as error:  # a NUL in the path
        raise ImageError(f"Cannot read {str(path)!r}: {error}.") from None


def load_pictures(sources: ImageSource | Sequence[ImageSource]) -> tuple[Picture, ...]:
    """Reads one picture or several; at least one is needed.

    Raises:
        ImageError: a picture cannot be used, or the list is empty.
    """
    given = each(sources)
    if not given:
        raise ImageError("No picture was given.", hint="Give at least one.")
    return tuple(load_picture(source) for source in given)


def each(sources: ImageSource | Sequence[ImageSource]) -> tuple[ImageSource, ...]:
    """Returns one source or several as several."""
    if isinstance(sources, list | tuple):
        return tuple(sources)
    return (sources,)  # type: ignore[return-value]


def _opened(image: PILImage.Image) -> Picture:
    name = getattr(image, "filename", "") or ""
    try:
        return _upright(image, name)
    except ImageError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # Pillow reads an open file only now
        raise ImageError(f"{name or 'The given picture'} cannot be read: {error}.", hint="Open it again.") from None


def _decode(handle: IO[bytes], name: str) -> Picture:
    try:
        with warnings.catch_warnings():
            # Pillow only warns between its limit and twice its limit; ours is checked below, before any decoding.
            warnings.simplefilter("ignore", PILImage.DecompressionBombWarning)
            with PILImage.open(handle) as image:
                return _upright(image, name)
    except ImageError:
        raise
    except PILImage.DecompressionBombError:
        raise ImageError(f"{name} is too large.", hint=f"The limit is {MAX_PIXELS:,} pixels: shrink it.") from None
    except UnidentifiedImageError:
        raise ImageError(f"{name} is not a picture this can read.", hint="Use PNG, JPEG or WebP.") from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise ImageError(f"{name} is damaged: {error}.", hint="Save it again.") from None


def _upright(image: PILImage.Image, name: str) -> Picture:
    shown = name or "the given picture"
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageError(f"{shown} is empty ({width}x{height}).")
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{shown} is too large ({width}x{height}).", hint=f"The limit is {MAX_PIXELS:,} pixels: shrink it."
        )
    if getattr(image, "n_frames", 1) > 1:
        raise ImageError(f"{shown} is animated ({image.n_frames} frames).", hint="Save the frame you mean.")  # type: ignore[attr-defined]
    upright = ImageOps.exif_transpose(image)
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        # Transparent pixels hold arbitrary colours: show what a viewer shows on white paper.
        layered = upright.convert("RGBA")
        upright = PILImage.alpha_composite(PILImage.new("RGBA", layered.size, "white"), layered)
    pixels = upright.convert("RGB")
    digest = hashlib.sha256(f"{pixels.size}".encode() + pixels.tobytes()).hexdigest()
    return Picture(pixels, digest, Path(name).name if name else "")
