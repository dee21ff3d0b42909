"""Loads prompt sets from their folders, and from the files of the paper's release, which are laid out otherwise."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from ..core.errors import InputError, UnknownNameError
from ..core.input_files import parse_json, read_text
from .prompt_set import KnowledgeExample, ProgramExample, PromptSet, ReadingExample
from .records import read_object, read_records

API = "{api}"
"""Where the preamble lists the primitives."""
POOLS: Mapping[str, str] = MappingProxyType(
    {
        "gqa": "gqa_programs_and_questions_nocomments3b.json",
        "covr": "covr_programs_and_questions50b.json",
        "nlvr2": "nlvr2_programs_and_questions50.json",
    }
)
"""Programs of the release by data set; those that call ``find_object`` are in a file whose name ends in ``_find``."""
_HEAD = re.compile(r"\s*$|\s*(?:img\s*=\s*open_image|images\s*=\s*open_images)\s*\(.*\)\s*$|#\s*Image\b", re.IGNORECASE)
"""Lines before a program that the prompt writes itself."""
_Kind = TypeVar("_Kind")


def prompt_set_names() -> list[str]:
    """Returns the names of the sets in this package."""
    return sorted(entry.name for entry in files(__package__).iterdir() if (entry / "prompt.json").is_file())


def load_prompt_set(name_or_folder: str | os.PathLike[str]) -> PromptSet:
    """Loads a set of this package by name, any folder laid out like one, or a file of programs of the paper's release.

    Of the release's files the set with which the name begins gives the numbers; preamble and reading examples are taken
    from beside it.

    Raises:
        UnknownNameError: there is no set of that name and no such folder.
        InputError: a file is missing or malformed; the message names file and line.
    """
    if isinstance(name_or_folder, str) and name_or_folder in prompt_set_names():
        return _load_folder(files(__package__) / name_or_folder, name_or_folder)
    # os.path, unlike Path, says no of a name that is too long.
    if os.path.isdir(name_or_folder):  # noqa: PTH112
        return _load_folder(Path(name_or_folder), str(name_or_folder))
    if os.path.isfile(name_or_folder):  # noqa: PTH113
        return _load_pool(Path(name_or_folder))
    raise UnknownNameError.of("prompt set", str(name_or_folder), prompt_set_names(), "; or give a folder")


def find_pool(folder: Path, task: str, *, finds: bool = False) -> Path:
    """Returns the programs of a data set in a checkout of the release.

    Args:
        folder: the checkout.
        task: a name in ``POOLS``.
        finds: whether to take programs that call ``find_object``, where the data set has such.

    Raises:
        InputError: the folder does not have them.
    """
    plain = folder / POOLS[task]
    finding = plain.with_stem(f"{plain.stem}_find")
    pool = finding if finds and finding.is_file() else plain
    if not pool.is_file():
        raise InputError(
            f"{folder} has no {pool.name}.", hint="Give a checkout of https://github.com/sanjayss34/codevqa."
        )
    return pool


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
        examples=read(ProgramExample, "examples.jsonl", form=base.form),
        reading=read(ReadingExample, "reading.jsonl"),
        knowledge=read(KnowledgeExample, "knowledge.jsonl") if (folder / "knowledge.jsonl").is_file() else (),
    )


def _load_pool(programs: Path) -> PromptSet:
    """Returns a set with the release's files: programs, and the examples and preamble that lie beside them.

    The release keeps programs as ``{id: {"question", "program"}}``, reading examples as ``[{"question_id", "question",
    "answer", "captions"}]`` with a hundred captions a picture, and knowledge as ``{id: {"question", "answer"}}`` by the
    id of a program, with a list where it has several.
    """
    task, finds = programs.name.partition("_")[0], programs.stem.endswith("_find")
    if task not in prompt_set_names():
        raise InputError(
            f"{programs} is of no known prompt set.",
            hint=f"Its name begins with one of: {', '.join(prompt_set_names())}.",
        )
    base = load_prompt_set(task)
    reading = sorted(programs.parent.glob(f"{task}_examples[0-9]*.json"))
    if not reading:
        raise InputError(f"{programs} has no reading examples beside it.", hint=f"They are {task}_examples50.json.")
    # Those of VQAv2 are called vqa's.
    preambles = [
        file for file in programs.parent.glob("*_preamble*.py") if task.startswith(file.name.partition("_")[0])
    ]
    preambles.sort(key=lambda file: (file.stem.endswith("_find") != finds, file.name))
    knowledge = sorted(programs.parent.glob(f"{task}_examples_knowledge[0-9]*.json"))
    examples = read_records(ProgramExample, programs, form=base.form)
    about = f"Programs and examples of {programs.parent}, the preamble of "
    return replace(
        base,
        name=programs.stem,
        preamble=read_text(preambles[0]).strip() if preambles else base.preamble,
        examples=tuple(replace(example, program=_without_head(example.program)) for example in examples),
        reading=tuple(example.limit(base.captions) for example in read_records(ReadingExample, reading[0])),
        knowledge=read_records(KnowledgeExample, knowledge[0]) if knowledge else base.knowledge,
        wording="release",
        reading_wording="release",
        about=about + (preambles[0].name if preambles else f"this project's set {base.name}"),
    )


def _without_head(program: str) -> str:
    lines = program.replace("\r\n", "\n").split("\n")
    while lines and _HEAD.match(lines[0]):
        lines.pop(0)
    return "\n".join(lines).rstrip()
