"""Loads banks of examples: files of a prompt set, or those of the paper's release, which are laid out otherwise."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ..core.errors import InputError
from ..core.given_files import read_text
from ..core.program_tree import parse
from ..core.trace import Form
from .prompt_set import Example, KnowledgeExample, PromptSet, ReadingExample
from .records import read_records

__all__ = ["POOLS", "find_pool", "load_examples", "load_knowledge", "load_pool", "load_reading"]

POOLS: Mapping[str, str] = MappingProxyType(
    {
        "gqa": "gqa_programs_and_questions_nocomments3b.json",
        "covr": "covr_programs_and_questions50b.json",
        "nlvr2": "nlvr2_programs_and_questions50.json",
    }
)
"""Programs of the release by data set; those that call ``find_object`` are in a file whose name ends in ``_find``."""
_OPENING = re.compile(r"^\s*(?:(img)\s*=\s*open_image|(images)\s*=\s*open_images)\s*\(.*\)\s*$")
_HEADER = re.compile(r"^#\s*Image\b.*$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class _Published(Example):
    """An annotated program that need not say its form."""

    form: Form | None = None  # type: ignore[assignment]


def load_examples(path: str | os.PathLike[str], form: Form | None = None) -> tuple[Example, ...]:
    """Loads annotated programs: ``examples.jsonl``, or the JSON layout of the paper's release.

    The release keeps ``{id: {"question", "program"}}``. Header comments and the line that opens the pictures are cut
    where a file has them, since the prompt writes both.

    Args:
        path: the file.
        form: what the programs are about; None reads it off the variable each program uses, ``img`` or ``images``.

    Raises:
        InputError: the file is missing or malformed.
    """
    found = [(one, *_strip_opening(one.program)) for one in read_records(_Published, Path(path))]
    counted = Counter(seen for *_, seen in found if seen)
    usual = counted.most_common(1)[0][0] if counted else "image"
    return tuple(
        Example(one.id, one.question, program, one.form or form or seen or usual) for one, program, seen in found
    )


def load_reading(path: str | os.PathLike[str]) -> tuple[ReadingExample, ...]:
    """Loads reading examples: ``reading.jsonl``, or the JSON layout of the paper's release.

    The release keeps ``[{"question_id", "question", "answer", "captions"}]`` with a hundred captions a picture;
    :meth:`PromptSet.with_bank` keeps as many as the set reads.

    Raises:
        InputError: the file is missing or malformed.
    """
    return read_records(ReadingExample, Path(path))


def load_knowledge(path: str | os.PathLike[str]) -> tuple[KnowledgeExample, ...]:
    """Loads knowledge examples: ``knowledge.jsonl``, or the JSON layout of the paper's release.

    The release keeps ``{id: {"question", "answer"}}`` by the id of a program, with a list where it has several.

    Raises:
        InputError: the file is missing or malformed.
    """
    return read_records(KnowledgeExample, Path(path))


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
    found = finding if finds and finding.is_file() else plain
    if not found.is_file():
        raise InputError(
            f"{folder} has no {found.name}.", hint="Give a checkout of https://github.com/sanjayss34/codevqa."
        )
    return found


def load_pool(base: PromptSet, programs: Path) -> PromptSet:
    """Returns a set with the release's files: programs, and the examples and preamble that lie beside them.

    Args:
        base: the set that gives the numbers, named as the files begin; its preamble serves where there is none.
        programs: such as ``gqa_programs_and_questions_nocomments3b.json``.

    Raises:
        InputError: there are no reading examples beside it, or a file is malformed.
    """
    task, finds = programs.name.partition("_")[0], programs.stem.endswith("_find")
    reading = sorted(programs.parent.glob(f"{task}_examples[0-9]*.json"))
    if not reading:
        raise InputError(f"{programs} has no reading examples beside it.", hint=f"They are {task}_examples50.json.")
    # Those of VQAv2 are called vqa's.
    preambles = [one for one in programs.parent.glob("*_preamble*.py") if task.startswith(one.name.partition("_")[0])]
    preambles.sort(key=lambda one: (one.stem.endswith("_find") != finds, one.name))
    preamble = read_text(preambles[0]).strip() if preambles else base.preamble
    knowledge = sorted(programs.parent.glob(f"{task}_examples_knowledge[0-9]*.json"))
    pool = base.with_bank(
        load_examples(programs, base.form),
        load_reading(reading[0]),
        load_knowledge(knowledge[0]) if knowledge else None,
    )
    about = f"Programs and examples of {programs.parent}, the preamble of "
    return dataclasses.replace(
        pool,
        name=programs.stem,
        preamble=preamble,
        wording="release",
        reading_wording="release",
        about=about + (preambles[0].name if preambles else f"this project's set {base.name}"),
    )


def _strip_opening(program: str) -> tuple[str, Form | None]:
    """Cuts header comments and the opening line; returns the rest and the form it shows, if it shows one."""
    form: Form | None = None
    lines = program.replace("\r\n", "\n").strip("\n").split("\n")
    while lines and (not lines[0].strip() or _HEADER.match(lines[0]) or _OPENING.match(lines[0])):
        opening = _OPENING.match(lines.pop(0))
        if opening:
            form = "set" if opening.group(2) else "image"
    body = "\n".join(lines).rstrip()
    return body, form or _form_used(body)


def _form_used(program: str) -> Form | None:
    tree = parse(program)
    if tree is not None:
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    else:
        # Some published programs do not parse; their strings may speak of images, so only the code counts.
        used = set(re.findall(r"\w+", re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", "", program)))
    if "images" in used:
        return "set"
    return "image" if "img" in used else None
