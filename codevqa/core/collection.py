"""Many pictures as one: folders, zip files and lists, of which no more are in memory than are looked at.

with CodeVQA.from_preset() as vqa:
    answer = vqa.ask(Collection("photos/"), "How many show a dog?")
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeAlias

from cachetools import LRUCache
from PIL import Image as PILImage

from .catalogue import Catalogue, Known, notes_of
from .errors import ImageError, InputError
from .images import MAX_BYTES, Held, ImageSource, Picture, decode_picture, hold, load_picture, shown_path

ENDINGS = frozenset((".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".mpo"))
"""What the names of pictures end in: of a folder's files, no others are opened."""
MAX_COLLECTION = 20_000
"""Most pictures of one collection."""
DECODED_BYTES = 128 << 20
"""Decoded pictures that are kept for whoever looks at them next, in bytes, for all collections together."""

Source: TypeAlias = "str | os.PathLike[str]"
Tell: TypeAlias = Callable[[int, int], object]
"""Told how many files were looked at, of how many."""


@dataclass(frozen=True)
class LeftOut:
    """A file that is no picture of the collection, though it looked like one."""

    name: str
    why: str
    """One line."""


@dataclass(frozen=True)
class _File:
    """A file, or a member of a zip file, and its state when the collection was opened."""

    path: str
    name: str
    """What people call it: its path below what was given."""
    member: str = ""

    @property
    def place(self) -> str:
        """What the catalogue calls it; a path that is no text stays apart from all others."""
        return json.dumps([self.path, self.member])

    def stamp(self) -> str:
        """Returns what changes with the file.

        Raises:
            OSError: it is gone.
        """
        found = Path(self.path).stat()
        return f"{found.st_mtime_ns} {found.st_size} {found.st_ino}"

    def load(self) -> Picture:
        """Reads it.

        Raises:
            ImageError: it cannot be read.
        """
        if not self.member:
            return load_picture(self.path)
        try:
            with _archives.open(self.path, self.member) as file:
                return decode_picture(file.read(MAX_BYTES + 1), self.name)
        except (OSError, KeyError, RuntimeError, NotImplementedError, zipfile.BadZipFile, EOFError) as error:
            raise ImageError(f"Cannot read {self.name}: {' '.join(str(error).split())}.") from None


class StoredPicture(Picture):
    """A picture that stays in its file until its pixels are wanted."""

    path: Path
    """Its file, or the zip file that it is in."""
    member: str
    """Its name in the zip file; empty for a file."""
    shelf: Path
    """Folder in which models may keep what they made of it."""
    _file: _File
    _known: Known
    _catalogue: Catalogue
    _notes: dict[str, float]

    def __init__(self, file: _File, known: Known, index: Path, catalogue: Catalogue) -> None:
        given = {"key": known.key, "name": file.name, "path": Path(file.path), "member": file.member}
        for name, value in {**given, "shelf": index / "features", "_file": file, "_known": known}.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_catalogue", catalogue)
        object.__setattr__(self, "_notes", notes_of(known))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels; nothing is decoded."""
        return self._known.width, self._known.height

    @property
    def pixels(self) -> PILImage.Image:
        """The picture itself, decoded now unless somebody looked at it a moment ago.

        Raises:
            ImageError: its file is gone, or changed since the collection was opened.
        """
        return _decoded.get(self.key, lambda: self._load().pixels)

    def noted(self, name: str, compute: Callable[[PILImage.Image], float]) -> float:
        """Returns a number that depends on the pixels alone, from the catalogue where it is known."""
        notes = self._notes
        if name not in notes:
            notes[name] = compute(self.pixels)
            self._catalogue.put(self._file.place, self._known._replace(notes=json.dumps(notes)))
        return notes[name]

    def keep_notes(self) -> None:
        """Writes to disk what was noted about the pictures of its collection."""
        self._catalogue.save()

    def _load(self) -> Picture:
        picture: Picture = self._file.load()
        if picture.key != self.key:
            raise ImageError(f"{self.name} changed while it was looked at.", hint="Ask again.")
        return picture


class Collection:
    """Pictures of folders, zip files and single files, found when it is opened and read when they are needed.

    Args:
        sources: folders, zip files and pictures; one alone may be given by itself. A folder's pictures are the files
            whose names end as pictures' do (:data:`ENDINGS`), in the order of their names.
        recursive: whether folders within folders are looked into. A folder that a link leads to twice is one.
        index: folder to keep what is learnt of the pictures; None takes one in the user's cache.

    What cannot be read is left out, and told in :attr:`left_out`. Files of equal content are pictures of their own, and
    looked at once.
    """

    def __init__(
        self, sources: Source | Sequence[Source], *, recursive: bool = False, index: Source | None = None
    ) -> None:
        self.sources = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
        self.recursive = recursive
        self.index = Path(index) if index is not None else _index_of(self.sources)
        """Folder of what is kept about it; it may be deleted at any time."""
        self.left_out: tuple[LeftOut, ...] = ()
        """What could not be read, once it is opened."""
        self.ignored = 0
        """Files of folders and zip files that are no pictures by their names."""
        self._pictures: tuple[StoredPicture, ...] | None = None
        self._catalogue: Catalogue | None = None

    def open(self, tell: Tell | None = None) -> tuple[StoredPicture, ...]:
        """Finds the pictures, and reads those that are new or changed. The second call returns what the first did.

        Raises:
            InputError: a source does not exist, there is no picture, or there are too many.
        """
        if self._pictures is None:
            files = self._found()
            catalogue = self._catalogue = Catalogue(self.index / "catalogue.sqlite")
            known = catalogue.read()
            pictures, left_out = [], list(self.left_out)
            for count, (file, found) in enumerate(_looked_at(files, known, catalogue), 1):
                if found.key:
                    pictures.append(StoredPicture(file, found, self.index, catalogue))
                else:
                    left_out.append(LeftOut(file.name, found.wrong))
                if tell is not None:
                    tell(count, len(files))
            catalogue.drop(known.keys() - {file.place for file in files})
            catalogue.save()
            self.left_out = tuple(left_out)
            if not pictures:
                raise InputError(f"{self._shown} has no picture that can be read.{self._why()}", hint=self._hint())
            self._pictures = tuple(pictures)
        return self._pictures

    def drop_index(self) -> None:
        """Deletes what is kept about it.

        Raises:
            OSError: the folder cannot be deleted.
        """
        if (self.index / "catalogue.sqlite").exists():
            shutil.rmtree(self.index)

    def __len__(self) -> int:
        return len(self.open())

    def __iter__(self) -> Iterator[StoredPicture]:
        return iter(self.open())

    def __repr__(self) -> str:
        count = "not opened" if self._pictures is None else f"{len(self._pictures):,} pictures"
        return f"<Collection {self._shown}: {count}>"

    @property
    def _shown(self) -> str:
        first = shown_path(os.fsdecode(self.sources[0])) if self.sources else "This collection"
        return first if len(self.sources) < 2 else f"{first} and {len(self.sources) - 1:,} more"

    def _why(self) -> str:
        return f" {self.left_out[0].name}: {self.left_out[0].why}" if self.left_out else ""

    def _hint(self) -> str:
        return "Give a folder of pictures." if self.recursive else "Look into its folders with --recursive."

    def _found(self) -> list[_File]:
        """Returns the files that are pictures by their names, each once.

        Raises:
            InputError: a source does not exist, or there are too many pictures.
        """
        found: dict[tuple[str, str], _File] = {}
        self.left_out, self.ignored = (), 0
        for source in self.sources:
            path = os.fsdecode(source)
            several = len(self.sources) > 1
            for file in self._inside(path, several):
                found.setdefault((file.path, file.member), file)
                if len(found) > MAX_COLLECTION:
                    raise InputError(
                        f"{self._shown} has more than {MAX_COLLECTION:,} pictures.", hint="Give a part of them."
                    )
        return list(found.values())

    def _inside(self, path: str, several: bool) -> Iterator[_File]:
        whole = str(Path(path).absolute())
        try:
            if Path(path).is_dir():
                yield from self._in_folder(whole, path.rstrip("/\\") + "/" if several else "")
            elif path.lower().endswith(".zip"):
                yield from self._in_archive(whole, f"{path}/" if several else "")
            elif Path(path).exists():
                yield _File(whole, path if several else Path(path).name)
            else:
                raise InputError(f"No picture or folder at {shown_path(path)}.", hint="Check the path.")
        except (OSError, ValueError) as error:  # the latter for a path that no file can have
            why = getattr(error, "strerror", None) or error
            raise InputError(f"Cannot read {shown_path(path)}: {why}.") from None

    def _in_folder(self, folder: str, before: str, seen: set[tuple[int, int]] | None = None) -> Iterator[_File]:
        at = Path(folder).stat()
        seen = set() if seen is None else seen
        if (at.st_dev, at.st_ino) in seen:
            return
        seen.add((at.st_dev, at.st_ino))
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            name = f"{before}{entry.name}"
            if entry.name.startswith("."):
                continue
            try:
                if entry.is_dir():
                    if self.recursive:
                        yield from self._in_folder(entry.path, f"{name}/", seen)
                elif _ending(entry.name) in ENDINGS:
                    yield _File(entry.path, name)
                else:
                    self.ignored += 1
            except OSError as error:
                self.left_out = (*self.left_out, LeftOut(name, f"{error.strerror or error}."))

    def _in_archive(self, path: str, before: str) -> Iterator[_File]:
        try:
            members = _archives.names(path)
        except zipfile.BadZipFile as error:
            raise InputError(f"{shown_path(path)} is no zip file: {error}.") from None
        for member in members:
            hidden = any(part.startswith((".", "__MACOSX")) for part in member.split("/"))
            if _ending(member) in ENDINGS and not hidden:
                yield _File(path, f"{before}{member}", member)
            else:
                self.ignored += not member.endswith("/")


Pictures: TypeAlias = "ImageSource | Sequence[ImageSource] | Collection"
"""What a question is asked about."""


def held(given: Pictures) -> tuple[Held, ...]:
    """Returns pictures as :func:`~.images.hold` does, or those of a collection, which is opened."""
    return given.open() if isinstance(given, Collection) else hold(given)


def _looked_at(files: Sequence[_File], known: dict[str, Known], catalogue: Catalogue) -> Iterator[tuple[_File, Known]]:
    """Yields what is known of each file, in order, reading in threads what is new or changed."""
    most = min(16, os.cpu_count() or 1)
    with ThreadPoolExecutor(most, thread_name_prefix="codevqa-collection") as threads:
        waiting: deque[tuple[_File, Known | Future[Known]]] = deque()
        for file in files:
            try:
                stamp = file.stamp()
            except OSError as error:
                waiting.append((file, Known("", "", 0, 0, f"{error.strerror or error}.", "")))
                continue
            old = known.get(file.place)
            new = old is None or old.stamp != stamp
            waiting.append((file, threads.submit(_learn, file, stamp, catalogue) if old is None or new else old))
            # No more are decoded than can wait for their turn in memory.
            while len(waiting) > 4 * most:
                yield _settled(waiting.popleft())
        while waiting:
            yield _settled(waiting.popleft())


def _settled(pair: tuple[_File, Known | Future[Known]]) -> tuple[_File, Known]:
    file, known = pair
    return file, known.result() if isinstance(known, Future) else known


def _learn(file: _File, stamp: str, catalogue: Catalogue) -> Known:
    try:
        picture = file.load()
        _decoded.put(picture)
        known = Known(stamp, picture.key, *picture.size, "", "")
    except ImageError as error:
        known = Known(stamp, "", 0, 0, str(error), "")
    catalogue.put(file.place, known)
    return known


def _index_of(sources: Sequence[Source]) -> Path:
    places = sorted(os.path.realpath(os.fsdecode(one)) for one in sources)
    name = hashlib.sha256(json.dumps(places).encode()).hexdigest()[:16]
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "codevqa" / "index" / name


def _ending(name: str) -> str:
    return f".{name.rpartition('.')[2].lower()}"


class _Decoded:
    """Pictures that were decoded a moment ago. Two models look at most of them, one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[str, PILImage.Image] = LRUCache(
            DECODED_BYTES, getsizeof=lambda pixels: 3 * pixels.width * pixels.height
        )

    def get(self, key: str, load: Callable[[], PILImage.Image]) -> PILImage.Image:
        with self._lock:
            found = self._kept.get(key)
        if found is None:
            found = load()
            self._keep(key, found)
        return found

    def put(self, picture: Picture) -> None:
        self._keep(picture.key, picture.pixels)

    def _keep(self, key: str, pixels: PILImage.Image) -> None:
        with self._lock:
            if 3 * pixels.width * pixels.height <= DECODED_BYTES:
                self._kept[key] = pixels


@dataclass
class _Archives:
    """Zip files that are open: to read the names in a large one takes seconds."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    opened: LRUCache[tuple[str, int, int], zipfile.ZipFile] = field(default_factory=lambda: LRUCache(4))

    def open(self, path: str, member: str) -> IO[bytes]:
        archive = self._archive(path)
        if archive.getinfo(member).file_size > MAX_BYTES:
            raise ImageError(f"{member} is too large a file.", hint=f"The limit is {MAX_BYTES >> 20} MB: shrink it.")
        return archive.open(member)

    def names(self, path: str) -> list[str]:
        return sorted(self._archive(path).namelist())

    def _archive(self, path: str) -> zipfile.ZipFile:
        found = Path(path).stat()
        key = (path, found.st_mtime_ns, found.st_size)
        with self.lock:
            if key not in self.opened:
                self.opened[key] = zipfile.ZipFile(io.BytesIO() if not found.st_size else path)
            return self.opened[key]


_decoded = _Decoded()
_archives = _Archives()
