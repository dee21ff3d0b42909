"""Your own questions: a file of lines beside its pictures, as ``codevqa ask --questions`` reads it, with answers.

One question a line::

    {"images": ["a.png", "b.png"], "question": "Is there a cat?", "answer": "yes", "id": "q1", "room": "kitchen"}

``image`` or ``images`` is one picture, several as a set, or a folder, whose pictures are the set. ``answer`` is one
accepted answer or a list of them. Without ``id`` a question is called by its line. Figures can be broken down by any
other field that holds short texts or numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ...collections.collection import Collection
from ...core.errors import InputError, UnknownNameError
from ...core.input_files import parse_json, pictures_and_question, read_lines, read_text
from ..task import DatasetPicture, Example, Located
from .loader import Split, gold_text

FIELDS = frozenset(("image", "images", "question", "answer", "id"))
SHORT = 40
"""Characters of a value that can name a group."""
MOST = 20
"""Values of a field by which figures are broken down without being asked to."""
_HINT = 'A line has "image" or "images", "question" and "answer": a text, or a list of them.'


def open_own(path: Path, folder: Path | None = None, group_by: Sequence[str] = ()) -> Split:
    """Opens a file of questions, and reads all of it, so that a mistake in its last line is told at once.

    Args:
        path: the file.
        folder: where its pictures are; None looks beside it.
        group_by: fields to break figures down by; none takes each that has at most :data:`MOST` short values.

    Raises:
        InputError: a line is no question, an id is there twice, or there is no question.
        UnknownNameError: no line has such a field.
    """
    # Many lines name the same picture, or the same folder.
    pictures = lru_cache(maxsize=1024)(partial(_named_pictures, folder or path.parent))
    read = partial(_read_examples, path, pictures)
    groups: dict[str, set[str]] = {}
    for example in read(None):
        for name, value in example.groups.items():
            if len(known := groups.setdefault(name, set())) <= MOST:
                known.add(value)
    counts = groups.pop("images", None)
    if counts is None:
        raise InputError(f"{path} has no questions.", hint=_HINT)
    if counts != {"1"}:
        groups["images"] = set()  # however many: the report joins them
    for name in group_by:
        if name not in groups:
            raise UnknownNameError.of("field of short values", name, groups)
    chosen = tuple(group_by) or tuple(name for name, values in groups.items() if len(values) <= MOST)
    return Split("own", path.stem, "", (Located(path),), partial(read, frozenset(chosen)))


def _named_pictures(folder: Path, word: str) -> tuple[DatasetPicture, ...]:
    """Returns the picture that a line names, or those of the folder that it names."""
    path = folder / word
    if not os.path.isdir(path):  # noqa: PTH112 - any name may come
        return (DatasetPicture(path),)
    return tuple(DatasetPicture(picture.path, picture.member) for picture in Collection(path).open())


def _read_examples(
    path: Path, pictures: Callable[[str], tuple[DatasetPicture, ...]], groups: Container[str] | None
) -> Iterator[Example]:
    """Yields the questions of a file; ``groups`` None names all fields that can group.

    Raises:
        InputError: a line is not as it should be.
    """
    lines: dict[str, int] = {}
    for number, line in read_lines(read_text(path)):
        where, row = f"{path}, line {number}", parse_json(line, str(path), number)
        words, question = pictures_and_question(row, where)
        images = tuple(image for word in words for image in pictures(word))
        name = row.get("id", number)
        named = images and all(words)  # "" would be the whole folder
        called = isinstance(name, str | int) and not isinstance(name, bool) and str(name).strip()
        if not named or not question.strip() or not called:
            wrong = "names no picture" if not named else "has an empty question" if not question.strip() else ""
            raise InputError(f"{where} {wrong or 'has an id that is empty, or no text or whole number'}.", hint=_HINT)
        if (first := lines.setdefault(str(name), number)) != number:
            raise InputError(f"{where}: line {first} has the id {name!r} too.", hint="Give each line an id of its own.")
        values = {"images": str(len(images)), **_group_values(row)}
        yield Example(
            id=str(name),
            question=question,
            images=images,
            form="image" if len(images) == 1 else "set",
            gold=_gold_of_row(row, where),
            groups={column: value for column, value in values.items() if groups is None or column in groups},
            cluster=" ".join(sorted(words)),
        )


def _gold_of_row(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    answer = row.get("answer")
    try:
        gold = tuple(map(gold_text, answer if isinstance(answer, list) else [answer]))
    except TypeError:
        gold = ()
    if not gold or not all(map(str.strip, gold)):
        raise InputError(f"{where} has no answer.", hint=_HINT)
    return gold


def _group_values(row: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values of a line that can name a group."""
    columns = {
        name: value for name, value in row.items() if name not in FIELDS and isinstance(value, str | int | float)
    }
    return {name: text for name, value in columns.items() if 0 < len(text := gold_text(value).strip()) <= SHORT}
