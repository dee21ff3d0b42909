"""Python source as lines of HTML, with keywords, strings, numbers and comments told apart.

Programs that do not parse are shown too, so this reads characters, not syntax trees.
"""

from __future__ import annotations

import keyword
import re

from markupsafe import Markup, escape

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>(?<!\w)[rRbBfFuU]{0,2}
        (?:'''.*?(?:'''|\Z)|\"{3}.*?(?:\"{3}|\Z)|'(?:\\.|[^'\\\n])*'?|"(?:\\.|[^"\\\n])*"?))
    |(?P<number>\b\d[\d_.]*(?:[eE][+-]?\d+)?\b)
    |(?P<name>[^\W\d]\w*)
    |(?P<rest>.)""",
    re.VERBOSE | re.DOTALL,
)


def code_lines(source: str) -> list[Markup]:
    """Returns each line of a program as HTML; their text is the source, without empty lines at its end."""
    lines: list[list[Markup | str]] = [[]]
    source = source.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    for match in _TOKEN.finditer(source):
        kind, text = match.lastgroup or "rest", match.group()
        if kind == "name":
            kind = "keyword" if keyword.iskeyword(text) else "rest"
        for number, part in enumerate(text.split("\n")):
            if number:
                lines.append([])
            if part and kind != "rest":
                part = Markup('<span class="cv-token-{}">{}</span>').format(kind, part)
            lines[-1].append(part)
    return [Markup("").join(escape(part) for part in line) for line in lines]
