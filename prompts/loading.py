"""Loads prompt sets from their folders, and from the files of the paper's release."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from ..core.errors import InputError, UnknownNameError
from ..core.given_files import parse_json, read_text
from ..core.trace import Form
from ..core.wording import Wording
from .prompt_set import Example, KnowledgeExample, PromptSet, ReadingExample
from .records import Record, read_records
from .release_layout import load_pool

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
        "caption_tokens",
        "reading_shots",
        "primitives",
        "image_labels",
        "wording",
        "reading_wording",
        "licence",
        "about",
    ]
)
_EXAMPLE_KEYS = frozenset(("id", "question", "program", "form"))
_READING_KEYS = frozenset(("id", "question", "captions", "answer"))
_KNOWLEDGE_KEYS = frozenset(("id", "question", "answer"))


def available() -> list[str]:
    """Returns the names of the sets in this package."""
    return sorted(entry.name for entry in files(__package__).iterdir() if (entry / "prompt.json").is_file())


def load(name_or_folder: str | os.PathLike[str]) -> PromptSet:
    """Loads a set of this package by name, any folder laid out like one, or a file of programs of the paper's release.

    Of the release's files the set with which the name begins gives the numbers; preamble and reading examples are taken
    from beside it.

    Raises:
        UnknownNameError: there is no set of that name and no such folder.
        InputError: a file is missing or malformed; the message names file and line.
    """
    if isinstance(name_or_folder, str) and name_or_folder in available():
        return _load_folder(files(__package__) / name_or_folder, name_or_folder)
    # os.path, unlike Path, says no of a name that is too long.
    if os.path.isdir(name_or_folder):  # noqa: PTH112
        return _load_folder(Path(name_or_folder), str(name_or_folder))
    if os.path.isfile(name_or_folder):  # noqa: PTH113
        return _load_pool(Path(name_or_folder))
    raise UnknownNameError(
        f"No prompt set {str(name_or_folder)!r}.", hint=f"There are: {', '.join(available())}; or give a folder."
    )


def _load_pool(programs: Path) -> PromptSet:
    task = programs.name.partition("_")[0]
    if task not in available():
        raise InputError(
            f"{programs} is of no known prompt set.", hint=f"Its name begins with one of: {', '.join(available())}."
        )
    return load_pool(load(task), programs)


def _load_folder(folder: Traversable, shown: str) -> PromptSet:
    file = f"{shown}/prompt.json"
    head = Record(parse_json(read_text(folder / "prompt.json", file), file), file)
    head.only(_HEAD_KEYS)
    form = head.choice("form", Form)
    primitives = head.strings("primitives")
    preamble = read_text(folder / "preamble.txt", f"{shown}/preamble.txt")
    named = set(primitives).intersection(re.findall(r"\w+", preamble))
    if preamble.count(API) != 1 and (API in preamble or not named):
        raise InputError(
            f"{shown}/preamble.txt: {API} must stand in it once, found {preamble.count(API)} times.",
            hint="Only a preamble that names primitives itself has none.",
        )
    examples = tuple(
        Example(record.id(), record.text("question"), record.text("program"), record.choice("form", Form, form))
        for record in read_records(folder / "examples.jsonl", f"{shown}/examples.jsonl", _EXAMPLE_KEYS)
    )
    reading = tuple(
        ReadingExample(record.id(), record.text("question"), record.captions(), record.text("answer"))
        for record in read_records(folder / "reading.jsonl", f"{shown}/reading.jsonl", _READING_KEYS)
    )
    known = folder / "knowledge.jsonl"
    knowledge = tuple(
        KnowledgeExample(record.id(), record.text("question"), record.text("answer"))
        for record in (read_records(known, f"{shown}/knowledge.jsonl", _KNOWLEDGE_KEYS) if known.is_file() else ())
    )
    labels = head.strings("image_labels") if head.data.get("image_labels") is not None else None
    return PromptSet(
        name=head.text("name"),
        form=form,
        shots=head.count("shots"),
        captions=head.count("captions"),
        caption_draws=head.count("caption_draws"),
        reading_shots=head.count("reading_shots"),
        primitives=primitives,
        image_labels=labels,
        preamble=preamble,
        examples=examples,
        reading=reading,
        wording=head.choice("wording", Wording, "plain"),
        reading_wording=head.choice("reading_wording", Wording, "plain"),
        licence=head.text("licence"),
        about=head.text("about"),
        knowledge=knowledge,
        caption_tokens=head.span("caption_tokens") if head.data.get("caption_tokens") is not None else None,
    )
