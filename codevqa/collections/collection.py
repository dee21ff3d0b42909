"""Many pictures as one: folders, zip files and lists, of which no more are in memory than are looked at.

with CodeVQA.from_preset() as vqa:
    answer = vqa.ask(Collection("photos/"), "How many show a dog?")
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from PIL import Image as PILImage

from ..core.errors import ImageError, InputError
from ..core.images import FrozenSource, ImageSource, Picture, freeze_sources, shown_path
from .disk_memory import DiskMemory, Known, memory_at, user_place
from .picture_files import LeftOut, PictureFile, Search, Source, decode_once

__all__ = [
    "MAX_COLLECTION",
    "Collection",
    "LeftOut",
    "Pictures",
    "ProgressListener",
    "StoredPicture",
    "freeze_pictures",
    "picture_file",
    "picture_path",
]

MAX_COLLECTION = 20_000
"""Most pictures of one collection."""

ProgressListener: TypeAlias = Callable[[int, int], object]
"""Told how many files were looked at, of how many."""


class StoredPicture(Picture):
    """A picture that stays in its file until its pixels are wanted."""

    path: Path
    """Its file, or the zip file that it is in."""
    member: str
    """Its name in the zip file; empty for a file."""
    memory: DiskMemory
    """What is remembered of it on disk."""
    _file: PictureFile
    _known: Known
    _notes: dict[str, float]

    def __init__(self, file: PictureFile, known: Known, memory: DiskMemory, notes: dict[str, float]) -> None:
        fields = {"key": known.key, "name": file.name, "path": Path(file.path), "member": file.member}
        for name, value in {**fields, "memory": memory, "_file": file, "_known": known, "_notes": notes}.items():
            object.__setattr__(self, name, value)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels; nothing is decoded."""
        return self._known.size

    @property
    def pixels(self) -> PILImage.Image:
        """The picture itself, decoded now unless somebody looked at it a moment ago.

        Raises:
            ImageError: its file is gone, or changed since the collection was opened.
        """
        return decode_once(self.key, self._load)

    def check(self) -> None:
        """Checks that the file is as it was; what is remembered of it would be about another picture.

        Raises:
            ImageError: it is gone, or changed since the collection was opened.
        """
        try:
            stamp = self._file.stamp()
        except OSError:
            stamp = ""
        if stamp != self._known.stamp:
            self._load()
            object.__setattr__(self, "_known", self._known._replace(stamp=stamp))  # the same picture: read once

    def measure(self, name: str, compute: Callable[[PILImage.Image], float]) -> float:
        """Returns a number that depends on the pixels alone, from the memory on disk where it is known.

        Raises:
            ImageError: as :attr:`pixels`.
        """
        notes = self._notes
        if name not in notes:
            notes[name] = compute(self.pixels)
            self.memory.add_note(self.key, name, notes[name])
        return notes[name]

    def _load(self) -> PILImage.Image:
        picture = self._file.load()
        if picture.key != self.key:
            raise ImageError(f"{self.name} changed after its collection was opened.", hint="Open the collection again.")
        return picture.pixels


class Collection:
    """Pictures of folders, zip files and single files, found when it is opened and read when they are needed.

    Args:
        sources: folders, zip files and pictures; one alone may be given by itself. A folder's pictures are the files
            whose names end as pictures' do (:data:`~.picture_files.ENDINGS`), in the order of their names, before those
            of its folders. Hidden files are no part of it.
        recursive: whether folders within folders are looked into. A folder that links lead to twice is one.
        index: folder to keep what is learnt of the pictures. None uses that of the user's cache, which all collections
            share. Pictures of equal content share what is kept. For each picture and each network that sees it that is
            200 kB with ``mini``, and 1.2 MB with BLIP-large on a GPU. What was kept of pictures that are gone stays
            until :meth:`drop_index`.

    What cannot be read is left out, and told in :attr:`left_out`. Files of equal content are pictures of their own, and
    looked at once.

    Raises:
        InputError: a source is not a path.
    """

    by_path = True
    """Whether single files among several are called by their paths; else by their names."""

    def __init__(
        self, sources: Source | Sequence[Source], *, recursive: bool = False, index: Source | None = None
    ) -> None:
        paths = [sources] if isinstance(sources, str | os.PathLike) else sources
        if not isinstance(paths, list | tuple) or not all(isinstance(path, str | os.PathLike) for path in paths):
            raise InputError("A collection is made of paths.", hint="Give a folder, a zip file or a list of files.")
        self.sources: list[Source] = list(paths)
        self.recursive = recursive
        self.index = Path(index) if index is not None else user_place()
        """Folder of what is kept about it; that may be deleted at any time."""
        self.left_out: tuple[LeftOut, ...] = ()
        """What could not be read, once it is opened."""
        self._pictures: tuple[StoredPicture, ...] | None = None
        self._lock = threading.Lock()

    def open(self, tell: ProgressListener | None = None) -> tuple[StoredPicture, ...]:
        """Finds the pictures, and reads those that are new or changed. The second call returns what the first did.

        Raises:
            InputError: a source does not exist, there is no picture, or there are too many.
        """
        with self._lock:
            if self._pictures is None:
                self._pictures = self._read_pictures(tell)
            return self._pictures

    def _read_pictures(self, tell: ProgressListener | None) -> tuple[StoredPicture, ...]:
        search = Search(recursive=self.recursive, by_path=self.by_path)
        files = list(islice(search.files(self.sources), MAX_COLLECTION + 1))
        if len(files) > MAX_COLLECTION:
            raise InputError(f"{self._label} has more than {MAX_COLLECTION:,} pictures.", hint="Give a part of them.")
        memory = memory_at(self.index)
        known = memory.known_files([file.place for file in files])
        pictures, left_out = [], search.left_out
        notes: dict[str, dict[str, float]] = memory.notes(list({entry.key for entry in known.values() if entry.key}))
        try:
            for count, (file, entry) in enumerate(_looked_at(files, known, memory), 1):
                if entry.key:
                    pictures.append(StoredPicture(file, entry, memory, notes.setdefault(entry.key, {})))
                else:
                    left_out.append(LeftOut(file.name, entry.wrong))
                if tell is not None:
                    tell(count, len(files))
        finally:
            memory.save()
        self.left_out = tuple(left_out)
        if not pictures:
            why = f" {left_out[0].name}: {left_out[0].why}" if left_out else ""
            deep = not (left_out or self.recursive) and any(map(_has_folders, self.sources))
            hint = "Look into its folders with --recursive." if deep else "Give a folder of pictures."
            raise InputError(f"{self._label} has no picture that can be read.{why}", hint=hint)
        return tuple(pictures)

    def share(self, place: int, step: int) -> Collection:
        """Returns every ``step``-th of its pictures, from ``place`` on, as a collection with the same index."""
        part = copy.copy(self)
        part._pictures = self.open()[place::step]
        return part

    def drop_index(self) -> None:
        """Deletes what is kept about it, and nothing else that its folder may hold.

        Raises:
            SetupError, OSError: it cannot be deleted.
        """
        memory = memory_at(self.index)
        places = memory.places_below([str(Path(os.fsdecode(source)).absolute()) for source in self.sources])
        memory.forget(places, [known.key for known in memory.known_files(places).values() if known.key])
        memory.drop_if_empty()

    def __len__(self) -> int:
        return len(self.open())

    def __iter__(self) -> Iterator[StoredPicture]:
        return iter(self.open())

    def __repr__(self) -> str:
        count = "not opened" if self._pictures is None else f"{len(self._pictures):,} pictures"
        return f"<Collection {self._label}: {count}>"

    @property
    def _label(self) -> str:
        first = shown_path(os.fsdecode(self.sources[0])) if self.sources else "This collection"
        return first if len(self.sources) < 2 else f"{first} and {len(self.sources) - 1:,} more"


def picture_path(picture: Picture) -> str:
    """Returns where a picture lies, from the working folder if it is in there; in a zip file, with its name in it."""
    if not isinstance(picture, StoredPicture):
        return picture.name
    path = picture.path
    here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{here}/{picture.member}" if picture.member else str(here)


def picture_file(picture: Picture) -> str:
    """Returns where a picture lies, from the root on; in a zip file, with its name in it. Others have their names."""
    if not isinstance(picture, StoredPicture):
        return picture.name
    return f"{picture.path}/{picture.member}" if picture.member else str(picture.path)


Pictures: TypeAlias = "ImageSource | Sequence[ImageSource] | Collection"
"""What a question is asked about."""


def freeze_pictures(pictures: Pictures) -> tuple[FrozenSource, ...]:
    """Returns pictures as :func:`~.images.freeze_sources` does, or those of a collection, which is opened.

    Raises:
        InputError: the collection cannot be opened.
    """
    return pictures.open() if isinstance(pictures, Collection) else freeze_sources(pictures)


def _looked_at(
    files: Sequence[PictureFile], known: dict[str, Known], memory: DiskMemory
) -> Iterator[tuple[PictureFile, Known]]:
    """Yields what is known of each file, in order, reading in threads what is new or changed."""
    threads = ThreadPoolExecutor(min(16, os.cpu_count() or 1), thread_name_prefix="codevqa-collection")
    try:
        yield from zip(files, threads.map(lambda file: _look(file, known.get(file.place), memory), files), strict=True)
    finally:
        threads.shutdown(cancel_futures=True)  # an interrupt does not wait for the files that are left


def _look(file: PictureFile, old: Known | None, memory: DiskMemory) -> Known:
    try:
        stamp = file.stamp()
        if old is not None and old.stamp == stamp:
            return old
        picture = file.load()
    except OSError as error:
        return Known("", wrong=f"{error.strerror or error}.")
    except ImageError as error:
        known = Known(stamp, wrong=str(error))
        if getattr(error.__context__, "errno", None) is not None:
            return known  # the file may be whole, and the disk or the network not: it is read again next time
    else:
        decode_once(picture.key, lambda: picture.pixels)
        known = Known(stamp, picture.key, picture.size)
    memory.add_file(file.place, known)
    return known


def _has_folders(source: Source) -> bool:
    place = Path(os.fsdecode(source))
    return place.is_dir() and any(entry.is_dir() for entry in place.iterdir())
