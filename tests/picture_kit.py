"""A picture whose pixels all differ, and pictures as files."""

import io

import numpy as np
from PIL import Image


def drawn() -> Image.Image:
    return Image.fromarray(np.arange(30 * 20 * 3, dtype=np.uint8).reshape(20, 30, 3))


def png(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **options)
    return buffer.getvalue()
