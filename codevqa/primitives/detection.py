"""What programs can do with a detector: boxes of objects, their number, and the part of a picture that shows one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Annotated

from ..core.images import cut
from ..core.trace import Evidence
from ..models.protocols import Box, DetectRequest
from ..prompts import ProgramExample
from .context import CallContext
from .judging import choose_images
from .kinds import Image
from .signature import GRID, PrimitiveSet, primitive

MARGIN = 0.1
"""Share of its sides that is left around the box of an object that is cut out."""
_COUNTED = (
    ProgramExample("count-1", "How many chairs are there?", 'answer = count(img, "chair")'),
    ProgramExample("count-2", "Are there more dogs than cats?", 'answer = count(img, "dog") > count(img, "cat")'),
    ProgramExample(
        "count-3",
        "Are there at least three bottles in the images?",
        'bottles = sum(count(img, "bottle") for img in images)\nanswer = bottles >= 3',
        "set",
    ),
)
_CUT = (
    ProgramExample("crop-1", "What does the sign say?", 'answer = query(crop(img, "sign"), "What does the sign say?")'),
    ProgramExample(
        "crop-2",
        "Is the man's hat red?",
        'man = crop(img, "man")\nhat = crop(man, "hat")\nanswer = query(hat, "Is the hat red?")',
    ),
)


@primitive(ahead=True)
async def find_object(context: CallContext, img: Image, object: str) -> list[tuple[float, float, float, float]]:
    """Returns a box (left, bottom, right, top) for each such object in the image.

    Boxes of an open-vocabulary detector on the 24x24 grid, y upwards, best first.
    """
    return [on_grid(box, img) for box in await boxes_of(context, "find_object", img, object)]


@primitive(ahead=True, examples=_COUNTED)
async def count(context: CallContext, img: Annotated[Image | list[Image], Image], object: str) -> int:
    """Returns how many such objects are in the image.

    The number of boxes of an open-vocabulary detector. For a list of images, the number that ``select`` selects.
    """
    if isinstance(img, list):
        return len(await choose_images(context, "count", img, object))
    if not context.services.detects:
        raise ValueError(
            "count() needs a detector for one image. Give a list of images, or ask query(img, 'How many ...?')"
        )
    return len(await boxes_of(context, "count", img, object))


@primitive(ahead=True, examples=_CUT)
async def crop(context: CallContext, img: Image, object: str) -> Image:
    """Returns the part of the image that shows the object, as an Image.

    The best box of an open-vocabulary detector with a tenth of its sides around it. The whole image if there is no box.
    """
    boxes = await boxes_of(context, "crop", img, object, most=1)
    if not boxes:
        return img
    box = boxes[0]
    across, down = MARGIN * (box.right - box.left), MARGIN * (box.bottom - box.top)
    left, top = max(0, int(box.left - across)), max(0, int(box.top - down))
    right, bottom = min(img.width, math.ceil(box.right + across)), min(img.height, math.ceil(box.bottom + down))
    part = (min(left, img.width - 1), min(top, img.height - 1), max(right, left + 1), max(bottom, top + 1))
    return Image(img.index, await asyncio.to_thread(cut, img.picture, part), img.within(part))


DETECTION = PrimitiveSet([find_object, count, crop])
"""Offered where there is a detector."""


async def boxes_of(
    context: CallContext, name: str, img: Image, phrase: str, *, most: int | None = None, centred: bool = False
) -> Sequence[Box]:
    """Returns the boxes that a detector finds, best first, and records them; ``centred``: with the centre of the best.

    Raises:
        ValueError: the phrase is empty.
    """
    if not phrase.strip():
        raise ValueError(f"{name}() needs the name of an object, not an empty string")
    boxes = (await context.services.detect(DetectRequest(img.picture, phrase)))[:most]
    context.record(
        Evidence(
            kind="detection",
            images=(img.ref,),
            text=phrase,
            scores=tuple(box.score for box in boxes),
            boxes=tuple(on_grid(box, img) for box in boxes),
            position=centre(on_grid(boxes[0], img)) if centred and boxes else None,
        )
    )
    return boxes


def on_grid(box: Box, img: Image) -> tuple[float, float, float, float]:
    """Returns left, bottom, right and top of a box on the grid of programs, y upwards."""
    across, up = GRID / img.width, GRID / img.height
    return box.left * across, GRID - box.bottom * up, box.right * across, GRID - box.top * up


def centre(box: tuple[float, float, float, float]) -> tuple[float, float]:
    """Returns the centre of a box on the grid."""
    left, bottom, right, top = box
    return (left + right) / 2, (bottom + top) / 2
