"""Runs a program against invented answers of its primitives, once for every way those answers can turn out.

Yes/no questions are answered both ways, positions fall on every side, counts and words differ: what a program does in
each of its branches shows without a model.
"""

from __future__ import annotations

import ast
import random
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from PIL import Image as PILImage

from ..core.images import load_picture
from ..primitives import Image, Primitive

__all__ = ["Outcomes", "blank_images", "compared_words", "explore", "few", "is_yes_no"]

_Option = TypeVar("_Option")
_AUXILIARY = re.compile(
    r"(?:is|isn't|are|aren't|was|were|do|does|doesn't|did|has|have|had|can|could|will|would|should)\b", re.IGNORECASE
)
_NO_CHOICE = re.compile(
    r"(?:is|are|was|were) (?:there|it true|either|both|any)\b|do you see\b|.*\beither\b", re.IGNORECASE
)
_WORDS: Sequence[tuple[str, tuple[str, str]]] = (
    (r"colou?r", ("red", "blue")),
    (r"material|made of", ("wood", "metal")),
    (r"\bwho\b|person|people", ("man", "woman")),
    (r"where|room|place|scene", ("kitchen", "street")),
    (r"shape", ("round", "square")),
    (r"weather|sky", ("sunny", "cloudy")),
    (r"size|big|large|tall|long", ("large", "small")),
    (r"\bdoing\b|activity|sport", ("running", "sitting")),
    (r"animal", ("horse", "bird")),
)
_CORNERS = ((4.5, 4.5), (19.5, 19.5), (4.5, 19.5), (19.5, 4.5))
_BOXES = ((2.0, 3.0, 8.0, 9.0), (14.0, 12.0, 20.0, 22.0))
_MOST_WORDS = 4


def is_yes_no(question: str) -> bool:
    """Says whether a question wants yes or no, rather than one of the things it names."""
    text = question.strip()
    if not _AUXILIARY.match(text):
        return False
    return " or " not in text or _NO_CHOICE.match(text) is not None


def compared_words(tree: ast.AST) -> tuple[str, ...]:
    """Returns the words and whole numbers a program compares with, in order: its branches turn on them."""
    found: dict[str, None] = {}
    for compare in (node for node in ast.walk(tree) if isinstance(node, ast.Compare)):
        for node in ast.walk(compare):
            if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
                continue
            if isinstance(node.value, str) and len(node.value.split()) <= 3 and node.value not in ("", "yes", "no"):
                found[node.value] = None
            elif isinstance(node.value, int) and 0 <= node.value <= 20:
                found[str(node.value)] = None
    return tuple(found)


def blank_images(count: int) -> tuple[Image, ...]:
    """Returns that many different images."""
    tones = [PILImage.new("RGB", (48, 32), (40 * number, 90, 160)) for number in range(count)]
    return tuple(Image(number, load_picture(tone)) for number, tone in enumerate(tones, 1))


@dataclass
class Outcomes:
    """Invents what the primitives return in one run; the same call always gets the same value."""

    images: tuple[Image, ...]
    words: tuple[str, ...] = ()
    """Words the program compares with; offered as answers beside the usual ones."""
    script: Sequence[int] = ()
    """Which way the first choices of the run turn out."""
    fill: Callable[[int], int] = lambda ways: 0
    """Which way each later choice turns out, given in how many ways it can."""
    taken: list[tuple[int, int]] = field(default_factory=list)
    """Each choice of the run so far: the way taken and the number of ways."""
    _kept: dict[str, object] = field(default_factory=dict)
    _told: list[str] = field(default_factory=list)

    def answer(self, primitive: Primitive, arguments: Mapping[str, object]) -> object:
        """Returns a value of the type the primitive declares.

        Raises:
            TypeError: values of that type cannot be invented.
        """
        call = f"{primitive.name}({arguments!r})"
        if call not in self._kept:
            value = self._invent(ast.parse(primitive.returns, mode="eval").body, primitive.name, arguments)
            self._kept[call] = value
            if not primitive.name.startswith("open_image"):
                shown = ", ".join(_show(argument) for argument in arguments.values())
                self._told.append(f"{primitive.name}({shown}) is {_show(value)}")
        return self._kept[call]

    def story(self) -> str:
        """Returns what the calls returned, for messages: ``when query("Is it red?") is 'no', ...``."""
        return f"when {', '.join(self._told)}" if self._told else ""

    def _pick(self, ways: int) -> int:
        place = len(self.taken)
        way = self.script[place] if place < len(self.script) else self.fill(ways)
        self.taken.append((way, ways))
        return way

    def _one(self, options: Sequence[_Option]) -> _Option:
        return options[self._pick(len(options))] if len(options) > 1 else options[0]

    def _invent(self, kind: ast.expr, name: str, arguments: Mapping[str, object]) -> object:
        """Makes a value of the annotated type."""
        shown = ast.unparse(kind)
        simple: dict[str, Callable[[], object]] = {
            "str": lambda: self._one(self._texts(arguments)),
            "bool": lambda: self._one((True, False)),
            "int": lambda: self._one((2, 0)),
            "float": lambda: self._one((19.5, 4.5)),
            "Image": lambda: self._image(name, arguments),
            "list[Image]": lambda: list(self.images),
            "tuple[float, float]": lambda: self._one(_CORNERS),
            "tuple[float, float, float, float]": lambda: self._one(_BOXES),
        }
        if shown in simple:
            return simple[shown]()
        if isinstance(kind, ast.BinOp):  # X | None
            return self._invent(kind.left, name, arguments) if self._one((True, False)) else None
        if isinstance(kind, ast.Subscript):
            outer, inner = ast.unparse(kind.value), kind.slice
            if outer == "list":
                return [self._invent(inner, name, arguments) for _ in range(self._one((2, 0, 1)))]
            if outer == "tuple" and isinstance(inner, ast.Tuple):
                items = [item for item in inner.elts if ast.unparse(item) != "..."]
                return tuple(self._invent(item, name, arguments) for item in items)
        raise TypeError(f"{name} returns {shown}: the linter cannot invent that")

    def _image(self, name: str, arguments: Mapping[str, object]) -> Image:
        if name == "open_image":
            return self.images[0]
        for value in arguments.values():
            if isinstance(value, list) and value and all(isinstance(item, Image) for item in value):
                return self._one(tuple(item for item in value if isinstance(item, Image)))
        return self._one(self.images)

    def _texts(self, arguments: Mapping[str, object]) -> tuple[str, ...]:
        """Returns the answers a text primitive could give to what it was asked."""
        texts = [value for value in arguments.values() if isinstance(value, str)]
        question = texts[-1] if texts else ""
        if is_yes_no(question):
            return ("yes", "no")
        numbers = tuple(word for word in self.words if word.isdigit())
        if re.match(r"\s*how many\b|.*\bnumber of\b", question, re.IGNORECASE):
            above = (str(int(number) + 1) for number in numbers)  # what is more than the number compared with
            return tuple(dict.fromkeys(("2", "0", *numbers, *above)))[:_MOST_WORDS]
        options: tuple[str, ...] = ("table", "dog")
        if " or " in question:
            before, after = question.rstrip("?. ").rsplit(" or ", 1)
            options = (_last_word(before), _last_word(after))
        else:
            options = next((pair for pattern, pair in _WORDS if re.search(pattern, question, re.IGNORECASE)), options)
        others = (word for word in self.words if not word.isdigit())
        return tuple(dict.fromkeys((*options, *others)))[:_MOST_WORDS]


def _show(value: object) -> str:
    if isinstance(value, Image):
        return f"image {value.index}"
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    return repr(value)


def _last_word(text: str) -> str:
    words = re.findall(r"[\w-]+", text.lower())
    return words[-1] if words else "this"


def few(seed: int) -> Callable[[int], int]:
    """Returns how choices turn out where numbers are mostly nought: sums of many calls come out small."""
    dice = random.Random(seed)
    return lambda ways: dice.randrange(ways) if ways == 2 or dice.random() < 0.25 else 1


async def explore(play: Callable[[Outcomes], Awaitable[None]], fresh: Callable[[], Outcomes], limit: int) -> int:
    """Plays a program once for every way its primitives' answers can turn out.

    The first run takes every first way, the second every last way, the others begin with every combination of the
    early choices. Where there are more than ``limit`` ways, the later choices are drawn, the same each time.

    Args:
        play: runs the program against the outcomes it is given.
        fresh: makes the outcomes of one run.
        limit: runs at most.

    Returns:
        How many runs were made.
    """
    dice = random.Random(0)
    fills: tuple[Callable[[int], int], ...] = (lambda ways: 0, lambda ways: ways - 1, dice.randrange)
    frontier: deque[tuple[int, ...]] = deque([()])  # beginnings of runs not made yet, no two of the same run
    runs = 0
    while frontier and runs < limit:
        outcomes = fresh()
        outcomes.script = frontier.popleft()
        outcomes.fill = fills[min(runs, 2)]
        await play(outcomes)
        runs += 1
        ways = tuple(way for way, _ in outcomes.taken)
        for place in range(len(outcomes.script), len(ways)):
            others = [way for way in reversed(range(outcomes.taken[place][1])) if way != ways[place]]
            frontier += [(*ways[:place], way) for way in others]
    return runs
