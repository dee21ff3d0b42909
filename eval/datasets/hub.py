"""Data sets from tables of the Hugging Face hub, ``--data hf://owner/name`` or ``hf://owner/name@revision``.

==============================================  =======================================================================
``lmms-lab/GQA`` (``lmms-lab-encoder/GQA``)     configurations ``…_instructions`` and ``…_images``, joined by picture
``lmms-lab/VQAv2``, ``lmms-lab/OK-VQA``         OK-VQA's answers are plain strings there
``lmms-lab/NLVR2``                              ``question``, ``answer`` "True" or "False"; subsets, not whole splits
``HuggingFaceM4/NLVR2``                         ``sentence``, ``label`` 0 or 1, and **0 is True**
COVR                                            no copy is known; the official columns with ``images`` are read
==============================================  =======================================================================

Samples: ``{"id": "201307251", "imageId": "n161313", "question": "Is it overcast?", "answer": "no", "types": {…}}``,
``{"identifier": "dev-850-0-0", "sentence": …, "left_image": {"bytes": …}, "right_image": {…}, "label": 0}``.

Pictures are kept as files in the hub's cache when they are come to, so that reports, resumed runs and other processes
find them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

from ...core.errors import InputError, SetupError
from ..task import Example, PictureFile
from . import covr, gqa, nlvr2, okvqa, vqav2
from .files import Located
from .hub_files import Repository, write
from .split import Info, Split, examples

__all__ = ["open_hub"]

Cells: TypeAlias = dict[str, Any]

ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    "covr": {"val": ("validation",)},
    "nlvr2": {
        "dev": ("validation",),
        "test1": ("test_public",),
        "test2": ("test_unseen",),
        "balanced_test1": ("balanced_test_public",),
        "unbalanced_test1": ("unbalanced_test_public",),
    },
    "vqav2": {
        "val2014": ("validation", "val"),
        "train2014": ("train",),
        "test2015": ("test",),
        "test-dev2015": ("testdev",),
    },
    "okvqa": {"val2014": ("validation", "val"), "train2014": ("train",)},
}
"""What official splits are called on the hub, where not by their own name."""


def open_hub(info: Info, address: str, split: str) -> Split:
    """Opens a split of a data set on the hub.

    Args:
        info: The data set.
        address: ``hf://owner/name``, with ``@revision`` where it is not the newest.
        split: An official one, or as the hub calls it.

    Raises:
        InputError: it is no address, or no table of this data set.
        SetupError: there is no such table, or no way to it.
    """
    if info.name not in MAKERS:
        raise InputError(f"{info.title} is not read from the hub.", hint="Give the folder of its files.")
    repository = Repository.at(address)
    files, others = _find(repository, info, split)
    pictures = _Pictures(repository.index.parent / split, repository.rows(others))
    make = MAKERS[info.name]

    def start() -> Iterator[Example]:
        return examples(info, repository.name, repository.rows(files), lambda row: [make(row, pictures)])

    notes = (f"{repository.name} at {repository.commit[:12]}: files are fetched as they are come to",)
    opened = Split(info.name, split, info.prompts, (Located(repository.index),), start, notes)
    if next(iter(opened), None) is None:
        raise InputError(f"{address} has no rows in {split}.", hint=info.questions)
    return opened


def _find(repository: Repository, info: Info, split: str) -> tuple[list[str], list[str]]:
    """Returns the files with the questions of a split, and those with its pictures where they are apart."""
    tables = repository.tables()
    if info is gqa.INFO:
        named = {config: files for (config, _), files in tables.items()}
        if f"{split}_instructions" in named:
            return named[f"{split}_instructions"], named.get(f"{split}_images", [])
        there = [config.removesuffix("_instructions") for config in named if config.endswith("_instructions")]
    else:
        for name in (split, *ALIASES[info.name].get(split, ())):
            found = {config: files for (config, one), files in tables.items() if one == name}
            if len(found) > 1:
                raise SetupError(
                    f"{repository.name} has {name} in {len(found)} configurations: {', '.join(found)}.",
                    hint="Which one is meant cannot be told; give the folder of its official files.",
                )
            if found:
                return next(iter(found.values())), []
        there = [one for _, one in tables]
    shown = ", ".join(dict.fromkeys(there)) or "no tables"
    raise SetupError(f"{repository.name} has no {info.title} of the split {split!r}.", hint=f"There are: {shown}.")


class _Pictures:
    """The pictures of a split: files, written when they are come to."""

    def __init__(self, folder: Path, rows: Iterator[Cells]) -> None:
        """Takes where they go, and the rows of the table that has them by id, where one has."""
        self.folder, self.rows = folder, rows

    def keep(self, name: Any, cell: Any) -> PictureFile:
        """Keeps the picture of a cell under the name that the table gives; one that is there stays.

        Raises:
            SetupError: it cannot be written.
            ValueError: the cell holds no picture.
        """
        path = self._path(name)
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(data, bytes):
            raise ValueError(f"{path.stem} is no picture")
        if not path.is_file():
            write(path, data)
        return PictureFile(path)

    def find(self, name: Any) -> PictureFile:
        """Returns a picture by its id, keeping those that come before it in the table.

        Raises:
            ValueError: the table has none of that id.
        """
        path = self._path(name)
        while not path.is_file():
            row = next(self.rows, None)
            if row is None:
                raise ValueError(f"picture {name} is not among those given")
            self.keep(row["id"], row["image"])
        return PictureFile(path)

    def _path(self, name: Any) -> Path:
        safe = re.sub(r"[^\w-]", "_", str(name))  # whatever the table says, in this folder
        told_apart = "" if safe == str(name) else f"-{crc32(str(name).encode()):08x}"
        return self.folder / f"{safe}{told_apart}.jpg"


def _gqa(row: Cells, pictures: _Pictures) -> Example:
    for name in ("entailed", "equivalent"):  # lists that the tables have as text
        if isinstance(row.get(name), str):
            row[name] = re.findall(r"\d+", row[name])
    name = row["imageId"]
    picture = pictures.keep(name, row.pop("image")) if "image" in row else pictures.find(name)
    return gqa.example(str(row["id"]), row, picture)


def _vqav2(row: Cells, pictures: _Pictures) -> Example:
    return vqav2.make(row, row, pictures.keep(row["image_id"], row.pop("image")))


def _okvqa(row: Cells, pictures: _Pictures) -> Example:
    # The table does not say which picture it is: each question is taken to have its own.
    return okvqa.make(row, row, pictures.keep(row.get("image_id", row["question_id"]), row.pop("image")))


def _covr(row: Cells, pictures: _Pictures) -> Example:
    scenes = [str(scene) for scene in row["scenes"]]
    cells = dict(zip(scenes, row.pop("images"), strict=True))
    return covr.example(row, lambda scene: pictures.keep(scene, cells[scene]), paraphrased=True)


def _nlvr2(row: Cells, pictures: _Pictures) -> Example:
    given = row.get("label", row.get("answer"))
    if isinstance(given, int) and not isinstance(given, bool):
        if given not in (0, 1, -1):
            raise ValueError(f"the label {given} is not 0 or 1")
        given = (True, False, None)[given]  # ClassLabel(names=["True", "False"]); -1 where it is hidden
    key = next((str(row[name]) for name in ("identifier", "question_id", "id") if name in row), None)
    if key is None:
        raise KeyError("identifier")
    pair = iter((row["left_image"], row["right_image"]))
    record = {"identifier": key, "sentence": row["sentence"] if "sentence" in row else row["question"], "label": given}
    return nlvr2.example(record, lambda name, *_: pictures.keep(name.removesuffix(".png"), next(pair)))


MAKERS: dict[str, Callable[[Cells, _Pictures], Example]] = {
    "gqa": _gqa,
    "covr": _covr,
    "nlvr2": _nlvr2,
    "vqav2": _vqav2,
    "okvqa": _okvqa,
}
