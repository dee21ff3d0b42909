"""The Python of programs as grammar rules: expressions, statements to a fixed depth, and names that are free.

In the notation of :mod:`codevqa.models.grammar`. Spaces stand where formatters put them, and nowhere else: one way to
write a thing keeps masks small. A grammar knows neither types nor which names have been assigned.
"""

from __future__ import annotations

import keyword
import string
from collections.abc import Collection, Iterator, Mapping

__all__ = ["BUILTINS", "DEPTH", "METHODS", "Rule", "calls", "expressions", "names", "statements"]

Rule = tuple[str, str]

DEPTH = 4
"""How deep blocks may lie in one another."""
_MANY = 4
"""Arguments of a function that takes any number."""

BUILTINS: Mapping[str, tuple[int, int]] = {
    "abs": (1, 1),
    "all": (1, 1),
    "any": (1, 1),
    "bool": (0, 1),
    "dict": (0, 1),
    "enumerate": (1, 2),
    "float": (0, 1),
    "int": (0, 1),
    "len": (1, 1),
    "list": (0, 1),
    "max": (1, _MANY),
    "min": (1, _MANY),
    "range": (1, 3),
    "reversed": (1, 1),
    "round": (1, 2),
    "set": (0, 1),
    "sorted": (1, 1),
    "str": (0, 1),
    "sum": (1, 2),
    "tuple": (0, 1),
    "zip": (1, _MANY),
}
"""Builtins that programs may call, with the least and the most arguments."""
_FOLD = ("all", "any", "dict", "list", "max", "min", "set", "sorted", "sum", "tuple")
"""Those that also take a generator."""
_ORDER = ("max", "min", "sorted")
"""Those that also take a key."""

METHODS: Mapping[tuple[int, int], str] = {
    (0, 0): "capitalize clear copy isdigit items keys lower reverse title upper values",
    (0, 1): "lstrip pop rstrip sort split splitlines strip",
    (0, _MANY): "format",
    (1, 1): "add append count difference discard endswith extend find index intersection isdisjoint issubset"
    " issuperset join remove removeprefix removesuffix startswith union update",
    (1, 2): "get setdefault",
    (2, 2): "insert replace",
}
"""Methods of texts, lists, sets and dictionaries, by the least and the most arguments."""

_LETTERS = string.ascii_letters
_WORD = string.ascii_letters + string.digits + "_"
_CONTROL = r"\x00-\x1f\x7f"
"""Characters that no text holds, in a class."""


def names(taken: Collection[str]) -> Iterator[Rule]:
    """Returns the terminal ``NAME``: plain names of up to forty-odd characters, but keywords and those taken.

    A grammar has no "all but": a name begins as words do, and goes on as none of them does. Without groups inside
    groups, since readers bound their depth.
    """
    words = {*taken, *keyword.kwlist}
    ways = ['"_"']
    for start in sorted({word[:length] for word in words for length in range(len(word) + 1)}):
        nexts = {word[len(start)] for word in words if word.startswith(start) and word != start}
        other = f"{_chars({*(_WORD if start else _LETTERS)} - nexts)} TAIL"
        if start:
            other = f'"{start}" {other}' if start in words else f'"{start}" ({other})?'
        ways.append(other)
    yield "NAME", " | ".join(ways)
    yield "TAIL", f"{_chars(_WORD)}{{0,40}}"


def _chars(chars: Collection[str]) -> str:
    """Returns a class of characters, runs of them as ranges."""
    runs: list[list[str]] = []
    for char in sorted(chars):
        if runs and ord(runs[-1][-1]) + 1 == ord(char):
            runs[-1] = [runs[-1][0], char]
        else:
            runs.append([char])
    return f"[{''.join('-'.join(run) for run in runs)}]"


def expressions() -> Iterator[Rule]:
    """Returns the rules of ``expr`` and what it is made of; ``primitive`` is left to whoever knows them."""
    yield "exprs", 'expr (", " expr)*'
    yield "expr", 'test (" if " test " else " expr)?'
    yield "test", 'negation ((" and " | " or ") negation)*'
    yield "negation", '"not "? sum (compare sum)*'
    yield "compare", '" == " | " != " | " < " | " > " | " <= " | " >= " | " in " | " not in " | " is " "not "?'
    yield "sum", 'factor ((" + " | " - " | " * " | " / " | " // " | " % " | " ** " | " & " | " | ") factor)*'
    yield "factor", '"-"? (NUMBER | "True" | "False" | "None" | postfix)'
    yield "postfix", "(NAME | atom) (index | method)*"
    yield "atom", "builtin | primitive | TEXT | formatted | collection"
    yield "index", '"[" (expr | expr? ":" expr?) "]"'
    yield (
        "collection",
        (
            '"(" expr (", " expr)* ")" | "(" expr each ")" | "[" exprs? "]" | "[" expr each "]" | "{" exprs "}" '
            '| "{" expr each "}" | "{" (pair (", " pair)*)? "}" | "{" pair each "}"'
        ),
    )
    yield "pair", 'expr ": " expr'
    yield "each", '(" for " targets " in " test (" if " test)?)+'
    yield "targets", 'NAME (", " NAME)* | NAME ", (" NAME ", " NAME ")"'
    yield "NUMBER", '("0" | [1-9] [0-9]{0,8}) ("." [0-9]{1,6})?'
    for name, quote, other in (("DOUBLE", r"\"", "'"), ("SINGLE", "'", r"\"")):
        yield name, rf'"{quote}" ([^{quote[-1]}\\{_CONTROL}] | "\\" [\\nt{quote[-1]}{other[-1]}]){{0,300}} "{quote}"'
    yield "TEXT", "DOUBLE | SINGLE"
    yield from _formatted()


def _formatted() -> Iterator[Rule]:
    """Returns the rules of f-strings, in which expressions are short and hold no quotes."""
    for name, quote in (("double", '"'), ("single", "'")):
        mark = rf"\{quote}" if quote == '"' else quote
        yield f"f_{name}", f'"f{mark}" (PART_{name.upper()} | hole)* "{mark}"'
        yield f"PART_{name.upper()}", rf'([^{quote}\\{{}}{_CONTROL}] | "\\" [nt]){{1,300}}'
    yield "formatted", "f_double | f_single"
    yield "hole", '"{" inner ((" + " | " - " | " * " | " / ") inner)* (":" FORMAT)? "}"'
    yield "inner", 'NUMBER | (NAME | INNER_CALL inner ")") ("[" ("-"? NUMBER | NAME) "]" | INNER_METHOD)*'
    yield "INNER_CALL", '("abs" | "float" | "int" | "len" | "max" | "min" | "round" | "str" | "sum") "("'
    yield "INNER_METHOD", '"." ("capitalize" | "lower" | "strip" | "title" | "upper") "()"'
    yield "FORMAT", '"." [0-9] [f%]'


def calls() -> Iterator[Rule]:
    """Returns the rules of ``builtin``, a call of one, and of ``method``, the call of a method."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name, least_most in BUILTINS.items():
        groups.setdefault(least_most, []).append(name)
    ways = [_call([f"{name}(" for name in members], *arity) for arity, members in groups.items()]
    ways.append(f'({_any_of(f"{name}(" for name in _FOLD)}) expr each ")"')
    ordered = _any_of(f"{name}(" for name in _ORDER)
    ways.append(f'({ordered}) expr each? (", " "key=" order)? (", " "reverse=" expr | ", " "default=" expr)? ")"')
    yield "builtin", " | ".join(ways)
    yield "order", '"lambda " NAME ": " expr | "abs" | "float" | "int" | "len" | "str"'
    ways = [_call([f".{name}(" for name in members.split()], *arity) for arity, members in METHODS.items()]
    yield "method", " | ".join([*ways, '".width"', '".height"'])


def _any_of(texts: Collection[str] | Iterator[str]) -> str:
    return " | ".join(f'"{text}"' for text in texts)


def _call(openings: Collection[str], least: int, most: int) -> str:
    given = ["expr"] * most
    return f'({_any_of(openings)}) {sequence(given, least)}")"'


def sequence(given: Collection[str], least: int) -> str:
    """Returns a body for the first so many of these or more, with commas between them; a space after it."""
    body = ""
    for place, rule in reversed(list(enumerate(given))):
        body = f"{rule} {body}" if place == 0 else f'", " {rule} {body}'
        if place >= least:
            body = f"({body.strip()})? "
    return body


def statements() -> Iterator[Rule]:
    """Returns the rules of ``body_0``, statements of which one, at some depth, assigns ``answer``.

    Each rule is there for each depth; in loops, where ``break`` may stand, and outside; for blocks of any statements
    (``any``) and for those with the assignment (``done``).
    """
    yield "assign_answer", '"answer" " = " exprs'
    yield "assign", 'target (", " target)* (" = " target (", " target)*)* " = " exprs'
    yield "target", "NAME index*"
    yield "update", 'target (" += " | " -= " | " *= " | " /= ") expr'
    yield "effect", "(NAME | builtin | primitive) (index | method)* method | primitive"
    yield "simple", 'assign | update | effect | "pass"'
    yield "simple_loop", 'simple | "break" | "continue"'
    for depth in range(DEPTH + 1):
        yield f"LINE_{depth}", r'"\n"{1,2}' + (f' " "{{{4 * depth}}}' if depth else "")
        for loop in ("", "_loop") if depth else ("",):
            yield from _blocks(depth, loop)


def _blocks(depth: int, loop: str) -> Iterator[Rule]:
    here, line = f"{depth}{loop}", f"LINE_{depth}"
    any_ways, done_ways = [f"simple{loop}"], ["assign_answer"]
    if depth < DEPTH:
        any_ways += [f"if_any_{here}", f"for_any_{here}"]
        done_ways += [f"if_done_{here}", f"for_done_{here}"]
        inner, looped = f"{depth + 1}{loop}", f"{depth + 1}_loop"
        other = f'{line} "elif " test ":" any_{inner}'
        last = f'{line} "else:" any_{inner}'
        yield f"if_any_{here}", f'"if " test ":" any_{inner} ({other})* ({last})?'
        yield (
            f"if_done_{here}",
            f'"if " test ":" (done_{inner} ({other})* ({last})? | any_{inner} elif_done_{here})',
        )
        yield (
            f"elif_done_{here}",
            f'{line} "elif " test ":" (done_{inner} ({other})* ({last})? | any_{inner} elif_done_{here})'
            f' | {line} "else:" done_{inner}',
        )
        for kind in ("any", "done"):
            yield f"for_{kind}_{here}", f'"for " targets " in " exprs ":" {kind}_{looped}'
    yield f"one_{here}", " | ".join(any_ways)
    yield f"done_one_{here}", " | ".join(done_ways)
    if depth:
        yield f"any_{here}", f"({line} one_{here})+"
        yield f"done_{here}", f"({line} one_{here})* {line} done_one_{here} ({line} one_{here})*"
    else:
        yield "body_0", f"(one_0 {line})* done_one_0 ({line} one_0)*"
