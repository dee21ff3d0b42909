"""What all data sets have in common: where their files lie, and how records become a stream of examples."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar, TypeAlias

from ...core.errors import InputError
from ..task import DatasetPicture, Example, Located
from .files import Folder, JsonRecord, stream_records

Picture: TypeAlias = Callable[..., DatasetPicture]
"""Returns a picture by the names that its file may have."""
LOOKED_AT = 8
"""How many examples must all lack their pictures before the pictures are said to be missing."""


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


def sample(split: Split, count: int, seed: int) -> Split:
    """Returns a split with some of its questions, in their order.

    Where figures ask that a group be right together, such as a statement's pictures, whole groups are drawn, as long
    as they fit; else questions are.

    Args:
        split: the split.
        count: how many questions; groups may leave some room.
        seed: of the draw: the same seed draws the same from the same file, everywhere.

    Raises:
        InputError: there are not so many, or a group is larger.
    """
    sizes = Counter(map(_unit, split))
    total = sizes.total()
    if not 1 <= count <= total:
        raise InputError(f"A sample of {count:,} cannot be had of {total:,} questions.", hint="Give another --sample.")
    units = list(sizes)
    random.Random(seed).shuffle(units)
    chosen: set[str] = set()
    drawn = 0
    for unit in units:
        if drawn + sizes[unit] > count:
            break
        chosen.add(unit)
        drawn += sizes[unit]
    if not chosen:
        raise InputError(f"No whole group fits into {count:,} questions.", hint="Give a larger --sample.")
    groups = f" in {len(chosen):,} whole groups" if max(sizes.values()) > 1 else ""
    part = f"a random sample of {drawn:,} of {total:,} questions{groups}, seed {seed}"
    return replace(
        split, start=lambda: (example for example in split if _unit(example) in chosen), part=(*split.part, part)
    )


def _unit(example: Example) -> str:
    return example.group or example.id


class Loader(ABC):
    """One split of a data set. A data set is a subclass that declares what follows and reads one record."""

    name: ClassVar[str]
    """Also that of its prompt set, unless ``prompts`` says another."""
    prompts: ClassVar[str] = ""
    title: ClassVar[str]
    """What messages call it."""
    splits: ClassVar[tuple[str, ...]]
    """The official ones, the one to report first; any other split is read too where its file is there."""
    folders: ClassVar[tuple[str, ...]]
    """What its folder may be called inside a folder of several data sets."""
    files: ClassVar[tuple[str, ...]] = ()
    """Where the annotations of ``{split}`` may be in that folder; the first file that is there is read."""
    keyed: ClassVar[bool] = False
    within: ClassVar[str] = ""
    """Both as for :func:`~codevqa.eval.datasets.files.stream_records`."""
    places: ClassVar[tuple[str, ...]]
    """Where the pictures of ``{split}`` may be in that folder."""
    questions: ClassVar[str]
    """Where to get the annotations, as a sentence."""
    pictures: ClassVar[str]
    """Where to get the pictures, as a sentence."""
    hub: ClassVar[Mapping[str, str] | None] = None
    """What the hub calls official splits, where not by their own name; None for data sets that it does not have."""

    def __init__(self, split: str) -> None:
        self.split = split

    @abstractmethod
    def examples(self, key: str, row: JsonRecord, picture: Picture) -> Iterable[Example]:
        """Turns a record into examples.

        Args:
            key: its key, where the file has keys.
            row: the record.
            picture: finds a picture.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: it is not a record of this data set.
        """

    def from_table(self, row: JsonRecord) -> tuple[str, JsonRecord]:
        """Returns key and record of a row of a table on the hub."""
        return "", row

    def names(self) -> tuple[str, ...]:
        """Returns where the annotations may be."""
        return tuple(name.format(split=self.split) for name in self.files)

    def sources(self, folder: Folder) -> tuple[Located, ...]:
        """Returns the files of the split.

        Raises:
            SetupError: they are not there.
        """
        return (self.need(folder, *self.names()),)

    def notes(self, first: Example) -> tuple[str, ...]:
        """Returns what a user should be told of a split, whose first example is given."""
        return ()

    def part(self) -> tuple[str, ...]:
        """Returns why figures on the split are not those of the official one."""
        if self.split.removesuffix("_paraphrased") not in self.splits:
            return (f"{self.split} is none of {self.title}'s",)
        return (f"{self.split}, where {self.splits[0]} is reported",) if self.split.endswith("_all") else ()

    def open(self, folder: Folder, *, pictures: bool) -> Split:
        """Opens the split and reads its first examples, so that what is missing shows before anything is asked.

        Args:
            folder: where its files are.
            pictures: whether to make sure that its pictures are there.

        Raises:
            InputError: the files hold no question, or not this data set's.
            SetupError: they or the pictures are not there.
        """
        sources = self.sources(folder)
        places = [place.format(split=self.split) for place in self.places]
        start = partial(self.read, sources, partial(folder.picture, places))
        first = list(islice(start(), LOOKED_AT))
        if not first:
            raise InputError(f"{sources[0]} has no questions.", hint=self.questions)
        shown = [image.path for example in first for image in example.images]
        if pictures and shown and not any(path.is_file() for path in shown):
            looked = [f"{place}/{shown[0].name}".lstrip("/") for place in places]
            raise folder.lacks("pictures", looked, self.pictures)
        prompts = self.prompts or self.name
        return Split(self.name, self.split, prompts, sources, start, self.notes(first[0]), self.part())

    def read(self, sources: tuple[Located, ...], picture: Picture) -> Iterator[Example]:
        """Yields the examples of some files, one file after another."""
        for source in sources:
            yield from self.make_examples(source, stream_records(source, within=self.within, keyed=self.keyed), picture)

    def make_examples(
        self, source: object, rows: Iterable[tuple[str, JsonRecord]], picture: Picture
    ) -> Iterator[Example]:
        """Yields the examples of records with their keys.

        Raises:
            InputError: one is not this data set's; the message says which.
        """
        for count, (key, row) in enumerate(rows, 1):
            try:
                new_examples = list(self.examples(key, row, picture))
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                message = f"Record {count} of {source} is not one of {self.title}: {why}."
                raise InputError(message, hint="Check that it is the right file.") from None
            yield from new_examples

    def need(self, folder: Folder, *names: str) -> Located:
        """Returns the first of some files that is there.

        Raises:
            SetupError: there is none; the message says what was looked for, and names the official splits where the
                one asked for is not among them.
        """
        file = folder.find(*names)
        if file is not None:
            return file
        hint = self.questions
        if self.split not in self.splits:
            hint = f"{self.split!r} is none of the splits {', '.join(self.splits)}. {hint}"
        raise folder.lacks("questions", names, hint)


def gold_text(answer: Any) -> str:
    """An answer as the engine gives it: truth is "yes" or "no", a number its digits.

    Raises:
        TypeError: it is a list or an object.
    """
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if not isinstance(answer, str | int | float):
        raise TypeError(f"an answer is {answer!r}")
    return str(answer)


def truth_gold(label: Any) -> tuple[str, ...]:
    """A label "True", "false" or a bool as gold; none where there is no label.

    Raises:
        ValueError: it is something else, such as a number, whose meaning differs between copies of the data.
    """
    if label is None:
        return ()
    answer = {"true": "yes", "false": "no"}.get(str(label).strip().lower())
    if answer is None:
        raise ValueError(f"the label {label!r} is neither True nor False")
    return (answer,)
