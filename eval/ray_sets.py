"""A selection from a large collection by many engines: each Ray actor looks at its share of the pictures.

make = partial(CodeVQA.from_preset, "base")
selection = select_on_ray(make, {"sources": "/data/photos"}, "Is there a dog?", actors=4)
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.collection import Collection
from ..core.errors import SetupError
from ..core.selection import Pick, Selection, selections
from ..core.trace import ImageRef
from .ray import SAME_PACKAGES, connect, find_room, one_line

if TYPE_CHECKING:
    from ..engine.codevqa import CodeVQA


class SetWorker:
    """One engine and the collection, as Ray runs them."""

    def __init__(self, factory: Callable[[], CodeVQA], collection: Mapping[str, Any], folder: str) -> None:
        with suppress(OSError):
            os.chdir(folder)
        self._engine, self._collection = factory(), Collection(**collection)

    def select(self, question: str, place: int, step: int) -> tuple[int, Selection | None]:
        """Returns how many pictures there are, and what is selected from every ``step``-th, from ``place`` on."""
        pictures = self._collection.open()
        share = pictures[place::step]
        if not share:
            return len(pictures), None
        answer = self._engine.select(share, question)
        return len(pictures), renumbered(selections(answer.trace)[0], lambda index: place + (index - 1) * step + 1)


def select_on_ray(
    factory: Callable[[], CodeVQA],
    collection: Mapping[str, Any],
    question: str,
    *,
    actors: int | None = None,
    address: str | None = None,
) -> Selection:
    """Returns the pictures of a collection for which a question is answered yes, found by many engines.

    Args:
        factory: makes an engine; it is called in each actor, and must be something Ray can send.
        collection: the arguments of a :class:`Collection`, whose files lie under the same paths on every machine.
        question: what each picture is asked.
        actors: how many; None takes one for each GPU, or for each four CPUs where there is none.
        address: of a running cluster, as for :class:`~.ray.ActorPool`; None starts Ray here, and ends it again.

    Raises:
        InputError: there is no picture, or there are more actors than GPUs or CPUs.
        SetupError: Ray is not installed or fails, or the machines see different pictures.
        CodeVQAError: an engine failed.
    """
    count = len(Collection(**collection))  # so that the actors find it in the catalogue
    ray, owned = connect(address)
    workers: list[Any] = []
    try:
        options, step = find_room(ray, actors)
        made = ray.remote(SetWorker).options(**options)
        workers = [made.remote(factory, collection, str(Path.cwd())) for _ in range(step)]
        asked = [one.select.remote(question, place, step) for place, one in enumerate(workers)]
        found: list[tuple[int, Selection | None]] = ray.get(asked)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise SetupError(f"Ray has no engine: {one_line(error)}.", hint=SAME_PACKAGES) from None
    finally:
        for worker in workers:
            with suppress(ray.exceptions.RayError):
                ray.kill(worker)
        if owned:
            ray.shutdown()
    if {total for total, _ in found} != {count}:
        raise SetupError(f"Not every machine has the {count:,} pictures.", hint="Put them under the same path.")
    return merged([one for _, one in found if one is not None])


def renumbered(part: Selection, number: Callable[[int], int]) -> Selection:
    """Returns a selection whose pictures have other numbers."""
    picked, others = ([Pick(ImageRef(number(one.image.index)), one.chance) for one in side] for side in _sides(part))
    unread = tuple(ImageRef(number(one.index)) for one in part.unread)
    kept = part.low, part.high, part.ruled_out, unread, part.left
    return Selection(part.question, tuple(picked), tuple(others), *kept)


def merged(parts: Sequence[Selection]) -> Selection:
    """Returns selections from parts of a set as one; what is unsure about each is taken as independent."""
    sides = [[one for part in parts for one in _sides(part)[side]] for side in (0, 1)]
    picked, others = (tuple(sorted(side, key=lambda one: (-one.chance, one.image.index))) for side in sides)
    below, above = (
        round(math.hypot(*gaps))
        for gaps in ([one.count - one.low for one in parts], [one.high - one.count for one in parts])
    )
    unread = tuple(sorted((one for part in parts for one in part.unread), key=lambda one: one.index))
    out, left = sum(one.ruled_out for one in parts), sum(one.left for one in parts)
    question, count = parts[0].question, len(picked)
    return Selection(question, picked, others, count - below, count + above, out, unread, left)


def _sides(part: Selection) -> tuple[tuple[Pick, ...], tuple[Pick, ...]]:
    return part.picked, part.others
