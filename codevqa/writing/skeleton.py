"""The structure of a question: what is left where every thing that it names is one "thing"."""

from __future__ import annotations

import re

KEPT = """
a an the this that these those it its they them their he she his her there here you someone
is are was were be being do does did has have had can could will would should
and or but nor if while as than not no none nothing neither either both each every all any some
in on at of to from with without by for into onto over under above below beside behind between near next front
around across inside outside against along through off up down
left right top bottom middle center centre side corner edge upper lower higher closer nearer farther
what which who whose where when why how many much kind type sort color colour material shape size
one two three four five six seven eight nine ten single pair couple number total half first second last
only exactly least most more less fewer same different other another also too
image images picture pictures photo photos
see look looks like called contain contains show shows include includes holding wearing facing
"""
"""Words that are kept: function words, numbers, places, and what questions of every subject ask."""
_KEPT = frozenset(KEPT.split())


def skeleton(question: str) -> str:
    """Returns a question with "thing" for each run of words that are not kept.

    >>> skeleton("The left image contains exactly two brown dogs.")
    'the left image contains exactly two thing'
    """
    words = (
        word if word in _KEPT or word.isdigit() else "thing" for word in re.findall(r"[a-z0-9]+", question.lower())
    )
    return re.sub(r"\bthing(?: thing)+\b", "thing", " ".join(words))
