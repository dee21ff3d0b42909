"""A plugin: one primitive for programs, and one data set for ``codevqa eval brightness/bright``."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from codevqa import Image, primitive
from codevqa.eval.task import DatasetPicture, Example
from codevqa.plugins import register_dataset


@primitive
def brightness(img: Image) -> float:
    """Returns how bright the image is, between 0 (black) and 1 (white)."""
    return float(np.asarray(img.picture.pixels).mean() / 255)


@register_dataset("bright")
def bright(folder: Path, split: str) -> Iterator[Example]:
    """Yields one question for each picture of a folder, with a program that answers it.

    Programs of examples run as they are. So this works with any preset, also with one whose language model was never
    shown the primitive.
    """
    record = {"program": 'answer = "yes" if brightness(img) > 0.5 else "no"'}
    for path in sorted(folder.glob("*.png")):
        yield Example(
            path.stem, "Is the picture bright?", (DatasetPicture(path),), "image", gold=("yes",), record=record
        )
