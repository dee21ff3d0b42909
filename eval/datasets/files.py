"""Finds and reads the files of a data set where people have them: unpacked, or still in the archives.

A folder may be the data set's own or hold several, each under its name; annotations and pictures are read straight
out of zip archives where they are not unpacked. Annotations are JSON: an object keyed by question, a list, an object
with a list, or JSON Lines.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeAlias

from ...collections.picture_files import archive
from ...core.errors import InputError, SetupError
from ...core.input_files import check_values, parse_json, parser_errors, read_lines
from ..task import DatasetPicture, Located

JsonRecord: TypeAlias = dict[str, Any]

LARGEST = 1 << 31
"""Characters a file may have: more than any official one has, and far less than an archive of zeros unpacks to."""
DEPTH = ("*.zip", "*/*.zip")
"""Where archives are looked for."""


@contextmanager
def open_text(source: Located) -> Iterator[IO[str]]:
    """Opens a file as UTF-8 text.

    Raises:
        InputError: it is a pipe.
        SetupError: it cannot be opened.
    """
    try:
        raw = source.open()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise SetupError(f"Cannot open {source}: {error}.", hint="Check the file, or download it again.") from None
    with io.TextIOWrapper(raw, encoding="utf-8-sig") as text:
        yield text


class Folder:
    """The folder a user gives for a data set."""

    def __init__(self, root: Path, *names: str, title: str, archives: Sequence[str] = DEPTH) -> None:
        """Looks at a folder.

        Args:
            root: The folder.
            names: What the data set's own folder may be called inside ``root``; case does not matter.
            title: What messages call the data set, such as ``GQA``.
            archives: Where zip archives are looked for; no others are opened.

        Raises:
            SetupError: there is no such folder.
        """
        self.root, self.title, self._archives = root, title, archives
        if not root.is_dir():
            what = "is a file, not a folder" if root.exists() else "does not exist"
            raise SetupError(f"{root} {what}.", hint=f"Give the folder with the files of {title}.")
        try:
            str(root.absolute()).encode()
        except UnicodeEncodeError:
            raise SetupError(f"The name of {str(root)!a} is not UTF-8.", hint="Rename the folder.") from None
        wanted = {plain_name(name) for name in names}
        self.roots = (
            root,
            *sorted(folder for folder in root.iterdir() if plain_name(folder.name) in wanted and folder.is_dir()),
        )
        self.damaged: list[Path] = []
        """Archives that could not be read."""

    def find(self, *relatives: str) -> Located | None:
        """Returns the first of some files that is there, unpacked ones before those in archives."""
        for root in self.roots:
            for relative in relatives:
                if (root / relative).is_file():
                    return Located(root / relative)
        for relative in relatives:  # in whatever folder of an archive
            for archive_file in self._archive_files.get(relative.rpartition("/")[2], ()):
                if archive_file.member == relative or archive_file.member.endswith(f"/{relative}"):
                    return archive_file
        return None

    def picture(self, places: Sequence[str], *names: str) -> DatasetPicture:
        """Returns the first of some pictures that is in one of these folders; ``""`` is the data set's own.

        Where none is, the first name in the first place is returned, whose loading says that it is missing.
        """
        file = self.find(*(f"{place}/{name}".lstrip("/") for place in places for name in names))
        return DatasetPicture(file.path, file.member) if file else DatasetPicture(self.root / places[0] / names[0])

    def lacks(self, what: str, names: Iterable[str], hint: str) -> SetupError:
        """Returns the error for files that are not there; it says what was looked for."""
        broken = "".join(f"; {path.name} is no readable archive" for path in self.damaged)  # such as half a download
        looked = ", ".join(dict.fromkeys(names))
        message = f"No {what} of {self.title} in {self.root}: looked for {looked}, also in zip archives{broken}."
        return SetupError(message, hint=hint)

    @cached_property
    def _archive_files(self) -> dict[str, list[Located]]:
        """What the archives hold, by file name."""
        by_name: dict[str, list[Located]] = defaultdict(list)
        for path in sorted({path for root in self.roots for depth in self._archives for path in root.glob(depth)}):
            try:
                for name in archive(str(path)).namelist():
                    if not name.endswith("/") and not name.startswith("__MACOSX/"):
                        by_name[name.rpartition("/")[2]].append(Located(path, name))
            except (OSError, zipfile.BadZipFile):
                self.damaged.append(path)
        return by_name


def plain_name(name: str) -> str:
    """A name without case, spaces and marks: ``OK-VQA`` and ``ok_vqa`` are the same."""
    return re.sub(r"[\W_]+", "", name).lower()


def stream_records(source: Located, *, within: str = "", keyed: bool = False) -> Iterator[tuple[str, JsonRecord]]:
    """Yields the records of a file with their keys, in order.

    Args:
        source: The file.
        within: Name of the list to read where the file is one object, such as ``questions``.
        keyed: Whether an object at the top maps keys to records; else objects at the top are records themselves.

    Raises:
        InputError: the file is not JSON, is too large, or holds something else than objects.
        SetupError: it cannot be opened.
    """
    shown, hint = str(source), "Check that it is the right file."
    try:
        with open_text(source) as file:
            text = file.read(LARGEST + 1)
    except (UnicodeDecodeError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise InputError(f"Cannot read {shown}: {' '.join(str(error).split())}.", hint="Download it again.") from None
    if len(text) > LARGEST:
        raise InputError(f"{shown} has more than {LARGEST:,} characters.", hint=hint)
    with parser_errors(shown):
        try:
            whole = json.loads(text)
        except json.JSONDecodeError as error:
            if error.msg != "Extra data":
                raise
            whole = [parse_json(line, shown, number) for number, line in read_lines(text)]
    del text
    if within and isinstance(whole, dict):
        whole = whole.get(within)
        if not isinstance(whole, list):
            raise InputError(f"{shown} has no list {within!r}.", hint=hint)
    keyed = keyed and isinstance(whole, dict)
    rows = whole if isinstance(whole, list) else [whole]
    for count, (key, row) in enumerate(whole.items() if keyed else (("", row) for row in rows), 1):
        if not isinstance(row, dict):
            raise InputError(f"{shown} is not as it should be: record {count} is not an object.", hint=hint)
        check_values(row, f"{shown}, record {count}")
        yield key, row


def sha256(source: Located) -> str:
    """Returns the SHA-256 of a file.

    Raises:
        SetupError: it cannot be read.
    """
    try:
        with source.open() as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise SetupError(f"Cannot read {source}: {error}.", hint="Check the file.") from None
