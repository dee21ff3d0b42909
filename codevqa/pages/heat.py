"""Heat maps over pictures, places on them, and the patches that a caption saw.

A relevance map lies over the whole picture: the models see every picture stretched to a square, so a cell of the grid
is a rectangle of the picture's own proportions. Maps of any grid are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cache
from threading import Lock

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache, cached
from PIL import Image as PILImage
from PIL import ImageChops, ImageColor, ImageFilter

from ..core.images import Picture
from ..primitives.signature import GRID

Relevance = Sequence[Sequence[float]] | npt.NDArray[np.floating]

_HEAT = ["#000004", "#1f0c48", "#550f6d", "#88226a", "#ba3655", "#e35933", "#f98c0a", "#f9c932", "#fcffa4"]
"""Evenly spaced colors of matplotlib's inferno (public domain, CC0): lightness rises evenly, also without red-green."""
_COLORED = 0.6
"""How much of the picture's own color stays under a heat map: a gray ground keeps the scale readable."""
_LEAST, _MOST = 0.36, 0.74
"""Opacity of the heat map where relevance is least and greatest."""
_DIMMED = 0.28
"""Brightness of the patches that a caption did not see."""
_OUTLINE = (255, 214, 74)
_KEPT = 32
"""Shrunk pictures kept ready: each caption shows the same one."""


def heat_gradient() -> str:
    """Returns the heat scale as a CSS gradient, least on the left."""
    return f"linear-gradient(to right, {', '.join(_HEAT)})"


def relevance_grid(relevance: Relevance) -> npt.NDArray[np.float64] | None:
    """Returns a map as an array within 0..1, where 1 is its greatest value; None where there is nothing to draw.

    Negative and non-finite relevance counts as none. A map that is everywhere zero, empty or ragged is no map.
    """
    try:
        grid = np.asarray(relevance, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if grid.ndim != 2 or not grid.size:
        return None
    grid = np.where(np.isfinite(grid), grid, 0.0).clip(min=0.0)
    most = grid.max()
    return grid / most if most > 0 else None


def overlay(picture: Picture | None, grid: npt.NDArray[np.float64], size: int) -> PILImage.Image:
    """Draws a heat map over a picture, bilinearly smoothed.

    Args:
        picture: what the map is about; None draws the map alone, on a square.
        grid: the map as :func:`relevance_grid` gives it.
        size: longest side of the result in pixels, at most.

    Returns:
        An RGB picture.
    """
    ground = shrink_picture(picture, size) if picture else PILImage.new("RGB", (size, size), (128, 128, 128))
    # All in Pillow's own loops: this is done for every call while somebody watches.
    cells = PILImage.fromarray((255 * grid).round().astype(np.uint8))
    share = cells.resize(ground.size, PILImage.Resampling.BILINEAR)
    muted = PILImage.blend(ground.convert("L").convert("RGB"), ground, _COLORED)
    color = share.copy()
    color.putpalette(_palette())
    alpha = share.point([round(255 * _LEAST + (_MOST - _LEAST) * step) for step in range(256)])
    return PILImage.composite(color.convert("RGB"), muted, alpha)


def patch_view(picture: Picture | None, patches: Sequence[int], grid: tuple[int, int], size: int) -> PILImage.Image:
    """Draws a picture dimmed except at some patches, which are outlined.

    Args:
        picture: the picture; None shows the places alone.
        patches: indices of patches, counted along the rows from the top left.
        grid: rows and columns of patches.
        size: longest side of the result in pixels.
    """
    rows, columns = grid
    seen = np.zeros(rows * columns, dtype=np.uint8)
    seen[[index for index in patches if 0 <= index < seen.size]] = 1
    ground = shrink_picture(picture, size) if picture else PILImage.new("RGB", (size, size), (150, 150, 150))
    mask = PILImage.fromarray(255 * seen.reshape(rows, columns)).resize(ground.size, PILImage.Resampling.NEAREST)
    drawn = PILImage.composite(ground, ground.point(lambda value: value * _DIMMED), mask)
    drawn.paste(_OUTLINE, mask=ImageChops.subtract(mask, mask.filter(ImageFilter.MinFilter(3))))
    return drawn


def peak_place(grid: npt.NDArray[np.float64]) -> str:
    """Says in words where a map is greatest, such as ``the upper left``."""
    row, column = divmod(int(np.argmax(grid)), grid.shape[1])
    return place_words((column + 0.5) / grid.shape[1], (row + 0.5) / grid.shape[0])


def spot(position: tuple[float, float]) -> tuple[float, float]:
    """Returns where a point of a program's grid, y upwards, lies in percent of the picture from its upper left."""
    across, up = (min(max(100 * place / GRID, 0.0), 100.0) for place in position)
    return round(across, 2), round(100 - up, 2)


def box_percent(box: Sequence[float]) -> tuple[float, float, float, float]:
    """Returns left, top, width and height, in percent of the picture, of a box of a program's grid, y upwards."""
    left, bottom, right, top = (min(max(side, 0.0), float(GRID)) if math.isfinite(side) else 0.0 for side in box)
    percent = (left, GRID - top, max(0.0, right - left), max(0.0, top - bottom))
    return tuple(round(100 * side / GRID, 2) for side in percent)  # type: ignore[return-value]


def place_words(across: float, down: float) -> str:
    """Says which third of a picture a point is in, such as ``the upper left``; places in shares of the picture."""
    side = "left" if across < 1 / 3 else "right" if across >= 2 / 3 else ""
    up = "upper" if down < 1 / 3 else "lower" if down >= 2 / 3 else ""
    if up and side:
        return f"the {up} {side}"
    return {"upper": "the top", "lower": "the bottom"}.get(up) or (f"the {side}" if side else "the middle")


@cached(LRUCache[Hashable, PILImage.Image](_KEPT), key=lambda picture, size: (picture.key, size), lock=Lock())
def shrink_picture(picture: Picture, size: int) -> PILImage.Image:
    """Returns a copy of a picture whose longest side is ``size`` pixels at most.

    The next one is given the same copy, so it is not to be drawn on.
    """
    full = picture.pixels
    scale = size / max(full.size)
    if scale >= 1:
        return full.copy()
    fitting = (max(1, round(full.width * scale)), max(1, round(full.height * scale)))
    return full.resize(fitting, PILImage.Resampling.LANCZOS, reducing_gap=3.0)


@cache
def _palette() -> bytes:
    steps = np.linspace(0, 255, len(_HEAT))
    channels = np.array([ImageColor.getrgb(color) for color in _HEAT], dtype=np.float64).T
    table = np.stack([np.interp(np.arange(256), steps, channel) for channel in channels], axis=-1)
    return bytes(table.round().astype(np.uint8).tobytes())
