"""Pictures as commands name them: files, folders, zip files, patterns and lists; and how far a run over them is."""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from ..batching.call_cache import Memory
from ..collections.collection import Collection
from ..core.errors import InputError
from ..core.input_files import read_bytes
from .printing import begin_line, end_line
from .terminal import STDIN, read_pictures, warn

if TYPE_CHECKING:
    from ..core.images import Picture
    from ..engine.codevqa import CodeVQA

Result = TypeVar("Result")

SINGLE = 10
"""More pictures than these are a collection, however they are given."""
NAMED = 5
"""Files left out that are named; the others are counted."""
LONG = 600.0
"""Seconds from which a run needs a yes."""
TRIED, PATIENT = 32, 20.0
"""Pictures, or seconds, after which it is estimated how long all of them take."""


def gather_pictures(
    words: Sequence[str], recursive: bool, listed: str | None, quiet: bool
) -> tuple[Picture, ...] | Collection:
    """Returns the pictures that a command names: a few files as they are, else an opened collection.

    Raises:
        InputError: there are none, or some that cannot be used.
    """
    paths = expand_paths(words, listed)
    many = listed is not None or len(paths) > SINGLE or paths != list(words)
    if many or any(Path(path).is_dir() or path.lower().endswith(".zip") for path in paths):
        return open_collection(paths, recursive, quiet)
    return read_pictures(paths)


def expand_paths(words: Sequence[str], listed: str | None = None) -> list[str]:
    """Returns the paths that words and a list name; a pattern that the shell left alone stands for what it matches.

    Raises:
        InputError: a pattern matches nothing, or the list cannot be used.
    """
    if listed is not None:
        if words:
            raise InputError("--from does not go with pictures.", hint="Put all paths in the list.")
        return _read_list(listed)
    names_read: list[str] = []
    for word in words:
        pattern = glob.has_magic(word) and not os.path.lexists(word)
        matches = sorted(glob.glob(word, recursive=True)) if pattern else [word]  # noqa: PTH207 - of any folder
        if not matches:
            raise InputError(f"No picture matches {word}.", hint="Check the path.")
        names_read += matches
    return names_read


def _read_list(name: str) -> list[str]:
    """Returns the paths of a list: one a line, or with NUL between them, or a table of another tool's."""
    from ..collections.picture_lists import is_table, read_picture_list

    if name != STDIN and is_table(name):
        return list(read_picture_list(Path(name)).paths)
    data = read_bytes(None if name == STDIN else Path(name), name)
    lines = data.split(b"\0") if b"\0" in data else [line.rstrip(b"\r") for line in data.split(b"\n")]
    if paths := [os.fsdecode(line) for line in lines if line]:
        return paths
    raise InputError(f"The list {name} names no picture.", hint="Write one path a line.")


def open_collection(sources: Sequence[str], recursive: bool, quiet: bool) -> Collection:
    """Returns an opened collection, and says what is left out of it.

    Raises:
        InputError: it has no picture that can be read.
    """
    if not sources:
        raise InputError("No picture was given.", hint="Give a folder, a zip file, or --from FILE.")
    if STDIN in sources:
        raise InputError("A picture on standard input does not go with others.", hint="Save it in a file.")
    collection, pace = Collection(sources, recursive=recursive), Pace()
    with pace.show(quiet):
        pictures = collection.open(pace.tell)
    if count := len(collection.left_out):
        first = " ".join(f"{file.name}: {file.why}" for file in collection.left_out[:NAMED])
        more = f" And {count - NAMED:,} more." if count > NAMED else ""
        warn(f"{count:,} {'file is' if count == 1 else 'files are'} left out. {first}{more}")
    if not quiet:
        warn(f"{len(pictures):,} {'picture' if len(pictures) == 1 else 'pictures'}")
    return collection


class Pace:
    """How many of all are done; as text, with their rate and the time left."""

    def __init__(self) -> None:
        self.done = self.total = 0
        self.started = time.monotonic()

    def tell(self, done: int, total: int) -> None:
        """Sets the numbers."""
        self.done, self.total = done, total

    @property
    def rate(self) -> float:
        """Pictures a second."""
        return self.done / max(time.monotonic() - self.started, 1e-3)

    def __str__(self) -> str:
        left = f", {timedelta(seconds=round((self.total - self.done) / self.rate))} left" if self.done else ""
        return f"{self.done:,} of {self.total:,} pictures, {self.rate:.1f}/s{left}"

    @contextmanager
    def show(self, quiet: bool) -> Iterator[None]:
        """Shows it on the terminal for the length of the block."""
        if not quiet:
            begin_line(self)
        try:
            yield
        finally:
            end_line()


def carry_out(
    vqa: CodeVQA, sets: Iterable[Collection], do: Callable[[Memory], Result], *, yes: bool, quiet: bool
) -> Result:
    """Asks something of many pictures, and shows how many were looked at.

    Args:
        vqa: answers it. The caller closes it, which ends what is still under way.
        sets: all pictures.
        do: asks, with a memory that it must use.
        yes: whether it may take long.
        quiet: show nothing.

    Raises:
        InputError: its first pictures say that it takes long, and nobody agreed.
    """
    pace, new, calls = Pace(), {picture.key for pictures in sets for picture in pictures}, 0
    pace.total = len(new)

    def count_call(key: Hashable) -> None:
        nonlocal calls
        _, kind, about, *_ = key if isinstance(key, tuple) else (None, "", key)
        if kind == "write":  # only now the program begins
            pace.started = time.monotonic()
        elif kind != "similarity":  # that is a first glance at all of them
            calls += 1
            new.difference_update(about if isinstance(about, tuple) else [about])
            pace.done = pace.total - len(new)

    thread = ThreadPoolExecutor(1, thread_name_prefix="codevqa-command")
    future = thread.submit(do, Memory(vqa.settings.remember, count_call))
    thread.shutdown(wait=False)
    agreed = yes or vqa.settings.sets.seconds is not None
    with pace.show(quiet):
        while not wait([future], 0.05).done:
            seconds = time.monotonic() - pace.started
            if not agreed and pace.done and (pace.done >= TRIED or seconds > PATIENT):
                agreed, times = True, pace.total / pace.done
                if seconds * times >= LONG:
                    agree(
                        f"{seconds * times / 60:,.0f} minutes for {pace.total:,} pictures, {calls * times:,.0f} calls"
                    )
    return future.result()


def agree(amount: str) -> None:
    """Asks whether to go on.

    Raises:
        InputError: nobody agreed.
    """
    end_line()
    forecast = f"This takes about {amount} of models."
    if not (sys.stdin.isatty() and typer.confirm(f"codevqa: {forecast} Go on?", err=True)):
        raise InputError(forecast, hint="Give --yes, or fewer pictures. What is indexed stays.")
