"""Loads prompt sets from their folders, and from the files of the paper's release."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar

from ..core.errors import InputError, UnknownNameError
from ..core.given_files import parse_json, read_text
from .prompt_set import Example, KnowledgeExample, PromptSet, ReadingExample
from .records import read_object, read_records
from .release_layout import load_pool

__all__ = ["available", "load"]

API = "{api}"
"""Where the preamble lists the primitives."""
_Kind = TypeVar("_Kind")


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
    base = read_object(PromptSet, parse_json(read_text(folder / "prompt.json", file), file), file)
    preamble = read_text(folder / "preamble.txt", f"{shown}/preamble.txt")
    named = set(base.primitives).intersection(re.findall(r"\w+", preamble))
    if preamble.count(API) != 1 and (API in preamble or not named):
        raise InputError(
            f"{shown}/preamble.txt: {API} must stand in it once, found {preamble.count(API)} times.",
            hint="Only a preamble that names primitives itself has none.",
        )

    def read(kind: type[_Kind], name: str, **usual: str) -> tuple[_Kind, ...]:
        return read_records(kind, folder / name, f"{shown}/{name}", strict=True, **usual)

    return replace(
        base,
        preamble=preamble,
        examples=read(Example, "examples.jsonl", form=base.form),
        reading=read(ReadingExample, "reading.jsonl"),
        knowledge=read(KnowledgeExample, "knowledge.jsonl") if (folder / "knowledge.jsonl").is_file() else (),
    )
