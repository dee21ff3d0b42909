"""Whether a program that the model wrote answers as the true program does, on many variations of its scenes."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from codevqa.miniworld import oracle
from codevqa.miniworld.questions import Item
from codevqa.miniworld.world import Scene

from .language_data import corrupt
from .language_words import reworded_program

VARIATIONS = 150
DECIDED = 12
"""Fewest variations in which the true program has an answer; it must have two different ones."""

_OPENING = re.compile(r"^(img|images) = open_images?\(.*\)\n", re.MULTILINE)
_NODES = (
    ast.Module, ast.Assign, ast.AugAssign, ast.For, ast.If, ast.Call, ast.Name, ast.Constant, ast.Compare, ast.BoolOp,
    ast.BinOp, ast.UnaryOp, ast.IfExp, ast.List, ast.Tuple, ast.ListComp, ast.comprehension, ast.Subscript,
    ast.expr_context, ast.boolop, ast.cmpop, ast.unaryop, ast.Add, ast.Sub, ast.Div,
)  # fmt: skip
_CALLS = {"query", "get_pos", "find_matching_image", "int", "str", "len", "min", "max", "sum"}
_FAILURES = (ValueError, TypeError, NameError, IndexError, KeyError, ZeroDivisionError, StopIteration)


def harmless(program: str) -> bool:
    """Whether a program is of the few statements that ours have: such a one ends, and touches nothing."""
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            return False
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _CALLS):
            return False
        if isinstance(node, ast.For | ast.comprehension) and not isinstance(node.iter, ast.Name):
            return False
    return True


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


def same_answers(written: str, item: Item, scenes: Sequence[Scene], undo: Mapping[str, str] | None = None) -> bool:
    """Whether a written program answers as the true one does wherever the truth decides that.

    Args:
        written: What the model wrote, with its opening line.
        item: The question with its true program.
        scenes: What it was asked about.
        undo: Words of the question that stand for known ones, with those: the truth knows only these.
    """
    program = reworded_program(_OPENING.sub("", written), undo or {})
    truth = reworded_program(item.program, undo or {})
    if program.strip() == truth.strip():
        return True
    if not harmless(program):
        return False
    rng = random.Random(item.question)
    seen: list[str] = []
    for _ in range(VARIATIONS):
        varied = variation(rng, scenes)
        try:
            wanted = oracle.run_program(truth, varied, item.form)
        except _FAILURES:
            continue
        try:
            found = oracle.run_program(program, varied, item.form)
        except _FAILURES:
            return False
        if found != wanted:
            return False
        seen.append(wanted)
    return len(seen) >= DECIDED and len(set(seen)) > 1
