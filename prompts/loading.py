"""Loads prompt sets from their folders."""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from ..core.errors import SetupError, UnknownNameError
from .prompt_set import Example, PromptSet, ReadingExample
from .records import Record, parse_json, read_lines, read_text

__all__ = ["available", "load"]

API = "{api}"
"""Where the preamble lists the primitives."""
_HEAD_KEYS = frozenset(
    [
        "name",
        "form",
        "shots",
        "captions",
        "caption_draws",
        "reading_shots",
        "primitives",
        "image_labels",
        "licence",
        "about",
    ]
)
_EXAMPLE_KEYS = frozenset(("id", "question", "program", "form"))
_READING_KEYS = frozenset(("id", "question", "captions", "answer"))


def available() -> list[str]:
    """Returns the names of the sets in this package."""
    return sorted(entry.name for entry in files(__package__).iterdir() if (entry / "prompt.json").is_file())


def load(name_or_folder: str | os.PathLike[str]) -> PromptSet:
    """Loads a set of this package by name, or any folder laid out like one.

    Raises:
        UnknownNameError: there is no set of that name and no such folder.
        SetupError: a file is missing or malformed; the message names file and line.
    """
    if isinstance(name_or_folder, str) and name_or_folder in available():
        return _load_folder(files(__package__) / name_or_folder, name_or_folder)
    if str(name_or_folder) and Path(name_or_folder).is_dir():
        return _load_folder(Path(name_or_folder), str(name_or_folder))
    raise UnknownNameError(
        f"No prompt set {str(name_or_folder)!r}.", hint=f"There are: {', '.join(available())}; or give a folder."
    )


def _load_folder(folder: Traversable, shown: str) -> PromptSet:
    head = Record(parse_json(read_text(folder / "prompt.json"), f"{shown}/prompt.json"), f"{shown}/prompt.json")
    head.only(_HEAD_KEYS)
    form = head.choice("form")
    assert form is not None
    preamble = read_text(folder / "preamble.txt")
    if preamble.count(API) != 1:
        raise SetupError(f"{shown}/preamble.txt: {API} must stand in it once, found {preamble.count(API)} times.")
    examples = tuple(
        Example(record.id(), record.text("question"), record.text("program"), record.choice("form", form) or form)
        for record in read_lines(folder / "examples.jsonl", f"{shown}/examples.jsonl", _EXAMPLE_KEYS)
    )
    reading = tuple(
        ReadingExample(record.id(), record.text("question"), record.captions(), record.text("answer"))
        for record in read_lines(folder / "reading.jsonl", f"{shown}/reading.jsonl", _READING_KEYS)
    )
    labels = head.strings("image_labels") if head.data.get("image_labels") is not None else None
    return PromptSet(
        name=head.text("name"),
        form=form,
        shots=head.count("shots"),
        captions=head.count("captions"),
        caption_draws=head.count("caption_draws"),
        reading_shots=head.count("reading_shots"),
        primitives=head.strings("primitives"),
        image_labels=labels,
        preamble=preamble,
        examples=examples,
        reading=reading,
        licence=head.text("licence"),
        about=head.text("about"),
    )
