"""Lists of pictures as other tools write them: CSV, COCO's ``instances.json``, and imagefolder's ``metadata.jsonl``."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from ..core.errors import InputError
from ..core.images import shown_path
from ..core.input_files import check_once, parse_json, read_lines, read_text

PATH_COLUMNS = ("filepath", "path", "picture", "file", "file_name", "filename", "image")
"""Headers of the column with the paths, in any case; the first of these that is there is read."""
SHORT = 40
"""Characters of a text of JSON Lines that can be a label."""
LONGEST = 100_000
"""Characters of the first line that are looked at to tell what separates the cells: fewer than a cell may have."""
MOST_COUNTS = 50_000_000
"""Images times categories of a list, each pair of which is a count."""
_FORMATS = "Give a .csv or .jsonl with a column of paths, or a .json as COCO's instances.json."
_Rows: TypeAlias = Iterable[tuple[int, Path, Mapping[str, str]]]
"""Number of the line, path, labels; 0 where there are no lines."""


@dataclass(frozen=True)
class PictureList:
    """The pictures that a list names, with what it says of each."""

    paths: tuple[str, ...]
    """Absolute, in the order of the list, each once."""
    labels: Mapping[str, Mapping[str, str]]
    """What is true of each path by column, such as ``{"animal": "dog"}``; ``{}`` where the list does not say."""


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a path is named as a list of pictures is."""
    return os.fsdecode(path).lower().endswith((".csv", ".jsonl", ".json"))


def read_picture_list(path: Path) -> PictureList:
    """Reads a list of pictures. Relative paths begin at its folder. The pictures need not be there.

    Raises:
        InputError: it is missing, no such list, damaged or too large, or it contradicts itself about a picture.
    """
    shown, folder = shown_path(str(path)), path.absolute().parent
    if not is_table(path):
        raise InputError(f"{shown} is not a list of pictures.", hint=_FORMATS)
    text, ending = read_text(path, shown), path.name.lower().rpartition(".")[2]
    if ending == "json":
        return _collect(shown, _read_coco(text, shown, path.stem, folder))
    return _collect(shown, (_read_csv if ending == "csv" else _read_json_lines)(text, shown, folder))


def _collect(shown: str, rows: _Rows) -> PictureList:
    labels: dict[str, dict[str, str]] = {}
    for line, path, values in rows:
        kept = labels.setdefault(str(path), {})
        for column, value in values.items():
            if (before := kept.setdefault(column, value)) != value:
                message = f"{shown}, line {line}: {column!r} of {path.name} is {value!r} here and {before!r} above."
                raise InputError(message, hint="Keep one line of each picture.")
    if not labels:
        raise InputError(f"{shown} lists no pictures.", hint=_FORMATS)
    return PictureList(tuple(labels), labels)


def _path_column(columns: Iterable[str]) -> str | None:
    plain = {column.strip().lower(): column for column in columns}
    return next((plain[name] for name in PATH_COLUMNS if name in plain), None)


def _label_name(column: str) -> str:
    """Returns what a column of truths is about; empty for other columns."""
    name = column.strip()
    if name.lower() in ("label", "labels", "truth"):
        return "label"
    return name[: -len("_truth")] if name.lower().endswith("_truth") else ""


def _read_csv(text: str, shown: str, folder: Path) -> _Rows:
    first = [line[:LONGEST] for _, line in islice(read_lines(text), 1)]
    marks = (mark for mark in ",;\t" if _path_column(next(csv.reader(first, delimiter=mark), ())) is not None)
    numbered = csv_rows(text, shown, next(marks, ","))
    _, header = next(numbered, (0, []))
    if (column := _path_column(header)) is None:
        raise InputError(f"{shown} has no column of paths.", hint=f"Name it as one of {', '.join(PATH_COLUMNS)}.")
    place, names = header.index(column), [_label_name(name) for name in header]
    check_once(filter(None, names), shown)
    for line, cells in numbered:
        if any(cells[len(header) :]):
            raise InputError(f"{shown}, line {line} has {len(cells)} cells, and the header {len(header)}.")
        if not (word := cells[place].strip() if place < len(cells) else ""):
            raise InputError(f"{shown}, line {line} names no picture.", hint=f"Fill in {column!r}.")
        values = zip(names, cells, strict=False)
        yield line, folder / word, {name: value.strip() for name, value in values if name and value.strip()}


def csv_rows(text: str, shown: str, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yields the rows that are not empty, the header among them, with the numbers of their first lines.

    Raises:
        InputError: it is not CSV, or has two columns of one name.
    """
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    line, header = 1, False
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                if not header:
                    header = True
                    check_once(filter(None, map(str.strip, cells)), shown)
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{shown}, line {line}: not CSV: {error}.") from None


def _read_json_lines(text: str, shown: str, folder: Path) -> _Rows:
    for line, content in read_lines(text):
        row = parse_json(content, shown, line)
        if not isinstance(row, dict):
            raise InputError(f"{shown}, line {line} is not an object.", hint='Write {"file_name": "a.png"}.')
        column = _path_column(row)
        word = row.pop(column) if column is not None else None
        if not isinstance(word, str) or not word.strip():
            raise InputError(f"{shown}, line {line} names no picture.", hint='Write {"file_name": "a.png"}.')
        texts = {name: text for name, value in row.items() if (text := _label_text(value))}
        check_once((_label_name(name) or name for name in texts), f"{shown}, line {line}")
        yield line, folder / word, {_label_name(name) or name: text for name, text in texts.items()}


def _label_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    return text if len(text) <= SHORT else ""


def _read_coco(text: str, shown: str, stem: str, folder: Path) -> _Rows:
    whole = parse_json(text, shown)
    images = _coco_rows(whole, "images", shown, "id", "file_name")
    files = {image: str(name) for image, name in images}
    if len(files) < len(images):
        raise InputError(f"{shown} is damaged: two images have the same id.")
    if not files:
        return
    place = _coco_folder(next(iter(files.values())), shown, stem, folder)
    names: dict[Any, str] = {}
    counts: Counter[tuple[str, str]] = Counter()
    if "annotations" in whole:  # as splits without truth have none
        names = {kind: str(name) for kind, name in _coco_rows(whole, "categories", shown, "id", "name")}
        for image, kind in _coco_rows(whole, "annotations", shown, "image_id", "category_id"):
            if kind not in names:
                raise InputError(f"{shown} is damaged: it has no category {kind}, which an annotation names.")
            if image in files:
                counts[files[image], names[kind]] += 1
    if len(files) * len(names) > MOST_COUNTS:
        raise InputError(f"{shown} has {len(files):,} images of {len(names):,} categories.", hint="Split it.")
    for file in dict.fromkeys(files.values()):
        yield 0, place / file, {name: str(counts[file, name]) for name in names.values()}


def _coco_rows(whole: Any, table: str, shown: str, *fields: str) -> list[tuple[Any, ...]]:
    rows = whole.get(table) if isinstance(whole, dict) else None
    if not isinstance(rows, list):
        raise InputError(f"{shown} is not as COCO's instances.json: it has no list {table!r}.", hint=_FORMATS)
    values = [tuple(row.get(field) for field in fields) if isinstance(row, dict) else (None,) for row in rows]
    for number, cells in enumerate(values, 1):
        if not all(isinstance(cell, str | int) and not isinstance(cell, bool) and cell != "" for cell in cells):
            raise InputError(f"{shown}: entry {number} of {table!r} lacks {' or '.join(map(repr, fields))}.")
    return values


def _coco_folder(first: str, shown: str, stem: str, folder: Path) -> Path:
    """Returns the folder that holds the first picture."""
    splits = dict.fromkeys((stem.partition("_")[2], stem.rpartition("_")[2], "images"))
    above = folder.parent
    places = [folder, above, *(root / split for root in (above, folder, above / "images") for split in splits)]
    for place in places:
        if os.path.isfile(place / first):  # noqa: PTH113 - any name may come
            return place
    looked = ", ".join(shown_path(str(place)) for place in places[:4])
    raise InputError(f"No picture {shown_path(first)} of {shown} in {looked}.", hint="Move the file to its pictures.")
