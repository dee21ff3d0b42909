"""Reads answers back: from their JSON, or from the pages that carry it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.answer import Answer
from ..core.errors import InputError
from .page_view import ANSWER_ID, PICTURES_ID

__all__ = ["Told", "read_answer"]


@dataclass(frozen=True)
class Told:
    """An answer as a file tells it."""

    answer: Answer
    pictures: tuple[tuple[str, str], ...] | None = None
    """SHA-256 and name of each picture; None where the file does not say, as plain JSON does not."""


def read_answer(path: Path) -> Told:
    """Reads an answer from a JSON file (``Answer.to_json()``) or a trace page (``Answer.save_html()``).

    Raises:
        InputError: the file cannot be read, or holds no answer with its evidence.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file.", hint="Give a trace page or an answer's JSON.") from None
    except (OSError, ValueError) as error:  # the latter for a path that no file can have
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot read {path}: {reason}.", hint="Check the path.") from None
    if text.lstrip()[:1] == "<":
        return _from_page(text, path)
    return Told(_answer(text, path))


def _answer(text: str, path: Path) -> Answer:
    try:
        return Answer.from_json(text)
    except InputError as error:
        raise InputError(f"{path}: {error.message}", hint=error.hint) from None


def _from_page(text: str, path: Path) -> Told:
    held = _held(text, ANSWER_ID)
    if held is None:
        raise InputError(f"{path} is no trace page.", hint="Give what --trace or Answer.save_html() wrote.")
    answer = _answer(held, path)
    try:
        pictures: list[dict[str, Any]] = json.loads(_held(text, PICTURES_ID) or "[]")
        return Told(answer, tuple((str(one["key"]), str(one["name"])) for one in pictures))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError(f"{path} is damaged.", hint="Write the page again.") from None


def _held(page: str, name: str) -> str | None:
    """What a data element of a page holds. Nothing that came from data can look like one: it is escaped."""
    start = f'<script type="application/json" id="{name}">'
    at = page.find(start)
    end = page.find("</script>", at)
    return page[at + len(start) : end] if at >= 0 and end >= 0 else None
