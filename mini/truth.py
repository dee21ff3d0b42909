"""The primitives answered from the truth of a scene: what a program should get from perfect models.

Understands the elementary questions that the programs of the table ask, and no others.
"""

from __future__ import annotations

import atexit
import functools
import re
from collections.abc import Callable, Sequence

import pydantic_monty as monty

from .phrases import parse_phrase
from .world import CANVAS, Scene

GRID = 24
UNTOLD = "I don't know"
"""What can be said of that which drawings do not tell: names, prices, reasons."""
UNTOLD_ENDS = (
    *("happy", "sad", "nice", "pretty", "hungry", "afraid", "new", "old", "young", "moving", "having fun"),
    *("have a name", "like it", "like this", "come from far away"),
)
"""What a question ends with that is answered by yes or no, and of which drawings tell nothing."""


def query_truth(scene: Scene, question: str) -> str:
    """Answers an elementary question truly.

    Raises:
        ValueError: it is no elementary question, or asks for one thing where there is not exactly one.
    """
    for pattern, answer in _PATTERNS:
        match = pattern.fullmatch(question)
        if match:
            value = answer(scene, *match.groups())
            return ("yes" if value else "no") if isinstance(value, bool) else str(value)
    raise ValueError(f"no elementary question: {question!r}")


def true_position(scene: Scene, phrase: str) -> tuple[float, float]:
    """The position of the thing a phrase describes, on the 24x24 grid, y upwards; the middle where there is none."""
    what = parse_phrase(phrase)
    if not what.count(scene):
        return (GRID / 2, GRID / 2)
    thing = what.the(scene)
    return (thing.x / CANVAS * GRID, (CANVAS - thing.y) / CANVAS * GRID)


def matching_scene(scenes: Sequence[Scene], phrase: str) -> Scene:
    """The scene that shows what a phrase describes.

    Raises:
        ValueError: none does, or several do.
    """
    matches = [scene for scene in scenes if parse_phrase(phrase).count(scene)]
    if len(matches) != 1:
        raise ValueError(f"{len(matches)} scenes show {phrase!r}")
    return matches[0]


def _color_of_all(scene: Scene, phrase: str) -> str:
    colors = {thing.color for thing in parse_phrase(phrase).find(scene)}
    if len(colors) != 1:
        raise ValueError(f"the {phrase} have {len(colors)} colors")
    return colors.pop()


def _count_touching(scene: Scene, phrase: str, wall: str) -> int:
    return sum(thing.touches(wall) for thing in parse_phrase(phrase).find(scene))


def _is_stacked(scene: Scene, upper: str, lower: str) -> bool:
    pairs = zip(scene.tower, scene.tower[1:], strict=False)
    return any((below.color, above.color) == (lower, upper) for below, above in pairs)


def _end_color(scene: Scene, end: str) -> str:
    if not scene.tower:
        raise ValueError("no tower")
    return scene.tower[-1 if end == "top" else 0].color


_ANSWERS: dict[str, Callable[..., bool | int | str | None]] = {
    r"Is there an? (\w+) block above an? (\w+) block\?": _is_stacked,
    r"Is there (an? [\w ]+) touching the ([\w ]+)\?": lambda scene, what, wall: _count_touching(scene, what, wall) > 0,
    r"Is there (an? [\w ]+)\?": lambda scene, what: parse_phrase(what).count(scene) > 0,
    r"How many blocks are in the tower\?": lambda scene: len(scene.tower),
    r"How many ([\w ]+) are there\?": lambda scene, what: parse_phrase(what).count(scene),
    r"How many ([\w ]+) touch the ([\w ]+)\?": _count_touching,
    r"What color is the block at the (top|base) of the tower\?": _end_color,
    r"What color is the ([\w ]+)\?": lambda scene, what: parse_phrase(what).the(scene).color,
    r"What size is the ([\w ]+)\?": lambda scene, what: parse_phrase(what).the(scene).size,
    r"What are the (\w+) objects\?": lambda scene, color: (
        ", ".join(sorted({thing.kind for thing in scene.things if thing.color == color})) or "none"
    ),
    r"What color are the ([\w ]+)\?": _color_of_all,
    rf"What is the \w+ of the [\w ]+\?|(?:Is|Does) [\w ]+ (?:{'|'.join(UNTOLD_ENDS)})\?": lambda scene: UNTOLD,
    r"What is the ([\w ]+)\?": lambda scene, what: parse_phrase(what).the(scene).kind,
    r"Are all the (?:objects|items|blocks) (\w+)\?": lambda scene, color: all(
        thing.color == color for thing in scene.things
    ),
}
_PATTERNS = [(re.compile(pattern), answer) for pattern, answer in _ANSWERS.items()]


def run_program(
    program: str, scenes: Sequence[Scene], form: str, *, query_with: Callable[[Scene, str], str] = query_truth
) -> str:
    """Runs a program against the truth, in an interpreter that knows scenes by their numbers only.

    Args:
        program: Without its opening line.
        scenes: The set, or the one scene.
        form: "image" or "set".
        query_with: Answers ``query`` instead of the truth, e.g. to note what is asked.

    Returns:
        What the program leaves in ``answer``: scenes as "image 1", items of a list joined by commas.

    Raises:
        ValueError: the program asks something the truth does not decide.
    """
    names = [f"image {number}" for number in range(1, len(scenes) + 1)]
    named = dict(zip(names, scenes, strict=True))
    lookup: dict[str, object] = {
        "query": lambda name, question: query_with(named[name], question),
        "get_pos": lambda name, phrase: true_position(named[name], phrase),
        "find_matching_image": lambda some, phrase: some[
            [named[name] for name in some].index(matching_scene([named[name] for name in some], phrase))
        ],
        "LEFT": 0,
        "BOTTOM": 0,
        "RIGHT": GRID,
        "TOP": GRID,
        "images" if form == "set" else "img": names if form == "set" else names[0],
    }
    with _interpreters().checkout() as session:
        try:
            answer = session.feed_run(f"{program}\nanswer", external_lookup=lookup)
            return ", ".join(map(str, answer)) if isinstance(answer, list) else str(answer)
        except monty.MontyError as error:
            raise error.exception() from None


@functools.cache
def _interpreters() -> monty.Monty:
    """Begun once, ended with this process. One that is forked afterwards must not use them: it would wait for ever."""
    pool = monty.Monty(max_processes=1)
    atexit.register(pool.__enter__().__exit__, None, None, None)
    return pool
