"""The data sets: each a stream of examples from the files that users download.

>>> from codevqa.eval.datasets import NAMES, splits
>>> NAMES
('gqa', 'covr', 'nlvr2', 'nlvr', 'vqav2', 'okvqa')
>>> splits("nlvr")
('dev', 'test', 'hidden', 'train')
"""

from __future__ import annotations

import re
from pathlib import Path

from ...core.errors import InputError, UnknownNameError
from .covr import COVR
from .files import Folder, plain
from .gqa import GQA
from .hub import SCHEME, open_hub
from .loader import Loader, Split
from .nlvr import NLVR
from .nlvr2 import NLVR2
from .vqa import OKVQA, VQAv2

__all__ = ["NAMES", "Split", "open_dataset", "splits"]

_LOADERS: dict[str, type[Loader]] = {one.name: one for one in (GQA, COVR, NLVR2, NLVR, VQAv2, OKVQA)}
NAMES: tuple[str, ...] = tuple(_LOADERS)


def splits(name: str) -> tuple[str, ...]:
    """The official splits of a data set, the one to report first.

    Raises:
        UnknownNameError: there is no such data set.
    """
    return _loader(name).splits


def open_dataset(
    name: str, folder: Path | str, split: str, *, pictures: bool = True, permutations: int | None = None
) -> Split:
    """Opens a split of a data set.

    Args:
        name: One of :data:`NAMES`.
        folder: The data set's folder, one that holds it under its name, or a table on the hub, ``hf://owner/name``.
        split: An official one, or the name of any file that lies where the official ones do.
        pictures: Whether to make sure that the pictures are there; not needed to score or to replay.
        permutations: NLVR: how many of the six pictures of a statement to ask about; all unless told otherwise.

    Raises:
        InputError: a file is damaged or another data set's, or an option is not this data set's.
        SetupError: the folder, a file or the pictures are missing; the message says what was looked for and where to
            get it.
        UnknownNameError: there is no such data set.
    """
    kind = _loader(name)
    if not re.fullmatch(r"\w[\w.-]*", split):
        raise InputError(f"{split!r} cannot be a split.", hint=f"There are: {', '.join(kind.splits)}.")
    loader = kind(split, permutations)
    if str(folder).startswith(SCHEME):
        return open_hub(loader, str(folder))
    return loader.open(Folder(Path(folder), *kind.folders, title=kind.title), pictures=pictures)


def _loader(name: str) -> type[Loader]:
    found = _LOADERS.get(plain(name))
    if found is None:
        raise UnknownNameError.of("data set", name, NAMES)
    return found
