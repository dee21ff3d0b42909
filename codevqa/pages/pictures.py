"""Pictures on a page: inline, of bounded size, under their number and their file's name."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Sequence
from typing import NamedTuple

from cachetools import LRUCache, cached
from PIL import Image as PILImage

from ..core.images import Picture, cut
from ..core.trace import ImageRef, TraceValue
from .heat import shrink_picture
from .words import MOST, value_words

_KEPT = 512
"""Shrunk pictures kept ready: the demo shows the same ones at every call."""
MOST_NAMES = 10
"""Pictures whose file names stand beside their numbers."""


class PictureView(NamedTuple):
    """One picture on a page; ``uri`` is empty where the picture is not at hand."""

    uri: str
    alt: str


def picture_of(ref: ImageRef, pictures: Sequence[Picture]) -> Picture | None:
    """Returns the picture that a reference stands for, or None where it is not at hand."""
    whole = pictures[ref.index - 1] if 1 <= ref.index <= len(pictures) else None
    if whole is None or ref.part is None:
        return whole
    left, top, right, bottom = ref.part  # an answer that was read may say anything
    inside = 0 <= left < right <= whole.size[0] and 0 <= top < bottom <= whole.size[1]
    return cut(whole, ref.part) if inside else None


def picture_name(ref: ImageRef, pictures: Sequence[Picture]) -> str:
    """Returns how a picture is called: its number, and its file name where it has one."""
    picture = picture_of(ref, pictures)
    return f"{ref}, {picture.name}" if picture and picture.name else str(ref)


def picture_view(ref: ImageRef, pictures: Sequence[Picture], size: int) -> PictureView:
    """Returns one picture, at most ``size`` pixels a side."""
    picture = picture_of(ref, pictures)
    return PictureView(_uri(picture, size) if picture else "", picture_name(ref, pictures))


def named_words(value: TraceValue, pictures: Sequence[Picture], most: int = MOST) -> str:
    """Returns a value in words; pictures with their file names, which a program does not know them by."""
    refs = value if isinstance(value, list | tuple) else [value]
    if not 0 < len(refs) <= MOST_NAMES or not all(isinstance(ref, ImageRef) for ref in refs):
        return value_words(value, most)
    names = ", ".join(picture.name for ref in refs if (picture := picture_of(ref, pictures)) and picture.name)
    text = f"{value_words(value)}, {names}" if names else value_words(value)
    return text if len(text) <= MOST else f"{text[: MOST - 1].rstrip()}…"


def data_uri(image: PILImage.Image, quality: int = 82) -> str:
    """Returns a picture as a data URI."""
    data = io.BytesIO()
    image.save(data, "WEBP", quality=quality, method=0)  # the fastest: somebody waits for the page
    return f"data:image/webp;base64,{base64.b64encode(data.getvalue()).decode('ascii')}"


# By the key alone: the full picture is not held here.
@cached(LRUCache[tuple[str, int], str](_KEPT), key=lambda picture, size: (picture.key, size), lock=threading.Lock())
def _uri(picture: Picture, size: int) -> str:
    return data_uri(shrink_picture(picture, size))
