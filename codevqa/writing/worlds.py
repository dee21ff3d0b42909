"""Random worlds in which programs run without models, to be told apart by what they do.

In a world every primitive has an answer to everything. Answers are drawn, and they are consistent: the same pictures
asked with the same content words have one count, one word and one place, in every draft and however the question is
put. So "Is there a cup?" is yes just where "How many cups are there?" is not 0, and "Are there at least 3 cups?" where
that is 3 or more.
"""

from __future__ import annotations

import ast
import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, TypeVar

from ..core.answer_words import whole_number
from ..core.question_kind import question_kind
from ..primitives import GRID, Image, PrimitiveSet
from ..primitives.detection import count, crop
from ..primitives.sets import SETS, sort_by
from ..primitives.visual import find_image, find_images
from ..sandbox.many_runs import AskedCall
from ..sandbox.program_tree import parse, syntax_tree

WORLDS = 30
"""Worlds in which programs are compared. There may be more (:data:`.choice.STAGES`)."""
RATES = (0.15, 0.5, 0.85)
"""How often a thing is there, by turns of the worlds: where most are, "every picture" can hold; where few are, "any
picture" can fail."""
FAVOURITE = 0.8
"""How often a world's own count or word is drawn, so that several pictures can have the same."""
WORDS = ("red", "blue", "table", "wood", "man")
"""What an open question may be answered with, beside the words that the programs compare answers with."""
COUNTS = (1, 2, 3)
"""How many there may be where there are any, beside the numbers that the programs compare with."""
MOST = 10
"""Greatest number that is taken for a count."""
Value = TypeVar("Value")
Behaviour = tuple[str | None, ...]
"""What a program answers in each world; None where it fails."""

_NUMBER = r"(\d+|one|two|three|four|five|six|seven|eight|nine|ten)"
_SIGNS: Mapping[str, Callable[[int, int], bool]] = {
    **dict.fromkeys(("at least", "no fewer than", "no less than"), operator.ge),
    **dict.fromkeys(("at most", "no more than"), operator.le),
    **dict.fromkeys(("exactly", "only", "just"), operator.eq),
    "more than": operator.gt,
    **dict.fromkeys(("fewer than", "less than"), operator.lt),
}
_AMOUNT = re.compile(rf"\b({'|'.join(_SIGNS)}) {_NUMBER}\b", re.IGNORECASE)
"""Where a question that wants yes or no compares a count with a number."""
_EMPTY = """
a an any are at be can count do does find how image in is it many number of on photo picture see some that the there
this to was were with you
"""
"""Words that tell no question from another."""


class Worlds:
    """Answers to the calls of several programs about one question, in all worlds at once.

    Args:
        primitives: what the programs may call.
        images: the question's pictures.
        programs: their sources. A comparison in any of them can hold, and can fail to.
        seed: other seeds make other worlds.
        count: how many there are.
    """

    def __init__(
        self, primitives: PrimitiveSet, images: Sequence[Image], programs: Sequence[str], seed: int, count: int
    ) -> None:
        self.count = count
        self._primitives = primitives
        self.pictures = len(images)
        self._images = images
        self._pictures = {image.index: image.picture for image in images}
        self._seed = seed
        self._shown: dict[str, str] = {}
        """What a part of a picture was cut out for, by the part's key."""
        self._parts: dict[str, Image] = {}
        compared = set[object]().union(*map(_compared_constants, programs))
        words = sorted(value for value in compared if isinstance(value, str) and value not in ("", "yes", "no"))
        self._words = words or WORDS
        amounts = {whole_number(number) for source in programs for _, number in _AMOUNT.findall(source)}
        numbers = [n for n in range(1, MOST + 1) if n in amounts or not compared.isdisjoint((n, str(n)))]
        self._counts = sorted(
            {*COUNTS, *(near for number in numbers for near in (number - 1, number, number + 1))} - {0}
        )

    def looked_at(self, call: AskedCall) -> frozenset[int]:
        """Returns the numbers of the pictures that the answer to a call depends on."""
        listed = (item for value in call.args for item in (value if isinstance(value, list) else [value]))
        named = {item.index for item in listed if isinstance(item, Image)}
        return frozenset(named or {image.index for image in self._images})

    def ask(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Answers a call in every world.

        Raises:
            TypeError, ValueError, LookupError: no primitive takes such arguments.
        """
        arguments = self._primitives.get(name).bind(args, kwargs)
        if name == "open_image":
            return [find_image(self._images, str(arguments["path"]))] * self.count
        if name == "open_images":
            return [find_images(self._images, str(arguments["path"]))] * self.count
        empty = [value for value in arguments.values() if value == [] or (isinstance(value, str) and not value.strip())]
        if empty and not (empty == [[]] and name in SETS.names):
            raise ValueError(f"{name}() needs more than an empty argument")
        listed = [item for value in arguments.values() for item in (value if isinstance(value, list) else [value])]
        pictures = [item for item in listed if isinstance(item, Image)]
        text = " ".join(item for item in listed if isinstance(item, str))
        returns = self._primitives.get(name).result.text
        if name in SETS.names and returns != "str" and isinstance(next(iter(arguments.values())), list):
            return self._sets(name, pictures, text)
        if name == crop.name:
            return [self._cut(pictures[0], text)] * self.count
        # "Is it red?" of what was cut out for a cup is "Is the cup red?" of the whole picture.
        within = " ".join((_AMOUNT.sub("", text), *(self._shown.get(image.picture.key, "") for image in pictures)))
        about = (content(within), *sorted(image.index for image in pictures))
        return self._values(syntax_tree(returns, "eval").body, about, text, pictures or self._images)

    def _sets(self, name: str, pictures: Sequence[Image], text: str) -> list[Any]:
        """Returns what is selected, counted or put in order, as if each picture were asked."""
        # A phrase is there where there is more than none, as what a yes/no question asks is.
        columns = [list(map(int, self.ask("query", (image, f"How many {text}"), {}))) for image in pictures]
        left = []
        for world in range(self.count):
            of = {place: column[world] for place, column in enumerate(columns)}
            order = (
                sorted(of, key=lambda place: -of[place])
                if name == sort_by.name
                else [place for place in of if of[place]]
            )
            left.append([pictures[place] for place in order])
        return list(map(len, left)) if name == count.name else left

    def _cut(self, image: Image, text: str) -> Image:
        """Returns what stands for the part of a picture that shows a thing."""
        shown = content(f"{text} {self._shown.get(image.picture.key, '')}")
        key = f"{self._pictures[image.index].key} {shown}"
        self._shown[key] = shown
        return self._parts.setdefault(key, Image(image.index, replace(image.picture, key=key), image.part))

    def _values(self, kind: ast.AST, about: tuple[Any, ...], text: str, pictures: Sequence[Image]) -> list[Any]:
        """Returns a value of a declared kind for each world."""

        def of(inner: ast.AST, *place: int) -> list[Any]:
            return self._values(inner, (*about, *place), text, pictures)

        counts = self._draw_likely("count", about, (0,), self._counts)
        match kind:
            case ast.Name("str"):
                return self._read(about, text, counts)
            case ast.Name("bool"):
                return [count > 0 for count in counts]
            case ast.Name("int"):
                return counts
            case ast.Name("float"):
                return self._draw_values("place", about, lambda chance, _: chance.randrange(GRID) + 0.5)
            case ast.Name("Image"):
                scores = [
                    self._draw_values("score", (about[0], picture.index), lambda chance, _: chance.random())
                    for picture in pictures
                ]
                return [pictures[column.index(max(column))] for column in zip(*scores, strict=True)]
            case ast.BinOp(inner):  # or None
                return [value if count else None for value, count in zip(of(inner), counts, strict=True)]
            case ast.Subscript(ast.Name("tuple"), ast.Tuple(items)) if not isinstance(items[-1], ast.Constant):
                return list(zip(*(of(item, place) for place, item in enumerate(items)), strict=True))
            case ast.Subscript(ast.Name(name), inner):  # as many as there are
                inner = inner.elts[0] if isinstance(inner, ast.Tuple) else inner
                columns = [of(inner, place) for place in range(max(counts))]
                container = tuple if name == "tuple" else list
                return [container(column[world] for column in columns[:count]) for world, count in enumerate(counts)]
        raise ValueError(f"no world knows {ast.dump(kind)}")

    def _read(self, about: tuple[Any, ...], text: str, counts: Sequence[int]) -> list[str]:
        """Returns answers of the kind that a text asks for."""
        kind = question_kind(text, statements=True)
        if kind.kind == "yes_no":
            amount = _AMOUNT.search(text)
            compare, number = (_SIGNS[amount[1].lower()], whole_number(amount[2]) or 0) if amount else (operator.gt, 0)
            return ["yes" if compare(count, number) else "no" for count in counts]
        if kind.kind == "number":
            return list(map(str, counts))
        if kind.choices:
            return self._draw_values("choice", about, lambda chance, _: chance.choice(kind.choices))
        return self._draw_likely("word", about, WORDS, self._words)

    def _draw_values(
        self, what: str, about: tuple[Any, ...], draw: Callable[[random.Random, int], Value]
    ) -> list[Value]:
        chance = random.Random(f"{self._seed}:{what}:{about}")
        return [draw(chance, world) for world in range(self.count)]

    def _draw_likely(
        self, what: str, about: tuple[Any, ...], rest: Sequence[Value], likely: Sequence[Value]
    ) -> list[Value]:
        """Draws one of the likely as often as each world's rate says, else one of the rest."""
        uniform = random.Random(f"{self._seed}:{what}:{about[0]}")

        def draw(chance: random.Random, world: int) -> Value:
            turn, rate = divmod(world, len(RATES))
            if world >= WORLDS and world % 2:
                return uniform.choice(likely if uniform.random() < 0.5 else rest)
            pool = likely if chance.random() < RATES[rate] else rest
            favoured = world < WORLDS and chance.random() < FAVOURITE
            return pool[turn % len(pool)] if favoured else chance.choice(pool)

        return self._draw_values(what, about, draw)


@lru_cache(4096)
def content(text: str) -> str:
    """Returns the stems of the words that tell a question from another, in the order of the alphabet.

    >>> content("Are there any red cups?"), content("Do you see a red cup?")
    ('cup red', 'cup red')
    """
    words = set(re.findall(r"[a-z0-9]+", text.lower())) - {*_EMPTY.split()}
    return " ".join(sorted(set(_stemmer().stemWords(sorted(words)))))


@cache
def _stemmer() -> Any:
    from snowballstemmer import stemmer  # type: ignore[import-untyped, unused-ignore]  # all its languages come with it

    return stemmer("english")


def _compared_constants(source: str) -> set[object]:
    """Returns the constants that a program compares with or lists."""
    tree, constants = parse(source), set[object]()
    for node in ast.walk(tree) if tree is not None else ():
        parts: Sequence[ast.expr | None] = ()
        match node:
            case ast.Compare(left, _, others):
                parts = [left, *others]
            case ast.List(parts) | ast.Set(parts) | ast.Tuple(parts) | ast.Dict(parts):
                pass
        for part in parts:
            if isinstance(part, ast.Constant):
                constants.add(part.value)
    return constants
