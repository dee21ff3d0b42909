"""Reading pictures: any source a user has, to one upright RGB picture of bounded size."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from PIL import Image as PILImage
from PIL import ImageOps, UnidentifiedImageError

from .errors import ImageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ImageSource: TypeAlias = "str | os.PathLike[str] | bytes | PILImage.Image | npt.NDArray[np.uint8] | Picture"

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
"""What is read, by Pillow's names; a JPEG may turn out to be an MPO, as phones write it. Pillow knows many more: for
EPS it would run Ghostscript, without limit of time, and others cost seconds before a pixel is seen."""
MAX_PIXELS = 64_000_000
"""Largest picture read, in pixels: about three times a phone camera's."""
MAX_SIDE = 32_768
"""Longest side read: a row of millions of pixels costs hundreds of bytes for each."""
MAX_BYTES = 256 << 20
"""Largest file read: more than such a picture takes without compression."""

_READABLE = "Use PNG, JPEG or WebP."


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
    """Reads one picture from a path, encoded bytes, a PIL image or a NumPy array of bytes.

    Raises:
        ImageError: it is missing, not a picture, truncated, animated or too large.
    """
    if isinstance(source, Picture):
        return source
    if isinstance(source, PILImage.Image):
        return _opened(source)
    if hasattr(source, "__array_interface__"):
        return _opened(_of_array(source))
    if isinstance(source, bytes | bytearray):
        return decode_picture(bytes(source), "the given bytes")
    if not isinstance(source, str | os.PathLike):
        raise ImageError(
            f"A picture is a path, bytes, a PIL image or a NumPy array, not {type(source).__name__}.",
            hint="Give one, or a list.",
        )
    path = Path(source)
    try:
        # A pipe would wait for its writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as handle:
            found = os.fstat(handle.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ImageError(f"{path} is not a file.", hint="Give the picture files.")
            _check_bytes(found.st_size, str(path))
            return _decode(handle, str(path))
    except IsADirectoryError:
        raise ImageError(f"{path} is a folder, not a picture.", hint="Give the picture files.") from None
    except FileNotFoundError:
        raise ImageError(f"No picture at {path}.", hint="Check the path.") from None
    except OSError as error:
        raise ImageError(f"Cannot read {path}: {error.strerror or error}.") from None
    except ValueError as error:  # a NUL in the path
        raise ImageError(f"Cannot read {str(path)!r}: {error}.") from None


def decode_picture(content: bytes, name: str) -> Picture:
    """Reads a picture from encoded bytes; the name says in messages where they come from.

    Raises:
        ImageError: as :func:`load_picture` says.
    """
    _check_bytes(len(content), name)
    return _decode(io.BytesIO(content), name)


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


def _check_bytes(count: int, name: str) -> None:
    if count > MAX_BYTES:
        raise ImageError(f"{name} is too large a file.", hint=f"The limit is {MAX_BYTES >> 20} MB: shrink it.")


def _of_array(array: Any) -> PILImage.Image:
    shape, kind = tuple(array.shape), str(array.dtype)
    if kind != "uint8" or 0 in shape or not (len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4))):
        raise ImageError(
            f"An array of {kind} and shape {shape} is no picture.",
            hint="Give uint8 from 0 to 255: height and width, and 3 colours or 4 with transparency as the last axis.",
        )
    return PILImage.fromarray(array)


def _opened(image: PILImage.Image) -> Picture:
    name = getattr(image, "filename", "") or ""
    if getattr(image, "tile", None) and getattr(image, "format", None) not in (*FORMATS, "MPO"):  # not decoded yet
        raise ImageError(f"{name or 'The given picture'} is {image.format}.", hint=_READABLE)
    try:
        return _upright(image, name)
    except ImageError:
        raise
    except Exception as error:  # noqa: BLE001 - as in _decode; Pillow reads an open file only now
        shown = name or "The given picture"
        raise ImageError(f"{shown} cannot be read: {_said(error)}.", hint="Open it again.") from None


def _decode(handle: IO[bytes], name: str) -> Picture:
    try:
        with warnings.catch_warnings():
            # Of what is odd in a file that can be read all the same. Pillow also only warns between its limit of
            # pixels and twice as many; ours is checked below, before any decoding.
            warnings.simplefilter("ignore")
            with PILImage.open(handle, formats=FORMATS) as image:
                return _upright(image, name)
    except ImageError:
        raise
    except PILImage.DecompressionBombError:
        raise ImageError(f"{name} is too large.", hint=f"The limit is {MAX_PIXELS:,} pixels: shrink it.") from None
    except UnidentifiedImageError:
        raise ImageError(f"{name} is not a picture this can read.", hint=_READABLE) from None
    except Exception as error:  # noqa: BLE001 - of damaged bytes Pillow's decoders raise TypeError and IndexError too
        raise ImageError(f"{name} is damaged: {_said(error)}.", hint="Save it again.") from None


def _said(error: Exception) -> str:
    return " ".join(str(error).split())


def _upright(image: PILImage.Image, name: str) -> Picture:
    shown = name or "the given picture"
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageError(f"{shown} is empty ({width}x{height}).")
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise ImageError(
            f"{shown} is too large ({width}x{height}).",
            hint=f"The limit is {MAX_PIXELS:,} pixels, {MAX_SIDE:,} a side: shrink it.",
        )
    # The second frame of a phone's MPO is the same scene for the other eye, or smaller.
    # To count frames, Pillow walks through all of them: a minute for a GIF of millions.
    if image.format != "MPO" and getattr(image, "is_animated", False):
        raise ImageError(f"{shown} is animated.", hint="Save the frame you mean.")
    upright = ImageOps.exif_transpose(image)
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        # Transparent pixels hold arbitrary colours: show what a viewer shows on white paper.
        layered = upright.convert("RGBA")
        upright = PILImage.alpha_composite(PILImage.new("RGBA", layered.size, "white"), layered)
    pixels = upright.convert("RGB")
    digest = hashlib.sha256(f"{pixels.size}".encode() + pixels.tobytes()).hexdigest()
    return Picture(pixels, digest, Path(name).name if name else "")
