"""Scene graphs in the format of GQA, and what a noun phrase stands for in one.

A sample record, of a file that is one object of them by image id
(https://cs.stanford.edu/people/dorarad/gqa/download.html)::

    {"2407890": {"width": 640, "height": 480, "objects": {
        "271881": {"name": "chair", "x": 220, "y": 310, "w": 50, "h": 80,
                   "attributes": ["brown", "wooden"], "relations": [{"name": "near", "object": "317609"}]}}}}

Pixels count from the top left corner. Annotations made by people leave things out, so nothing is taken for absent only
because no graph lists it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import InputError
from ..datasets.files import Folder, Located, stream_records

_COLORS = """
red orange yellow green blue purple violet pink brown black white gray silver gold tan beige maroon teal turquoise
cream blond
"""
_BROAD = """
person player animal pet bird vehicle clothing clothes furniture food fruit vegetable dessert drink plant building
appliance device toy container utensil
"""
FAMILIES: Mapping[str, frozenset[str]] = {
    "color": frozenset(_COLORS.split()),
    "size": frozenset(("small", "medium", "large")),
}
"""Attributes of which one excludes the others, for want of which a thing cannot be judged."""
BROAD = frozenset(_BROAD.split())
"""Nouns for which an object may be meant that the graph calls by a narrower name."""

_SPELLINGS = {"grey": "gray", "golden": "gold", "blonde": "blond", "big": "large", "little": "small", "wood": "wooden"}
_PLURALS = {"men": "man", "women": "woman", "children": "child", "people": "person", "feet": "foot", "buses": "bus"}
_PAIRS = frozenset(("glasses", "sunglasses", "pants", "jeans", "shorts", "scissors", "goggles", "tights"))
"""Words that end in s and are no plural of the word without it."""


def canonical(word: str) -> str:
    """Returns the spelling by which an attribute is compared: ``grey`` is ``gray``, ``big`` is ``large``."""
    return _SPELLINGS.get(word, word)


def family(attribute: str) -> frozenset[str]:
    """Returns the attributes of which an object has one at most, such as all colors for ``red``; else none."""
    return next((words for words in FAMILIES.values() if attribute in words), frozenset())


def singular(name: str) -> str:
    """Returns a name with its last word in the singular, as far as simple rules go."""
    head, _, word = name.rpartition(" ")
    if word in _PLURALS:
        word = _PLURALS[word]
    elif word not in _PAIRS and not word.endswith(("ss", "us", "is")):
        word = re.sub(r"(?<=..)ies$", "y", word) if word.endswith("ies") else word
        word = re.sub(r"(?<=ch|sh|ss)es$|(?<=x)es$|(?<=..)s$", "", word)
    return f"{head} {word}".strip()


@dataclass(frozen=True)
class SceneObject:
    """One annotated object."""

    name: str
    """In the singular."""
    box: tuple[float, float, float, float]
    """Left, top, right, bottom in pixels."""
    attributes: frozenset[str] = frozenset()

    def shows(self, attribute: str) -> bool | None:
        """Whether it has an attribute; None where the annotation does not tell."""
        if attribute in self.attributes:
            return True
        return False if self.attributes & family(attribute) else None


class SceneGraph(NamedTuple):
    """What is in one picture."""

    width: int
    height: int
    objects: Sequence[SceneObject]


class SceneGraphs(dict[str, SceneGraph]):
    """Graphs by image id, with the vocabulary of the file they come from."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def add(self, key: str, record: Mapping[str, Any], *, keep: bool = True) -> None:
        """Reads one record; one that is not kept still adds to the vocabulary.

        Raises:
            InputError: it is not a scene graph.
        """
        try:
            objects = [_object(one) for one in record["objects"].values()]
            graph = SceneGraph(int(record["width"]), int(record["height"]), objects)
            if graph.width < 1 or graph.height < 1:
                raise ValueError("a size")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"The scene graph of image {key} lacks something: {error!r}.") from None
        for one in graph.objects:
            self.names.add(one.name)
            self.attributes |= one.attributes
        if keep:
            self[key] = graph

    def parse(self, text: str) -> tuple[str, frozenset[str]] | None:
        """Reads ``the large red stars`` as noun and attributes; None where a word is not in the vocabulary."""
        words = re.sub(r"^(?:an?|the|any|some)\s+", "", text.lower().strip(" ?.")).split()
        for cut in range(len(words)):
            noun = singular(" ".join(words[cut:]))
            if noun in self.names:
                attributes = frozenset(map(canonical, words[:cut]))
                return (noun, attributes) if all(map(self.knows, attributes)) else None
        return None

    def knows(self, attribute: str) -> bool:
        """Whether an attribute is one that graphs have."""
        return attribute in self.attributes or bool(family(attribute))


def _object(record: Mapping[str, Any]) -> SceneObject:
    left, top = float(record["x"]), float(record["y"])
    return SceneObject(
        singular(str(record["name"]).lower()),
        (left, top, left + float(record["w"]), top + float(record["h"])),
        frozenset(canonical(str(one).lower()) for one in record.get("attributes", ())),
    )


def find_scene_graphs(folder: Path, split: str) -> Located | None:
    """Returns the file of scene graphs that belongs to a split, or None where there is none.

    Args:
        folder: where the data set was read from.
        split: such as ``val_balanced``; the graphs of ``val_balanced`` and ``val_all`` are those of ``val``.

    Raises:
        SetupError: there is no such folder.
        InputError: a zip archive in it is damaged.
    """
    name = f"{re.sub(r'_(balanced|all)$', '', split)}_sceneGraphs.json"
    return Folder(folder, "gqa", title="scene graphs").find(f"sceneGraphs/{name}", name)


def load_scene_graphs(file: Located, wanted: Collection[str] | None = None) -> SceneGraphs:
    """Reads a file of scene graphs, one record at a time.

    Args:
        file: the JSON file, or where it is in an archive.
        wanted: image ids to keep; None keeps all. The vocabulary is that of the whole file.

    Raises:
        InputError: the file is not what it should be.
        SetupError: it cannot be opened.
    """
    found = SceneGraphs()
    for key, record in stream_records(file, keyed=True):
        found.add(key, record, keep=wanted is None or key in wanted)
    return found
