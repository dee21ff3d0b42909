"""How prompts write what users say."""

from __future__ import annotations

__all__ = ["sentence_case"]


def sentence_case(question: str) -> str:
    """Returns the question as prompts show it: first letter upper case, the rest lower, on one line."""
    line = " ".join(question.split())
    return line[:1].upper() + line[1:].lower()
