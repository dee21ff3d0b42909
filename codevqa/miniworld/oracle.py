"""The primitives answered from the truth of a scene: what a program should get from perfect models.

Understands the elementary questions that the programs of ``questions`` ask, and no others.
"""

from __future__ import annotations

import atexit
import functools
import re
from collections.abc import Callable, Sequence

import pydantic_monty as monty

from .conditions import touches
from .questions import GENERIC, Phrase, yes_no
from .world import CANVAS, COLORS, KINDS, SIZES, Scene, Thing, plural

GRID = 24
_NOUNS: dict[str, str | None] = {
    **{kind: kind for kind in KINDS},
    "block": "square",
    **dict.fromkeys(GENERIC),
}
_HEADS: dict[str, str] = {**{noun: noun for noun in _NOUNS}, **{plural(noun): noun for noun in _NOUNS}}


def parse_phrase(text: str) -> Phrase:
    """Reads "small red stars" or "a block".

    Raises:
        ValueError: a word is unknown.
    """
    words = re.sub(r"^(an?|the|any) ", "", text.strip()).split()
    if not words or words[-1] not in _HEADS:
        raise ValueError(f"cannot read the phrase {text!r}")
    noun = _HEADS[words.pop()]
    size = color = None
    for word in words:
        if word in SIZES:
            size = word
        elif word in COLORS:
            color = word
        else:
            raise ValueError(f"cannot read the phrase {text!r}: {word!r} is unknown")
    return Phrase(_NOUNS[noun], color, size, noun if _NOUNS[noun] != noun else "")


def query(scene: Scene, question: str) -> str:
    """Answers an elementary question truly.

    Raises:
        ValueError: it is no elementary question, or asks for one thing where there is not exactly one.
    """
    for pattern, answer in _PATTERNS:
        match = re.fullmatch(pattern, question)
        if match:
            return answer(scene, *match.groups())
    raise ValueError(f"no elementary question: {question!r}")


def get_pos(scene: Scene, phrase: str) -> tuple[float, float]:
    """The position of the thing a phrase describes, on the 24x24 grid, y upwards; the middle where there is none."""
    if not parse_phrase(phrase).count(scene):
        return (GRID / 2, GRID / 2)
    thing = _only(scene, phrase)
    return (thing.x / CANVAS * GRID, (CANVAS - thing.y) / CANVAS * GRID)


def find_matching_image(scenes: Sequence[Scene], phrase: str) -> Scene:
    """The first scene that shows what a phrase describes."""
    what = parse_phrase(phrase)
    return next(scene for scene in scenes if what.count(scene))


def _only(scene: Scene, phrase: str) -> Thing:
    found = parse_phrase(phrase).find(scene)
    if len(found) != 1:
        raise ValueError(f"{len(found)} things are {phrase!r}")
    return found[0]


def _touching(scene: Scene, phrase: str, wall: str) -> int:
    return sum(touches(thing, wall) for thing in parse_phrase(phrase).find(scene))


def _stacked(scene: Scene, upper: str, lower: str) -> str:
    pairs = zip(scene.tower, scene.tower[1:], strict=False)
    return yes_no(any((below.color, above.color) == (lower, upper) for below, above in pairs))


def _end(scene: Scene, end: str) -> str:
    if not scene.tower:
        raise ValueError("no tower")
    return scene.tower[-1 if end == "top" else 0].color


def _all_color(scene: Scene, color: str) -> str:
    return yes_no(all(thing.color == color for thing in scene.things))


_PATTERNS: tuple[tuple[str, Callable[..., str]], ...] = (
    (r"Is there an? (\w+) block above an? (\w+) block\?", _stacked),
    (r"Is there (an? [\w ]+) touching the ([\w ]+)\?", lambda s, p, w: yes_no(_touching(s, p, w) > 0)),
    (r"Is there (an? [\w ]+)\?", lambda s, p: yes_no(parse_phrase(p).count(s) > 0)),
    (r"How many blocks are in the tower\?", lambda s: str(len(s.tower))),
    (r"How many ([\w ]+) are there\?", lambda s, p: str(parse_phrase(p).count(s))),
    (r"How many ([\w ]+) touch the ([\w ]+)\?", lambda s, p, w: str(_touching(s, p, w))),
    (r"What color is the block at the (top|base) of the tower\?", _end),
    (r"What color is the ([\w ]+)\?", lambda s, p: _only(s, p).color),
    (r"What size is the ([\w ]+)\?", lambda s, p: _only(s, p).size),
    (r"What is the ([\w ]+)\?", lambda s, p: _only(s, p).kind),
    (r"Are all the (?:objects|items|blocks) (\w+)\?", _all_color),
)


def run_program(
    program: str, scenes: Sequence[Scene], form: str, *, query_with: Callable[[Scene, str], str] = query
) -> str:
    """Runs a program against the truth, in an interpreter that knows scenes by their places only.

    Args:
        program: Without its opening line.
        scenes: The set, or the one scene.
        form: "image" or "set".
        query_with: Answers ``query`` instead of the truth, e.g. to note what is asked.

    Raises:
        ValueError: the program asks something the truth does not decide.
    """
    truth: dict[str, object] = {
        "query": lambda place, question: query_with(scenes[place], question),
        "get_pos": lambda place, phrase: get_pos(scenes[place], phrase),
        "find_matching_image": lambda places, phrase: scenes.index(
            find_matching_image([scenes[place] for place in places], phrase)
        ),
        "LEFT": 0,
        "BOTTOM": 0,
        "RIGHT": GRID,
        "TOP": GRID,
        "images" if form == "set" else "img": list(range(len(scenes))) if form == "set" else 0,
    }
    with _interpreters().checkout() as session:
        try:
            return str(session.feed_run(f"{program}\nanswer", external_lookup=truth))
        except monty.MontyError as error:
            raise error.exception() from None


@functools.cache
def _interpreters() -> monty.Monty:
    """Begun once, ended with this process. One that is forked afterwards must not use them: it would wait for ever."""
    pool = monty.Monty(max_processes=1)
    atexit.register(pool.__enter__().__exit__, None, None, None)
    return pool
