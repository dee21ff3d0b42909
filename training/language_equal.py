"""Whether a program that the model wrote answers as the true program does, on many variations of its scenes."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from PIL import Image as PILImage

from codevqa.core.errors import ProgramError
from codevqa.core.images import load_picture
from codevqa.core.loop_thread import LoopThread
from codevqa.core.settings import Limits
from codevqa.miniworld import oracle
from codevqa.miniworld.questions import Item
from codevqa.miniworld.world import Scene
from codevqa.primitives.kinds import Image
from codevqa.primitives.visual import VISUAL
from codevqa.sandbox.sandbox import Sandbox

from .language_data import corrupt
from .language_words import reworded_program

VARIATIONS = 150
DECIDED = 12
"""Fewest variations in which the true program has an answer; it must have two different ones."""

_OPENING = re.compile(r"^(img|images) = open_images?\(.*\)\n", re.MULTILINE)
_FAILURES = (ValueError, TypeError, NameError, IndexError, KeyError, ZeroDivisionError, StopIteration)
_BLANK = load_picture(PILImage.new("RGB", (8, 8)))


class TrueWorld:
    """Runs programs that a model wrote, in the sandbox, their primitives answered from the truth of scenes."""

    def __init__(self) -> None:
        self._loop = LoopThread("true-world")
        self._sandbox = Sandbox(VISUAL, Limits(seconds=1, wall_seconds=10), workers=1)

    def __enter__(self) -> TrueWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._sandbox.aclose())
        self._loop.close()

    def run(self, program: str, scenes: Sequence[Scene]) -> str:
        """Returns what a program answers.

        Raises:
            ProgramError: it fails, or asks something the truth does not decide.
        """
        images = [Image(number, _BLANK) for number in range(1, len(scenes) + 1)]

        async def truth(name: str, args: Sequence[object], kwargs: Mapping[str, object], line: int | None) -> object:
            match name, list(VISUAL.bind(name, args, kwargs).values()):
                case "query", [Image() as image, str(question)]:
                    return oracle.query(scenes[image.index - 1], question)
                case "get_pos", [Image() as image, str(phrase)]:
                    return oracle.get_pos(scenes[image.index - 1], phrase)
                case "find_matching_image", [list(among), str(phrase)]:
                    what = oracle.parse_phrase(phrase)
                    return next((one for one in among if what.count(scenes[one.index - 1])), None)
            raise ValueError(f"no truth about {name}")

        return str(self._loop.run(self._sandbox.run(program, truth, images=images)).value)


def variation(rng: random.Random, scenes: Sequence[Scene]) -> list[Scene]:
    """The scenes with things changed, gone, doubled, and exchanging places."""
    made = []
    for scene in scenes:
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            scene = corrupt(rng, scene)
        spots = [(thing.x, thing.y) for thing in scene.things]
        if rng.random() < 0.7:
            rng.shuffle(spots)
        things = tuple(replace(thing, x=x, y=y) for thing, (x, y) in zip(scene.things, spots, strict=True))
        made.append(Scene(things, scene.style, scene.background))
    if rng.random() < 0.3:
        rng.shuffle(made)
    return made


def same_answers(
    world: TrueWorld, written: str, item: Item, scenes: Sequence[Scene], undo: Mapping[str, str] | None = None
) -> bool:
    """Whether a written program answers as the true one does wherever the truth decides that.

    Args:
        world: Runs it.
        written: What the model wrote, with its opening line.
        item: The question with its true program.
        scenes: What it was asked about.
        undo: Words of the question that stand for known ones, with those: the truth knows only these.
    """
    program = reworded_program(_OPENING.sub("", written), undo or {})
    truth = reworded_program(item.program, undo or {})
    if program.strip() == truth.strip():
        return True
    rng = random.Random(item.question)
    seen: list[str] = []
    for _ in range(VARIATIONS):
        varied = variation(rng, scenes)
        try:
            wanted = oracle.run_program(truth, varied, item.form)
        except _FAILURES:
            continue
        try:
            found = world.run(program, varied)
        except ProgramError:
            return False
        if found != wanted:
            return False
        seen.append(wanted)
    return len(seen) >= DECIDED and len(set(seen)) > 1
