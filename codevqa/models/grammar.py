"""Grammars that completions are held to, as values: one notation, and the dialects that back ends read.

A rule is a name and a body. Bodies are written in what the dialects have in common: ``"text"``, ``[a-z]``, names,
``|``, ``( )``, ``*``, ``+``, ``?`` and ``{2,5}``, with the escapes ``\\n``, ``\\"``, ``\\\\`` and ``\\x1f``. A rule in
capitals is a terminal: it refers to terminals only, and a lexer takes the longest text that fits. So no text may begin
with one terminal that is allowed there and go on as if with a longer one that it turns out not to be.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass

__all__ = ["Grammar"]

_PARTS = re.compile(r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<chars>\[(?:[^\]\\]|\\.)*\])|(?P<name>[A-Za-z_]\w*)|.', re.DOTALL)


@dataclass(frozen=True)
class Grammar:
    """The texts a completion may be."""

    rules: tuple[tuple[str, str], ...]
    """Name and body of each rule; the first is where a text begins."""

    @functools.cached_property
    def lark(self) -> str:
        """The grammar as llguidance reads it."""
        start = self.rules[0][0]

        def shown(found: re.Match[str]) -> str:
            # A slash would end the expression.
            return (
                "/" + found["chars"].replace("/", r"\/") + "/"
                if found["chars"]
                else _renamed(found, start, "start", "_")
            )

        return "".join(
            f"{'start' if name == start else name}: {_PARTS.sub(shown, body)}\n" for name, body in self.rules
        )

    @functools.cached_property
    def gbnf(self) -> str:
        """The grammar as llama.cpp and vLLM's xgrammar read it."""
        start = self.rules[0][0]

        def shown(found: re.Match[str]) -> str:
            return _renamed(found, start, "root", "-")

        return "".join(
            f"{'root' if name == start else name.replace('_', '-')} ::= {_PARTS.sub(shown, body)}\n"
            for name, body in self.rules
        )

    @functools.cached_property
    def key(self) -> str:
        """A name for it as good as the whole: equal grammars have equal keys."""
        return hashlib.sha256(repr(self.rules).encode()).hexdigest()


def _renamed(found: re.Match[str], start: str, shown: str, dash: str) -> str:
    name = found["name"]
    if name is None:
        return found[0]
    return shown if name == start else name.replace("_", dash)
