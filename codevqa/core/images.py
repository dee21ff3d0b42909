"""Reading pictures: any source a user has, to one upright RGB picture of bounded size."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import threading
from collections.abc import Callable, Sequence
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
MAX_CUT = 1536
"""Longest side of a part that is cut out, in pixels: a program may hold hundreds, and models see no more."""
MAX_BYTES = 256 << 20
"""Largest file read: more than such a picture takes without compression."""
MAX_PICTURES = 1_000
"""Most pictures of one question that are given one by one: they are decoded all at once."""

_READABLE = "Use PNG, JPEG or WebP."
_INSIDE = "Give the picture files. For a folder or zip file, in Python: codevqa.Collection(PATH)."
_SHOWN = 200
"""Longest path shown in a message, in characters."""
_OPENED = threading.Lock()
"""Held while a PIL picture is copied: Pillow decodes an opened file late, and not safely from two threads at once."""


@dataclass(frozen=True)
class Picture:
    """One picture, upright and in RGB, as every model receives it."""

    pixels: PILImage.Image = field(repr=False, compare=False)
    """The picture itself, mode RGB; treat it as read-only."""
    key: str
    """SHA-256 of size and pixels: equal pictures have equal keys."""
    name: str = ""
    """File name it came from, for messages; may be empty."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.pixels.size

    def measure(self, name: str, compute: Callable[[PILImage.Image], float]) -> float:
        """Returns a number that depends on the pixels alone. Where it is kept beside the picture, it has a name."""
        return compute(self.pixels)


FrozenSource: TypeAlias = "str | os.PathLike[str] | bytes | Picture | ImageError"
"""A source that its owner cannot change any more, or why it cannot be used."""


def freeze_sources(
    sources: ImageSource | FrozenSource | Sequence[ImageSource | FrozenSource],
) -> tuple[FrozenSource, ...]:
    """Reads pictures that may change: arrays, PIL images and bytearrays. Paths and bytes stay as they are.

    Call it in the thread that was given them, before that thread goes on. It never raises: an error is raised when
    its picture is loaded.
    """
    pictures = sources if isinstance(sources, list | tuple) else (sources,)
    if len(pictures) > MAX_PICTURES and not all(isinstance(picture, Picture) for picture in pictures):
        hint = f"The limit is {MAX_PICTURES:,} a question: give a Collection of their files."
        return (ImageError(f"These are {len(pictures):,} pictures.", hint=hint),)
    return tuple(map(_freeze_source, pictures))


def load_picture(source: ImageSource | FrozenSource) -> Picture:
    """Reads one picture from a path, encoded bytes, a PIL image or a NumPy array of bytes.

    Raises:
        ImageError: it is missing, not a picture, truncated, animated or too large.
    """
    source = _freeze_source(source)
    if isinstance(source, ImageError):
        raise source
    if isinstance(source, Picture):
        return source
    if isinstance(source, bytes):
        return decode_picture(source, "the given bytes")
    if not isinstance(source, str | os.PathLike):
        raise ImageError(
            f"A picture is a path, bytes, a PIL image or a NumPy array, not {type(source).__name__}.",
            hint="Give one, or a list.",
        )
    path = os.fsdecode(source)
    shown = shown_path(path)
    try:
        # A pipe would wait for its writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ImageError(f"{shown} is not a file.", hint="Give the picture files.")
            _check_bytes(status.st_size, shown)
            return _decode(file, shown, Path(path).name)
    except IsADirectoryError:
        raise ImageError(f"{shown} is a folder, not a picture.", hint=_INSIDE) from None
    except FileNotFoundError:
        hint = "Download it first, and give its file." if "://" in path else "Check the path."
        raise ImageError(f"No picture at {shown}.", hint=hint) from None
    except OSError as error:
        raise ImageError(f"Cannot read {shown}: {error.strerror or error}.") from None
    except ValueError as error:  # a NUL in the path
        raise ImageError(f"Cannot read {shown}: {error}.") from None


def decode_picture(content: bytes, name: str) -> Picture:
    """Reads a picture from encoded bytes; the name says in messages where they come from.

    Raises:
        ImageError: as :func:`load_picture` says.
    """
    _check_bytes(len(content), name)
    return _decode(io.BytesIO(content), name, Path(name).name)


def load_pictures(sources: ImageSource | FrozenSource | Sequence[ImageSource | FrozenSource]) -> tuple[Picture, ...]:
    """Reads one picture or several; at least one is needed.

    Raises:
        ImageError: a picture cannot be used, the list is empty, or there are too many.
    """
    pictures = freeze_sources(sources)
    if not pictures:
        raise ImageError("No picture was given.", hint="Give at least one.")
    return tuple(map(load_picture, pictures))


def cut(picture: Picture, part: tuple[int, int, int, int]) -> Picture:
    """Returns a part of a picture, shrunk to :data:`MAX_CUT`: left, top, right and bottom in pixels, inside of it."""
    pixels = picture.pixels.crop(part)
    pixels.thumbnail((MAX_CUT, MAX_CUT))
    return Picture(pixels, _key(pixels), picture.name)


def _freeze_source(source: ImageSource | FrozenSource) -> FrozenSource:
    try:
        if isinstance(source, PILImage.Image):
            return _of_opened(source)
        if isinstance(source, bytearray):
            _check_bytes(len(source), "the given bytes")
            return bytes(source)
        return _of_array(source) if hasattr(source, "__array_interface__") else source
    except ImageError as error:
        return error


def _of_opened(image: PILImage.Image) -> Picture:
    path = os.fsdecode(getattr(image, "filename", ""))
    shown = shown_path(path) if path else "The given picture"
    # A file that was opened is not decoded yet, and any format may have been.
    if getattr(image, "tile", None) and getattr(image, "format", None) not in (*FORMATS, "MPO"):
        raise ImageError(f"{shown} is {image.format}.", hint=_READABLE)
    try:
        _check_size(image.size, shown)
        with _OPENED:
            _check_still(image, shown)
            return _in_rgb(ImageOps.exif_transpose(image), shown, Path(path).name, _levels(image))
    except ImageError:
        raise
    except Exception as error:  # noqa: BLE001 - as in _decode; Pillow reads an open file only now
        raise ImageError(f"{shown} cannot be read: {_error_text(error)}.", hint="Convert it to RGB.") from None


def _of_array(array: Any) -> Picture:
    shape, kind = tuple(getattr(array, "shape", ())), str(getattr(array, "dtype", type(array).__name__))
    if kind != "uint8" or 0 in shape or not (len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4))):
        raise ImageError(
            f"An array of {kind} and shape {shape} is no picture.",
            hint="Give uint8 from 0 to 255: height and width, and 3 colours or 4 with transparency as the last axis.",
        )
    _check_size((shape[1], shape[0]), "The given array")
    return _in_rgb(PILImage.fromarray(array.copy()), "The given array", "")  # Pillow lays some over the array's memory


def _decode(file: IO[bytes], shown: str, name: str) -> Picture:
    try:
        with PILImage.open(file, formats=FORMATS) as image:
            _check_size(image.size, shown)
            _check_still(image, shown)
            levels = _levels(image)
            ImageOps.exif_transpose(image, in_place=True)
            return _in_rgb(image, shown, name, levels)
    except ImageError:
        raise
    except (PILImage.DecompressionBombError, PILImage.DecompressionBombWarning):
        raise ImageError(f"{shown} is too large.", hint=f"The limit is {MAX_PIXELS:,} pixels: shrink it.") from None
    except UnidentifiedImageError:
        hint = _INSIDE if shown.lower().endswith(".zip") else _READABLE
        raise ImageError(f"{shown} is not a picture this can read.", hint=hint) from None
    except Exception as error:  # noqa: BLE001 - of damaged bytes Pillow's decoders raise TypeError and IndexError too
        raise ImageError(f"{shown} is damaged: {_error_text(error)}.", hint="Save it again.") from None


def _levels(image: PILImage.Image) -> tuple[int, int]:
    """Returns the numbers of black and of white in a grey picture of more than eight bits, which TIFF's tags tell."""
    tags = getattr(image, "tag_v2", {})
    most = (1 << int(tags.get(258, (16,))[0])) - 1  # BitsPerSample
    return (most, 0) if tags.get(262) == 0 else (0, most)  # PhotometricInterpretation: white is zero


def _in_rgb(image: PILImage.Image, shown: str, name: str, levels: tuple[int, int] = (0, 65_535)) -> Picture:
    if image.mode in ("I", "F"):  # nobody can tell which of its numbers is white
        raise ImageError(f"{shown} holds numbers of 32 bits.", hint="Scale them to 0 to 255, and save them as 8 bits.")
    if image.mode.startswith("I;16"):
        image = _in_grey(image, *levels)
    if image.mode == "La":
        image = image.convert("LA")
    if image.mode in ("RGBA", "RGBa", "LA", "PA") or "transparency" in image.info:
        # Transparent pixels hold arbitrary colours: show what a viewer shows on white paper.
        layered = image.convert("RGBA")
        image = PILImage.alpha_composite(PILImage.new("RGBA", layered.size, "white"), layered)
    pixels = image if type(image) is PILImage.Image and image.mode == "RGB" else image.convert("RGB")
    return Picture(pixels, _key(pixels), name)


def _key(pixels: PILImage.Image) -> str:
    return hashlib.sha256(f"{pixels.size}".encode() + pixels.tobytes()).hexdigest()


def _in_grey(image: PILImage.Image, black: int, white: int) -> PILImage.Image:
    """Returns a picture of up to 16 bits in eight, on which Pillow would cut off all that is above 255."""
    import numpy as np

    values = np.asarray(image)
    grey = np.rint((values.astype(np.float32) - black) * np.float32(255 / (white - black))).astype(np.uint8)
    clear = image.info.get("transparency")
    return PILImage.fromarray(grey if clear is None else np.where(values == clear, np.uint8(255), grey))


def _check_bytes(count: int, name: str) -> None:
    if count > MAX_BYTES:
        raise ImageError(f"{name} is too large a file.", hint=f"The limit is {MAX_BYTES >> 20} MB: shrink it.")


def _check_size(size: tuple[int, int], shown: str) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise ImageError(f"{shown} is empty ({width}x{height}).")
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise ImageError(
            f"{shown} is too large ({width}x{height}).",
            hint=f"The limit is {MAX_PIXELS:,} pixels, {MAX_SIDE:,} a side: shrink it.",
        )


def _check_still(image: PILImage.Image, shown: str) -> None:
    # The second frame of a phone's MPO is the same scene for the other eye, or smaller.
    # To count frames, Pillow walks through all of them: a minute for a GIF of millions.
    if image.format != "MPO" and getattr(image, "is_animated", False):
        raise ImageError(f"{shown} is animated.", hint="Save the frame you mean.")


def _error_text(error: Exception) -> str:
    return " ".join(str(error).split())


def shown_path(path: str) -> str:
    """Returns a path as one short line."""
    text = path if path.isprintable() else repr(path)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}...{text[-_SHOWN // 4 :]}"
