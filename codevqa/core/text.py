"""How prompts write what users say, and terminals what models say."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal would obey rather than show: control characters but tabs and line ends, changes of direction."""
_MARK = re.compile(r"<(?=[^\s<>=][^<>\n]{0,80}>)|\[(?=/?\w?[A-Z_][A-Z_0-9]+\])|>(?=>[A-Z_]+<<)")
"""Begins what tokenizers take for a control token: the end of a turn, of a text, a gap to fill in."""
NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""What no text has: NUL, and half a surrogate pair."""
_SECTION = re.compile("=(?===)")
_BREAK = re.compile(r"[^\S ]+")
_FORGED = re.compile(rf"={{3}}|\b[QA]:|# Image\b|{_MARK.pattern}")
"""What no caption holds, and a prompt is made of."""


def unmarked(text: str) -> str:
    """Returns a text in which no tokenizer finds a control token; a program stays the program that it is."""
    return _MARK.sub(r"\g<0> ", text)


def one_line(text: str, *, spaces: bool = False) -> str:
    """Returns a text as prompts may hold it: it begins no line of its own, no section, and no turn of a chat.

    With ``spaces`` several in a row stay several.
    """
    line = spaced(text) if spaces else " ".join(text.split())
    return unmarked(_SECTION.sub("= ", line))


def spaced(text: str) -> str:
    """Returns a text on one line, with as many spaces in it as there are."""
    return _BREAK.sub(" ", text).strip()


def caption_line(text: str) -> str:
    """Returns of a caption what is one: what comes after a mark that prompts are made of was not seen in a picture."""
    return one_line(_FORGED.split(" ".join(text.split()), maxsplit=1)[0])


def sentence_case(question: str, *, spaces: bool = False) -> str:
    """Returns the question as prompts show it: first letter upper case, the rest lower, on one line."""
    line = one_line(question, spaces=spaces)
    return line[:1].upper() + line[1:].lower()


def visible(text: str) -> str:
    """Returns a text as a terminal may print it: what would move its cursor or turn its letters round is spelt out."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def whole_characters(text: str) -> str:
    """Returns a text that can be written: halves of characters are joined, and replaced where the other is missing."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shown_address(address: str) -> str:
    """Returns an address without what may be secret in it: user, password, query and fragment."""
    return re.split(r"[?#]", re.sub(r"//.*@", "//", address, flags=re.DOTALL), maxsplit=1)[0]
