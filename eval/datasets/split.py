"""One split of a data set as a stream of examples: what every loader returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from ...core.errors import InputError, SetupError
from ..task import Example, PictureFile
from .files import Folder, Located, Pictures
from .json_stream import JsonRecord, stream_records

__all__ = ["Info", "Split", "answer_text", "read"]

T = TypeVar("T")
LOOKED_AT = 8
"""How many examples must all lack their pictures before the pictures are said to be missing."""


@dataclass(frozen=True)
class Info:
    """What is known of a data set before any file of it is seen."""

    name: str
    title: str
    """What messages call it."""
    prompts: str
    splits: tuple[str, ...]
    """The official ones; any other split is read too where its file is there."""
    folders: tuple[str, ...]
    """What its folder may be called inside a folder of several data sets."""
    questions: str
    """Where to get the questions, as a sentence."""
    pictures: str
    """Where to get the pictures, as a sentence."""


@dataclass
class Split:
    """A :class:`~codevqa.eval.task.DataSet` read from files; iterating again reads again."""

    name: str
    split: str
    prompts: str
    sources: tuple[Located, ...]
    """The annotation files, in the order read."""
    start: Callable[[], Iterator[Example]] = field(repr=False)
    """Begins to read."""
    notes: tuple[str, ...] = ()
    """What a user should be told, such as that the answers are not here."""
    part: tuple[str, ...] = ()
    """Why figures on it are not those of the official split."""

    def __iter__(self) -> Iterator[Example]:
        return self.start()

    def check(self, folder: Folder, info: Info, pictures: Pictures | None) -> Split:
        """Reads the first examples, so that what is missing shows before anything is asked.

        Args:
            folder: Where it was read from.
            info: The data set.
            pictures: Where its pictures were looked for; None not to look for them.

        Raises:
            InputError: the files hold no question, or not this data set's.
            SetupError: its pictures are not there.
        """
        first = list(islice(self, LOOKED_AT))
        if not first:
            raise InputError(f"{self.sources[0]} has no questions.", hint=info.questions)
        if self.split.removesuffix("_paraphrased") not in info.splits:
            self.part += (f"{self.split} is none of {info.title}'s",)
        elif self.split.endswith("_all"):
            self.part += (f"{self.split}, where {info.splits[0]} is reported",)
        if pictures is not None:
            files = [image for example in first for image in example.images if isinstance(image, PictureFile)]
            pictures.check(files, info.pictures)
        return self


def read(
    info: Info,
    sources: tuple[Located, ...],
    make: Callable[[str, JsonRecord], Iterator[Example]],
    *,
    within: str = "",
    keyed: bool = False,
) -> Callable[[], Iterator[Example]]:
    """Returns what begins to read examples from files, one file after another.

    Args:
        info: The data set, for messages.
        sources: The files.
        make: Turns a key and a record into examples, and raises KeyError, TypeError or ValueError where it cannot.
        within: As for :func:`~codevqa.eval.datasets.json_stream.stream_records`.
        keyed: As there.
    """

    def start() -> Iterator[Example]:
        for source in sources:
            records = stream_records(source, within=within, keyed=keyed)
            yield from examples(info, source, records, lambda record: make(*record))

    return start


def examples(
    info: Info, source: object, rows: Iterable[T], make: Callable[[T], Iterable[Example]]
) -> Iterator[Example]:
    """Yields what is made of rows; one that is not this data set's is an InputError that says which."""
    for count, row in enumerate(rows, 1):
        try:
            made = list(make(row))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise foreign(info, source, count, error) from None
        yield from made


def foreign(info: Info, source: object, count: int, error: Exception) -> InputError:
    """The error for a record that is not this data set's."""
    why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return InputError(
        f"Record {count} of {source} is not one of {info.title}: {why}.", hint="Check that it is the right file."
    )


def locate(info: Info, folder: Folder, split: str, what: str, names: Sequence[str]) -> Located:
    """Returns the file of a split, the first of some names that is there.

    Raises:
        SetupError: there is none; the message says what was looked for, and names the official splits where the one
            asked for is not among them.
    """
    try:
        return folder.need(what, names, info.questions)
    except SetupError as error:
        if split in info.splits:
            raise
        hint = f"{split!r} is none of the splits {', '.join(info.splits)}. {error.hint}".strip()
        raise SetupError(error.message, hint=hint) from None


def answer_text(answer: Any) -> str:
    """An answer as the engine gives it: truth is "yes" or "no", a number its digits.

    Raises:
        TypeError: it is a list or an object.
    """
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if not isinstance(answer, str | int | float):
        raise TypeError(f"an answer is {answer!r}")
    return str(answer)


def truth(label: Any) -> tuple[str, ...]:
    """A label "True", "false" or a bool as gold; none where there is no label.

    Raises:
        ValueError: it is something else, such as a number, whose meaning differs between copies of the data.
    """
    if label is None:
        return ()
    found = {"true": "yes", "false": "no"}.get(str(label).strip().lower())
    if found is None:
        raise ValueError(f"the label {label!r} is neither True nor False")
    return (found,)
