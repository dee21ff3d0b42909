"""Finding the pictures of folders, zip files and lists, and reading them one by one."""

from __future__ import annotations

import errno
import json
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from cachetools import LRUCache, cached
from PIL import Image as PILImage

from ..core.errors import ImageError, InputError
from ..core.images import MAX_BYTES, Picture, decode_picture, load_picture, shown_path

ENDINGS = frozenset((".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".mpo"))
"""What the names of pictures end in: of a folder's files, no others are opened."""
DECODED_BYTES = 128 << 20
"""Decoded pictures that are kept for whoever looks at them next, in bytes, for all collections together."""
DENSE = 200
"""How many times larger than in its zip file a large picture may be. Zip bombs are a thousand times larger."""

Source: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True)
class LeftOut:
    """A file that is no picture of the collection, though it looked like one."""

    name: str
    why: str
    """One line."""


@dataclass(frozen=True)
class PictureFile:
    """A file, or a member of a zip file, whose name is that of a picture."""

    path: str
    name: str
    """What people call it: its path below what was given, as text that can be shown."""
    member: str = ""

    @property
    def place(self) -> str:
        """What the memory on disk calls it; a path that is no text stays apart from all others."""
        return json.dumps([self.path, self.member])

    def stamp(self) -> str:
        """Returns what changes with the file, and with the right to read it.

        Raises:
            OSError: it is gone.
        """
        return _stamp(self.path)

    def load(self) -> Picture:
        """Reads it.

        Raises:
            ImageError: it cannot be read.
        """
        if not self.member:
            return load_picture(self.path)
        try:
            return decode_picture(_unpack(self), self.name)
        except ImageError:
            raise
        except Exception as error:  # noqa: BLE001 - of damaged zip files Python's module raises a dozen kinds
            raise ImageError(f"Cannot read {self.name}: {' '.join(str(error).split()).rstrip('.')}.") from None


@dataclass
class Search:
    """A search for the pictures of some sources."""

    recursive: bool
    """Whether folders within folders are looked into."""
    by_path: bool = True
    """Whether single files among several are called by their paths; else by their names."""
    left_out: list[LeftOut] = field(default_factory=list)
    """Folders that cannot be read, when it has ended."""

    def files(self, sources: Sequence[Source]) -> Iterator[PictureFile]:
        """Yields the pictures of each source in turn, each file once.

        Raises:
            InputError: a source does not exist or cannot be read.
        """
        met: set[tuple[str, str]] = set()
        for source in sources:
            for file in self._inside(os.fsdecode(source), several=len(sources) > 1):
                if (file.path, file.member) not in met:
                    met.add((file.path, file.member))
                    yield file

    def _inside(self, path: str, *, several: bool) -> Iterator[PictureFile]:
        before = path.rstrip(os.sep) + os.sep if several else ""
        try:
            whole = str(Path(path).absolute())
            if not Path(path).exists():
                raise InputError(f"No picture or folder at {shown_path(path)}.", hint="Check the path.")
            if Path(path).is_dir():
                yield from self._in_folder(whole, before)
            elif path.lower().endswith(".zip"):
                yield from self._in_archive(whole, before)
            else:
                yield PictureFile(whole, shown_path(path if several and self.by_path else Path(path).name))
        except (OSError, ValueError) as error:  # the latter for a path that no file can have
            why = getattr(error, "strerror", None) or error
            raise InputError(f"Cannot read {shown_path(path)}: {why}.", hint="Check the path.") from None

    def _in_folder(self, root: str, before: str) -> Iterator[PictureFile]:
        def note_failure(error: OSError) -> None:
            if error.filename == root:
                raise error
            name = shown_path(os.path.relpath(error.filename, root))
            self.left_out.append(LeftOut(name, f"{error.strerror or error}."))

        met: set[tuple[int, int]] = set()  # folders that links lead to a second time, perhaps in circles
        for folder, folders, files in os.walk(root, onerror=note_failure, followlinks=True):
            at = Path(folder).stat()
            if (at.st_dev, at.st_ino) in met:
                folders.clear()
                continue
            met.add((at.st_dev, at.st_ino))
            folders[:] = sorted(entry for entry in folders if self.recursive and not entry.startswith("."))
            below = folder.removeprefix(root).strip(os.sep)
            inner = f"{before}{below}{os.sep if below else ''}"
            for name in sorted(entry for entry in files if not entry.startswith(".")):
                if _ending(name) in ENDINGS:
                    yield PictureFile(f"{folder.rstrip(os.sep)}{os.sep}{name}", shown_path(f"{inner}{name}"))

    def _in_archive(self, path: str, before: str) -> Iterator[PictureFile]:
        try:
            members = sorted(archive(path).namelist())
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            raise InputError(f"{shown_path(path)} is not a zip file that can be read: {error}.") from None
        for member in members:
            hidden = any(part.startswith((".", "__MACOSX")) for part in member.split("/"))
            if _ending(member) in ENDINGS and not hidden:
                yield PictureFile(path, shown_path(f"{before}{member}"), member)


def _ending(name: str) -> str:
    return f".{name.rpartition('.')[2].lower()}"


def _stamp(path: str) -> str:
    """Returns what changes with a file, and with the right to read it."""
    status = Path(path).stat()
    return f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_size} {status.st_ino}"


@cached(LRUCache(4), key=lambda path: (path, _stamp(path)), lock=threading.Lock())
def archive(path: str) -> zipfile.ZipFile:
    """Returns a zip file that stays open: to read the names in a large one takes seconds.

    Raises:
        OSError: it is gone, cannot be read, or is no file: a pipe would wait for its writer.
        zipfile.BadZipFile: it is damaged, or no zip file.
    """
    if not Path(path).is_file():
        raise OSError(errno.EINVAL, "It is not a regular file", path)
    return zipfile.ZipFile(path)


def _unpack(file: PictureFile) -> bytes:
    """Returns a member's bytes, unless they would be more than a picture's."""
    info = archive(file.path).getinfo(file.member)
    if info.file_size > MAX_BYTES:
        raise ImageError(f"{file.name} is too large a file.", hint=f"The limit is {MAX_BYTES >> 20} MB: shrink it.")
    if info.file_size > max(DENSE * info.compress_size, 1 << 24):
        raise ImageError(f"{file.name} grows too much when it is unpacked.", hint="Unpack the zip file first.")
    with archive(file.path).open(info) as member:
        return member.read(MAX_BYTES + 1)


recent: LRUCache[str, PILImage.Image] = LRUCache(DECODED_BYTES, getsizeof=lambda image: 3 * image.width * image.height)
"""Pictures that were decoded a moment ago. Two models look at most of them, one after the other."""


@cached(recent, key=lambda key, _: key, lock=threading.Lock())
def decode_once(key: str, load: Callable[[], PILImage.Image]) -> PILImage.Image:
    """Returns the picture of a key, decoded now unless it was a moment ago."""
    return load()
