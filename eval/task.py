"""What an evaluation is made of: examples with their pictures and gold answers, and the rows that answer them.

Data sets yield :class:`Example`, the runner turns each into a :class:`Row` for each method, metrics look at pairs of
the two. Nothing here knows a data set, a model or a store.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Protocol

from PIL import Image
from pydantic import TypeAdapter

from ..collections.picture_files import PictureFile as StoredFile
from ..collections.picture_files import archive
from ..core.errors import (
    ImageError,
    InputError,
    ModelError,
    ModelNotFoundError,
    ServerError,
    SetupError,
    UnknownNameError,
)
from ..core.images import Picture, load_picture
from ..core.input_files import open_file
from ..core.trace import Cost, Form, Method, methods_of

UNASKED = frozenset(
    error.__name__ for error in (ImageError, ModelError, ServerError, SetupError, UnknownNameError, ModelNotFoundError)
)
"""Types of error that say that a question could not be asked: its picture, a model or a server was unavailable. What
is wrong with a question, a program, or what a model said, is an answer's."""
_COST = TypeAdapter(Cost)
METHODS = methods_of(eyes=True, reads=True)
"""In the order in which reports show them."""
PAIRS = tuple(combinations(METHODS, 2))
"""What is compared: the first minus the second."""


class Job(NamedTuple):
    """One way in which an example is asked."""

    method: Method
    repeat: int
    """The number of the repetition, counted from 0."""
    seed: int


@dataclass(frozen=True)
class Located:
    """A file in a folder or inside a zip archive."""

    path: Path
    """The file, or the archive that holds it."""
    member: str = ""
    """Its name inside the archive; empty for a plain file."""

    def __str__(self) -> str:
        return f"{self.member} in {self.path}" if self.member else str(self.path)

    def open(self) -> IO[bytes]:
        """Opens it to read its bytes.

        Raises:
            InputError: it is a pipe, or a device.
            OSError, KeyError, ValueError, zipfile.BadZipFile: it is missing, or the archive is damaged.
        """
        return archive(str(self.path)).open(self.member) if self.member else open_file(self.path, str(self))


@dataclass(frozen=True)
class DatasetPicture(Located):
    """A picture in a folder or inside a zip archive, or a part of one."""

    crop: tuple[int, int, int, int] | None = None
    """Left, top, right, bottom in pixels of the part that is meant; None for all of it."""

    @property
    def name(self) -> str:
        """The file's name, with the part where it is one."""
        name = Path(self.member).name or self.path.name
        return name if self.crop is None else f"{name}@{','.join(map(str, self.crop))}"

    def load(self) -> Picture:
        """Reads it, or the part of it.

        Raises:
            ImageError: it cannot be read.
        """
        whole = StoredFile(str(self.path), str(self), self.member).load()
        return whole if self.crop is None else load_picture(whole.pixels.crop(self.crop))

    @property
    def wrong(self) -> Literal["", "missing", "unreadable"]:
        """What keeps the picture from being asked about, as far as its first bytes tell; empty where nothing does."""
        try:
            with self.open() as file:
                Image.open(file)
        except (FileNotFoundError, KeyError):
            return "missing"
        except Exception:  # noqa: BLE001 - of damaged files Pillow and zipfile raise a dozen kinds
            return "unreadable"
        return ""

    @property
    def digest(self) -> str:
        """What the file holds in sixteen hexadecimal digits; empty where it cannot be read."""
        try:
            if self.member:
                info = archive(str(self.path)).getinfo(self.member)
                return f"{info.CRC:08x}{info.file_size & 0xFFFFFFFF:08x}"
            stat = self.path.stat()
            return _picture_digest(self.path, stat.st_mtime_ns, stat.st_size)
        except (InputError, OSError, KeyError, zipfile.BadZipFile):
            return ""


@lru_cache(maxsize=4096)
def _picture_digest(path: Path, changed: int, size: int) -> str:
    """Digests a file; data sets ask many questions about one picture."""
    with open_file(path, path.name) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()  # type: ignore[arg-type]


@dataclass(frozen=True)
class Example:
    """One question of a data set."""

    id: str
    """The official id, a string always: leading zeros matter."""
    question: str
    images: tuple[DatasetPicture, ...]
    form: Form
    """Whether the question is put to one image or to a set."""
    gold: tuple[str, ...] = ()
    """Accepted answers as the data set gives them (VQA: ten of them); empty where the split hides them."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """By what figures are broken down, such as ``{"structural": "query", "images": "3"}``."""
    cluster: str = ""
    """What goes right and wrong together: questions about one picture, or one statement over several pictures."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the official record that a metric needs, as plain JSON-ready data."""

    @property
    def group(self) -> str:
        """What a figure asks to be right together, such as a statement's pictures; empty where there is no such."""
        return str(self.record.get("group", ""))


AS_EXAMPLE = TypeAdapter(Example)


class DataSet(Protocol):
    """One split of a data set on this machine."""

    name: str
    """Such as ``gqa``."""
    split: str
    prompts: str
    """The prompt set its questions go with, such as ``nlvr2``; a preset with its own prompts takes precedence, and
    where it is empty, the preset's prompts serve."""

    def __iter__(self) -> Iterator[Example]:
        """Yields the examples in the file's order, reading as it goes."""
        ...


@dataclass(frozen=True)
class Row:
    """One finished question: what the store keeps."""

    id: str
    method: Method
    repeat: int
    """Which repetition over sampling seeds, counted from 0."""
    prediction: str
    """The answer's text; empty where nothing could be answered, and then ``error`` says why."""
    fallback: bool = False
    """Whether the program failed and the baseline answered in its place."""
    error: str | None = None
    """Type of the error, such as ``ProgramSyntaxError``."""
    message: str = ""
    program: str | None = None
    """Source of the program last tried."""
    trace: Mapping[str, Any] = field(default_factory=dict)
    """Calls, attempts and evidence as plain JSON-ready data."""
    seconds: float = 0.0
    tokens: int = 0
    """Tokens the language models read and wrote."""

    @property
    def cost(self) -> Cost | None:
        """What the answer cost by itself; None where that is not known, as in rows from before it was reckoned.

        Raises:
            ValueError: what was kept is no cost.
        """
        kept = self.trace.get("cost")
        if kept is None:
            return None
        return _COST.validate_python(kept)

    @property
    def is_unasked(self) -> bool:
        """Whether the question could not be asked at all."""
        return not self.prediction and not self.fallback and self.error in UNASKED
