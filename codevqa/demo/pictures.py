"""Pictures of the demo: those that ship with it, and those of visitors, read with care."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from ..collections.collection import Collection
from ..core.answer import Answer
from ..core.errors import ImageError
from ..core.images import FORMATS, Picture, decode_picture
from ..pages import LARGE
from .limits import DemoLimits

HERE = Path(__file__).resolve().parent / "pictures"
NAME = 60
"""Longest file name shown in a message."""


def shipped_questions() -> list[tuple[list[str], str]]:
    """Returns the examples that ship with the package: the files of their pictures, and their questions."""
    rows = json.loads((HERE / "questions.json").read_text("utf-8"))
    return [([str(HERE / name) for name in row["images"]], row["question"]) for row in rows]


def shipped_answers() -> list[Answer]:
    """Returns the answer of the preset ``mini`` to the first example, with a program and without one."""
    return [Answer.from_dict(record) for record in json.loads((HERE / "first.json").read_text("utf-8"))]


def thumbnails(images: Sequence[str], folder: Path) -> str:
    """Writes pictures side by side into one small file of a folder; returns its place."""
    strip = Image.new("RGBA", (72 * len(images), 72))
    for place, path in enumerate(images):
        with Image.open(path) as image:
            strip.paste(image.convert("RGB").resize((68, 68)), (72 * place + 2, 2))
    name = folder / f"{'-'.join(Path(one).stem for one in images)}.png"
    strip.save(name)
    return str(name)


class _Uploads(Collection):
    """Uploads as a collection: each is named by its file alone, never by a path of this machine."""

    by_path = False


def read_uploads(paths: Sequence[str], limits: DemoLimits, folder: Path, index: Path) -> tuple[Picture, ...]:
    """Reads the pictures of one question; many stay in their files until they are looked at.

    Args:
        paths: the files.
        limits: how many, and how large.
        folder: where uploads lie: no other file of this machine is read, whatever a client names.
        index: folder for what is learnt of many pictures, the visitor's own.

    Raises:
        ImageError: there is none, there are too many, or one cannot be used; the message names the file as the visitor
            knows it, never a path of this machine.
    """
    if not paths:
        raise ImageError("There is no picture yet.", hint="Drop one in, take one with the camera, or pick an example.")
    if len(paths) > limits.pictures:
        raise ImageError(f"These are {len(paths)} pictures.", hint=f"The limit is {limits.pictures}: take some away.")
    inside = folder.resolve()
    if len(paths) <= LARGE:
        return tuple(decode_picture(*_read_content(Path(path), limits, inside)) for path in paths)
    if sum(len(_read_content(Path(path), limits, inside)[0]) for path in paths) > limits.question_bytes:
        raise ImageError(
            "These pictures are too large together.", hint=f"The limit is {limits.question_bytes >> 20} MB: give fewer."
        )
    uploads = _Uploads(paths, index=index)
    pictures = uploads.open()
    for file in uploads.left_out:
        raise ImageError(f"{_short(file.name)} is damaged.", hint="Save it again, or take it away.")
    return pictures


def _short(name: str) -> str:
    return name if len(name) <= NAME else f"{name[:NAME]}..."


def _read_content(path: Path, limits: DemoLimits, inside: Path) -> tuple[bytes, str]:
    """Returns what is in a file, once its header is checked, and its name."""
    name = _short(path.name)
    try:
        if not path.resolve().is_relative_to(inside):
            raise ImageError("A picture was named that was not uploaded.", hint="gradio_client.handle_file uploads it.")
        if not path.is_file():
            raise FileNotFoundError
        if path.stat().st_size > limits.upload_bytes:
            raise ImageError(f"{name} is too large a file.", hint=f"The limit is {limits.upload_bytes >> 20} MB.")
        content = path.read_bytes()
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:  # reads the header alone
            width, height = image.size
    except FileNotFoundError:
        raise ImageError(f"{name} is no longer here.", hint="Give it again.") from None
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError):
        raise ImageError(f"{name} is not a picture this can read.", hint="Use PNG, JPEG or WebP.") from None
    if width * height > limits.pixels:
        raise ImageError(f"{name} is too large ({width}x{height}).", hint=f"The limit is {limits.pixels:,} pixels.")
    return content, name
