"""Drawn collections: questions about tens or hundreds of pictures, each with the pictures that count.

``codevqa mini-data DATA --sets 10,50,200`` writes them; :mod:`codevqa.mini.export_collections` has the format. Any
file of that format is read, so pictures of one's own can be asked about, too. ::

    collections/test_50.jsonl
    collections/images/test_50/0/0001.jpg, …
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..task import Example
from .files import JsonRecord
from .loader import Loader, Picture, gold_text


class Collections(Loader):
    """A split and size of drawn collections."""

    name = "collections"
    title = "the drawn collections"
    prompts = "covr"
    splits = ("test_50", "test_10", "test_200")
    folders = ("collections",)
    places = ("",)
    files = ("{split}.jsonl",)
    questions = "Draw them: codevqa mini-data DATA --sets 10,50,200."
    pictures = questions

    def part(self) -> tuple[str, ...]:
        """Returns nothing: every size is a split of its own."""
        return () if re.fullmatch(r"\w+_\d+", self.split) else super().part()

    def examples(self, key: str, row: JsonRecord, picture: Picture) -> Iterator[Example]:
        """Turns a record into an example."""
        places = {name: place for place, name in enumerate(row["images"], 1)}
        if not places:
            raise ValueError("it has no images")
        record: dict[str, Any] = {name: row[name] for name in ("program",) if row.get(name)}
        if "pictures" in row:
            record["pictures"] = [places[name] for name in row["pictures"]]
        yield Example(
            id=str(row["id"]),
            question=str(row["question"]),
            images=tuple(picture(name) for name in places),
            form="set",
            gold=_gold_answers(row["answer"], places),
            groups={"kind": str(row["kind"]), "images": str(len(places))},
            cluster=str(row.get("collection") or " ".join(sorted(places))),
            record=record,
        )


def _gold_answers(answer: Any, places: dict[str, int]) -> tuple[str, ...]:
    """Returns an answer as the engine gives it: a list of pictures by number, a group as one answer a picture."""
    if answer is None:
        return ()
    if isinstance(answer, list):
        return (", ".join(f"image {places[name]}" for name in answer),)
    if isinstance(answer, dict):
        return (", ".join(str(value) for value, count in answer.items() for _ in range(count)),)
    return (gold_text(answer),)
