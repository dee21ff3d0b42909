"""Loads banks of examples: files of a prompt set, or those of the paper's release, which are laid out otherwise."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from pathlib import Path

from ..core.trace import Form
from .prompt_set import Example, ReadingExample
from .records import read_records

__all__ = ["load_examples", "load_reading"]

_OPENING = re.compile(r"^\s*(?:(img)\s*=\s*open_image|(images)\s*=\s*open_images)\s*\(.*\)\s*$")
_HEADER = re.compile(r"^#\s*Image\b.*$", re.IGNORECASE)


def load_examples(path: str | os.PathLike[str], form: Form | None = None) -> tuple[Example, ...]:
    """Loads annotated programs: ``examples.jsonl``, or the JSON layout of the paper's release.

    The release keeps ``{id: {"question", "program"}}``. Header comments and the line that opens the pictures are cut
    where a file has them, since the prompt writes both.

    Args:
        path: the file.
        form: what the programs are about; None reads it off the variable each program uses, ``img`` or ``images``.

    Raises:
        SetupError: the file is missing or malformed.
    """
    source = Path(path)
    found: list[tuple[str, str, str, Form | None]] = []
    for record in read_records(source):
        program, seen = _strip_opening(record.text("program"))
        named = record.choice("form", None)
        found.append((record.id(), record.text("question"), program, named or form or seen))
    counted = Counter(seen for *_, seen in found if seen)
    usual = counted.most_common(1)[0][0] if counted else "image"
    return tuple(Example(key, question, program, seen or usual) for key, question, program, seen in found)


def load_reading(path: str | os.PathLike[str]) -> tuple[ReadingExample, ...]:
    """Loads reading examples: ``reading.jsonl``, or the JSON layout of the paper's release.

    The release keeps ``[{"question_id", "question", "answer", "captions"}]`` with a hundred captions a picture;
    :meth:`PromptSet.with_bank` keeps as many as the set reads.

    Raises:
        SetupError: the file is missing or malformed.
    """
    return tuple(
        ReadingExample(record.id(), record.text("question"), record.captions(), record.text("answer"))
        for record in read_records(Path(path))
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
    try:
        used = {node.id for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError):
        # Some published programs do not parse; their strings may speak of images, so only the code counts.
        used = set(re.findall(r"\w+", re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", "", program)))
    if "images" in used:
        return "set"
    return "image" if "img" in used else None
