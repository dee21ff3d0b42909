"""Sample records of the data sets as their sites show them, and helpers that write files in their layouts."""

import io
import json
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from codevqa.eval.task import Example

One = TypeVar("One")

SUIT = {
    "semantic": [
        {"operation": "select", "dependencies": [], "argument": "clothing (693480)"},
        {"operation": "filter color", "dependencies": [0], "argument": "not(white)"},
        {"operation": "query", "dependencies": [1], "argument": "name"},
    ],
    "entailed": ["14199180", "14199179"],
    "question": "Which type of clothing is not white?",
    "imageId": "2383860",
    "isBalanced": True,
    "groups": {"global": "clothing", "local": "12q-clothing_n#white"},
    "answer": "suit",
    "types": {"detailed": "categoryThat", "semantic": "cat", "structural": "query"},
}
PHONES: dict[str, Any] = {"qid": "val_test_747468", "scenes": ["8", "7"], "answer": True}
PHONES |= {
    "utterance": "Do all phones that are on a table have the same color?",
    "pattern_name": "quantifier_same_attr",
}
PHONES |= {"properties": ["has_quantifier", "has_quantifier_all"], "program": [{"operation": "find"}]}
GLASS: dict[str, Any] = {"sentence": "There is an empty glass.", "label": "False", "identifier": "test1-0-1-0"}
GLASS |= {"validation": {"28": "False"}, "synset": "beer bottle"}
BOX = {"sentence": "There is a blue tower.", "label": "true", "identifier": "3266-0", "structured_rep": [[], [], []]}


def dump(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def paint(path: Path, color: str = "red", size: tuple[int, int] = (8, 6)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


def pack(folder: Path, archive: Path) -> None:
    """Moves a folder into an archive, under its own name."""
    with zipfile.ZipFile(archive, "w") as out:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                out.write(path, f"{folder.name}/{path.relative_to(folder)}")
    shutil.rmtree(folder)


def only(elements: Iterable[One]) -> One:
    (element,) = elements
    return element


def seen(example: Example) -> list[tuple[int, ...]]:
    """The top left pixel of every picture of an example."""
    pixels = [image.load().pixels.getpixel((0, 0)) for image in example.images]
    return [pixel for pixel in pixels if isinstance(pixel, tuple)]


def drawn() -> Image.Image:
    return Image.fromarray(np.arange(30 * 20 * 3, dtype=np.uint8).reshape(20, 30, 3))


def png(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **options)
    return buffer.getvalue()
