"""JSON records of prompt sets that say where they stand when something is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Any, get_args

from ..core.errors import InputError
from ..core.given_files import parse_json, read_lines, read_text

__all__ = ["Record", "read_records"]


@dataclass(frozen=True)
class Record:
    """A JSON object that says where it stands when something is wrong with it: every method raises InputError then."""

    data: Mapping[str, Any]
    where: str

    def __post_init__(self) -> None:
        if not isinstance(self.data, dict):
            raise InputError(f"{self.where}: expected a JSON object, found {type(self.data).__name__}.")

    def only(self, known: Iterable[str]) -> None:
        """Refuses keys that are not known."""
        unknown = sorted(set(self.data) - set(known))
        if unknown:
            raise InputError(f"{self.where}: unknown key {unknown[0]!r}.", hint=f"Known: {', '.join(sorted(known))}.")

    def get(self, key: str) -> Any:
        """Returns a value that must be there."""
        if key not in self.data:
            raise InputError(f"{self.where}: {key!r} is missing.")
        return self.data[key]

    def text(self, key: str) -> str:
        """Returns a text that is not empty."""
        value = self.get(key)
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{self.where}: {key!r} must be a text that is not empty.")
        return value

    def id(self) -> str:
        """Returns the ``id``, or the release's ``question_id``."""
        key = "id" if "id" in self.data else "question_id"
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | str) or str(value) == "":
            raise InputError(f"{self.where}: {key!r} must be a text or a whole number.")
        return str(value)

    def count(self, key: str) -> int:
        """Returns a whole number, 0 or more."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{self.where}: {key!r} must be a whole number, 0 or more.")
        return value

    def span(self, key: str) -> tuple[int, int]:
        """Returns two whole numbers, the smaller first."""
        value = self.get(key)
        if not (isinstance(value, list) and [type(one) for one in value] == [int, int] and 0 <= value[0] <= value[1]):
            raise InputError(f"{self.where}: {key!r} must be two whole numbers, the smaller first.")
        return value[0], value[1]

    def choice(self, key: str, among: Any, *default: Any) -> Any:
        """Returns one of the words of a Literal; where the key is missing, the default if one is given."""
        if default and key not in self.data:
            return default[0]
        value = self.get(key)
        if isinstance(value, str) and value in get_args(among):
            return value
        raise InputError(f"{self.where}: {key!r} must be one of {', '.join(get_args(among))}, not {value!r}.")

    def strings(self, key: str) -> tuple[str, ...]:
        """Returns a list of texts, none empty."""
        value = self.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise InputError(f"{self.where}: {key!r} must be a list of texts, none empty.")
        return tuple(value)

    def captions(self) -> tuple[str, ...] | tuple[tuple[str, ...], ...]:
        """Returns the captions of the picture, or of each picture of a set."""
        value = self.get("captions")
        if isinstance(value, str) and value.strip():
            return (value,)
        if value and isinstance(value, list) and all(isinstance(one, list) for one in value):
            return tuple(Record({"captions": one}, self.where).strings("captions") for one in value)
        captions = self.strings("captions")
        if not captions:
            raise InputError(f"{self.where}: 'captions' is empty.")
        return captions


def read_records(path: Traversable, shown: str = "", known: Iterable[str] | None = None) -> Iterator[Record]:
    """Yields the records of a JSON Lines file, a JSON list, or a JSON object keyed by id.

    Args:
        path: the file.
        shown: what messages call it; else its path.
        known: the keys a record may have; None allows any.

    Raises:
        InputError: the file is missing, holds no record, or one is malformed.
    """
    shown, found = shown or str(path), False
    for record in _records(read_text(path, shown), shown, lines=path.name.endswith(".jsonl")):
        if known is not None:
            record.only(known)
        found = True
        yield record
    if not found:
        raise InputError(f"{shown} is empty.", hint="Give at least one record.")


def _records(text: str, shown: str, *, lines: bool) -> Iterator[Record]:
    if lines:
        for number, line in read_lines(text):
            yield Record(parse_json(line, shown, number), f"{shown}, line {number}")
        return
    data = parse_json(text, shown)
    if isinstance(data, dict):
        for key, value in data.items():
            for one in value if isinstance(value, list) else (value,):
                record = Record(one, f"{shown}, id {key}")
                yield Record({**record.data, "id": key}, record.where)
    elif isinstance(data, list):
        for number, value in enumerate(data, 1):
            yield Record(value, f"{shown}, record {number}")
    else:
        raise InputError(f"{shown}: expected a JSON object or list, found {type(data).__name__}.")
