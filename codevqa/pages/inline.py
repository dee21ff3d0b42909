"""Pictures as data URIs of bounded size."""

from __future__ import annotations

import base64
import io
import threading

from cachetools import LRUCache, cached
from PIL import Image as PILImage
from PIL import features

from ..core.images import Picture
from .heat import fitted

__all__ = ["data_uri", "picture_uri"]

_KEPT = 128
"""Shrunk pictures kept ready: the demo shows the same ones at every call."""


def data_uri(image: PILImage.Image, quality: int = 82) -> str:
    """Returns a picture as a data URI: WebP, or PNG where this Pillow cannot write WebP."""
    data = io.BytesIO()
    if features.check("webp"):
        image.save(data, "WEBP", quality=quality, method=0)  # the fastest: somebody waits for the page
        kind = "webp"
    else:
        image.save(data, "PNG", optimize=True)
        kind = "png"
    return f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode('ascii')}"


# By the key alone: the full picture is not held here.
@cached(LRUCache[tuple[str, int], str](_KEPT), key=lambda picture, size: (picture.key, size), lock=threading.Lock())
def picture_uri(picture: Picture, size: int) -> str:
    """Returns a picture, shrunk to at most ``size`` pixels a side, as a data URI. Safe from any thread."""
    return data_uri(fitted(picture, size))
