"""Scene graphs in the format of GQA, and what they say is true of an elementary question or a position.

A sample record, of a file that is one object of them by image id
(https://cs.stanford.edu/people/dorarad/gqa/download.html)::

    {"2407890": {"width": 640, "height": 480, "objects": {
        "271881": {"name": "chair", "x": 220, "y": 310, "w": 50, "h": 80,
                   "attributes": ["brown", "wooden"], "relations": [{"name": "near", "object": "317609"}]}}}}

Pixels count from the top left corner. Annotations made by people leave things out, so nothing is taken for absent only
because no graph lists it.

Judged: whether something is there; its color or size; whether it has an attribute; where it is. The truth is told
before the value is looked at, so that what can be judged never depends on what was answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import InputError
from ..datasets.files import Folder, stream_records
from ..task import Located

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
"""Attributes of which an object has one at most. Without any, a question about them cannot be judged."""
BROAD = frozenset(_BROAD.split())
"""Broad nouns: the graph may name the same object more narrowly."""

_SPELLINGS = {"grey": "gray", "golden": "gold", "blonde": "blond", "big": "large", "little": "small", "wood": "wooden"}
_PLURALS = {"men": "man", "women": "woman", "children": "child", "people": "person", "feet": "foot", "buses": "bus"}
_PAIRS = frozenset(("glasses", "sunglasses", "pants", "jeans", "shorts", "scissors", "goggles", "tights"))
"""Words that end in s and are no plural of the word without it."""
GRID = 24
"""Positions count in patches of a 24x24 grid, y upwards."""


def canonical(word: str) -> str:
    """Returns the spelling by which an attribute is compared: ``grey`` is ``gray``, ``big`` is ``large``."""
    return _SPELLINGS.get(word, word)


def family(attribute: str) -> frozenset[str]:
    """Returns the attributes of which an object has one at most, such as all colors for ``red``; else none."""
    return next((words for words in FAMILIES.values() if attribute in words), frozenset())


def singular_name(name: str) -> str:
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
            objects = [_object(annotation) for annotation in record["objects"].values()]
            graph = SceneGraph(int(record["width"]), int(record["height"]), objects)
            if graph.width < 1 or graph.height < 1:
                raise ValueError("a size")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"The scene graph of image {key} lacks something: {error!r}.") from None
        for scene_object in graph.objects:
            self.names.add(scene_object.name)
            self.attributes |= scene_object.attributes
        if keep:
            self[key] = graph

    def parse(self, text: str) -> tuple[str, frozenset[str]] | None:
        """Reads ``the large red stars`` as noun and attributes; None where a word is not in the vocabulary."""
        words = re.sub(r"^(?:an?|the|any|some)\s+", "", text.lower().strip(" ?.")).split()
        for cut in range(len(words)):
            noun = singular_name(" ".join(words[cut:]))
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
        singular_name(str(record["name"]).lower()),
        (left, top, left + float(record["w"]), top + float(record["h"])),
        frozenset(canonical(str(attribute).lower()) for attribute in record.get("attributes", ())),
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
    archives = ("sceneGraphs*.zip", "*/sceneGraphs*.zip")  # as GQA calls it
    return Folder(folder, "gqa", title="scene graphs", archives=archives).find(f"sceneGraphs/{name}", name)


def load_scene_graphs(file: Located, wanted: Collection[str] | None = None) -> SceneGraphs:
    """Reads a file of scene graphs, one record at a time.

    Args:
        file: the JSON file, or where it is in an archive.
        wanted: image ids to keep; None keeps all. The vocabulary is that of the whole file.

    Raises:
        InputError: the file is not what it should be.
        SetupError: it cannot be opened.
    """
    graphs = SceneGraphs()
    for key, record in stream_records(file, keyed=True):
        graphs.add(key, record, keep=wanted is None or key in wanted)
    return graphs


class Truth(NamedTuple):
    """What is true, in words, and the test of a value against it."""

    text: str
    holds: Callable[[Any], bool]


class SceneJudge(NamedTuple):
    """One picture's graph with what is needed to read questions about it."""

    graph: SceneGraph
    words: SceneGraphs
    """Whose vocabulary is meant."""

    def question(self, text: str) -> Truth | None:
        """Returns what is true of a question, None where the graph does not tell."""
        text = " ".join(text.lower().strip().rstrip("?. ").split())
        text = re.sub(rf",? (?:here|visible|shown|(?:in|on) {_PICTURE})$", "", text)
        for pattern, judge in _QUESTIONS:
            if (match := re.fullmatch(pattern, text)) and (truth := judge(self, **match.groupdict())):
                return truth
        return None

    def position(self, text: str) -> Truth | None:
        """Returns where something is: inside its box, or within a patch of it."""
        called = self._named_objects(text, narrowly=True)
        if not any(fits for _, fits in called):
            return None
        across, up = GRID / self.graph.width, GRID / self.graph.height
        grown = [
            (left * across - 1, right * across + 1, GRID - bottom * up - 1, GRID - top * up + 1)
            for left, top, right, bottom in (scene_object.box for scene_object, fits in called if fits is not False)
        ]

        def holds(value: Any) -> bool:
            if not isinstance(value, list | tuple) or len(value) != 2:
                return False
            x, y = value
            return any(left <= x <= right and bottom <= y <= top for left, right, bottom, top in grown)

        return Truth(" or ".join("x {:.1f}..{:.1f}, y {:.1f}..{:.1f}".format(*box) for box in grown), holds)

    # -- one kind of question each ------------------------------------------------------------------------------------

    def _exists(self, what: str) -> Truth | None:
        return _yes_no_truth(True) if any(fits for _, fits in self._named_objects(what)) else None

    def _attribute(self, kind: str, what: str) -> Truth | None:
        options = FAMILIES["color" if kind == "color" else "size"]
        shown = {scene_object.attributes & options for scene_object in self._described_objects(what)}
        if len(shown) != 1 or not (accepted := shown.pop()):
            return None  # they differ, or have none

        def holds(value: Any) -> bool:
            values = {word for spoken_word in _split_words(value) if (word := canonical(spoken_word)) in options}
            return bool(values) and values <= accepted

        return Truth(" or ".join(sorted(accepted)), holds)

    def _verify(self, rest: str) -> Truth | None:
        what, _, attribute = rest.rpartition(" ")
        shown = {scene_object.shows(canonical(attribute)) for scene_object in self._described_objects(what)}
        return _yes_no_truth(shown.pop()) if len(shown) == 1 and self.words.knows(canonical(attribute)) else None

    # -- small parts --------------------------------------------------------------------------------------------------

    def _named_objects(self, text: str, *, narrowly: bool = False) -> list[tuple[SceneObject, bool | None]]:
        """Objects that a phrase's noun names, each with whether it has the attributes; ``narrowly`` no broad noun."""
        noun, attributes = self.words.parse(text) or ("", frozenset())
        matches: list[tuple[SceneObject, bool | None]] = []
        for scene_object in self.graph.objects:
            if scene_object.name == noun and not (narrowly and noun in BROAD):
                shown = [scene_object.shows(attribute) for attribute in attributes]
                matches.append((scene_object, False if False in shown else None if None in shown else True))
        return matches

    def _described_objects(self, text: str) -> list[SceneObject]:
        """Objects that a phrase certainly describes; none where others might be meant."""
        called = self._named_objects(text, narrowly=True)
        return [] if None in [fits for _, fits in called] else [scene_object for scene_object, fits in called if fits]


_PICTURE = "(?:the|this) (?:image|picture|photo|photograph|scene)"
_QUESTIONS: tuple[tuple[str, Callable[..., Truth | None]], ...] = (
    (r"(?:(?:is|are) there|(?:can|do) you see) (?P<what>.+)", SceneJudge._exists),
    (rf"do(?:es)? {_PICTURE} (?:show|contain|have) (?P<what>.+)", SceneJudge._exists),
    (r"(?:what|which) (?P<kind>color|size) (?:is|are|do|does) (?P<what>the .+?)(?: have)?", SceneJudge._attribute),
    (r"what(?: is|'s) the (?P<kind>color|size) of (?P<what>the .+)", SceneJudge._attribute),
    (r"how (?P<kind>big|large) (?:is|are) (?P<what>the .+)", SceneJudge._attribute),
    (r"(?:is|are) (?P<rest>the .+)", SceneJudge._verify),
)


def _yes_no_truth(true: bool | None) -> Truth | None:
    answer = "yes" if true else "no"
    return None if true is None else Truth(answer, lambda value: _split_words(value)[:1] == [answer])


def _split_words(value: Any) -> list[str]:
    return re.findall(r"[\w'-]+", str(value).lower())
