"""A random sample of a data set, with what belongs together kept whole."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ...core.errors import InputError
from ..task import DataSet, Example
from .loader import Split


def sample(split: Split, count: int, seed: int) -> Split:
    """Returns a split with some of its questions, in their order.

    Where figures ask that a group be right together, such as a statement's pictures, whole groups are drawn, as long
    as they fit; else questions are.

    Args:
        split: the split.
        count: how many questions; groups may leave some room.
        seed: of the draw: the same seed draws the same from the same file, everywhere.

    Raises:
        InputError: there are not so many, or a group is larger.
    """
    sizes = Counter(map(_unit, split))
    total = sizes.total()
    if not 1 <= count <= total:
        raise InputError(f"A sample of {count:,} cannot be had of {total:,} questions.", hint="Give another --sample.")
    units = list(sizes)
    random.Random(seed).shuffle(units)
    chosen: set[str] = set()
    drawn = 0
    for unit in units:
        if drawn + sizes[unit] > count:
            break
        chosen.add(unit)
        drawn += sizes[unit]
    if not chosen:
        raise InputError(f"No whole group fits into {count:,} questions.", hint="Give a larger --sample.")
    groups = f" in {len(chosen):,} whole groups" if max(sizes.values()) > 1 else ""
    part = f"a random sample of {drawn:,} of {total:,} questions{groups}, seed {seed}"
    return replace(split, start=partial(_some, split, chosen), part=(*split.part, part))


def _unit(example: Example) -> str:
    return example.group or example.id


def _some(dataset: DataSet, units: set[str]) -> Iterator[Example]:
    return (example for example in dataset if _unit(example) in units)
