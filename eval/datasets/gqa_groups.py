"""By what figures on GQA are broken down, from a question's own record.

Steps and the division into open and binary questions follow the official ``eval.py`` (dorarad/gqa). CodeVQA's paper
reports the groups spatial, and, or without a rule; the rules here are ours: the last operation for "and" and "or", and
for spatial a relation to the left, to the right, above or below anywhere in the program, or a position asked for.
``spatial_final`` holds only where the last relation or position is such a one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

SIDES = frozenset(("to the left of", "to the right of", "above", "below"))
RELATIONAL = frozenset(("relate", "verify rel", "choose rel"))
POSITIONS = ("hposition", "vposition")
NO_STEP = ("exist", "query: name", "choose name")
"""What the official count of steps leaves out."""

_OBJECTS = re.compile(r"\s*\([^()]*\)\s*$")


def groups(row: Mapping[str, Any]) -> dict[str, str]:
    """Returns the groups of a question; empty where its record is without types and program, as in the test splits.

    Keys: ``structural``, ``semantic``, ``detailed``, ``open`` ("open" or "binary"), ``words``, ``steps``, and
    ``spatial``, ``spatial_final``, ``and``, ``or`` with "yes" or "no". A type that is not given is "other".
    """
    found: dict[str, str] = {}
    types = row.get("types")
    if types:
        for name in ("structural", "semantic", "detailed"):
            found[name] = str(types.get(name) or "other")
        found["open"] = "open" if found["structural"] == "query" else "binary"
        found["words"] = str(len(str(row["question"]).split()))
    program = row.get("semantic")
    if program:
        last = str(program[-1]["operation"])
        found["steps"] = str(steps(program))
        relational = [one for one in map(_spatial, program) if one is not None]
        found["spatial"] = _yes(any(relational))
        found["spatial_final"] = _yes(relational[-1:] == [True])
        found["and"] = _yes(last == "and")
        found["or"] = _yes(last == "or")
    return found


def steps(program: Sequence[Mapping[str, Any]]) -> int:
    """Number of reasoning steps as the official script counts them."""
    texts = [f"{step['operation']}: {step['argument']}" for step in program]
    return sum(not any(part in text for part in NO_STEP) for text in texts)


def _spatial(step: Mapping[str, Any]) -> bool | None:
    """Whether a step is about left, right, above or below, or a position; None where it is about no relation at all."""
    operation, argument = str(step["operation"]), str(step["argument"])
    if operation.endswith(POSITIONS) or (operation == "query" and argument in POSITIONS):
        return True
    if operation not in RELATIONAL:
        return None
    parts = _OBJECTS.sub("", argument).rsplit(",", 2)  # chair,to the left of|to the right of,s (12)
    return len(parts) == 3 and not SIDES.isdisjoint(parts[1].split("|"))


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
