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
from . import covr, gqa, nlvr, nlvr2, okvqa, vqav2
from .files import Folder, plain
from .hub import open_hub
from .hub_files import SCHEME
from .split import Info, Split
from .vqa_files import open_files

__all__ = ["NAMES", "Info", "Split", "info", "open_dataset", "splits"]

_INFOS = {one.name: one for one in (gqa.INFO, covr.INFO, nlvr2.INFO, nlvr.INFO, vqav2.INFO, okvqa.INFO)}
NAMES: tuple[str, ...] = tuple(_INFOS)


def info(name: str) -> Info:
    """What is known of a data set before its files are seen: title, official splits, where to get it.

    Raises:
        UnknownNameError: there is no such data set.
    """
    found = _INFOS.get(plain(name))
    if found is None:
        raise UnknownNameError(f"No data set {name!r}.", hint=f"There are: {', '.join(NAMES)}.")
    return found


def splits(name: str) -> tuple[str, ...]:
    """The official splits of a data set, the one to report first.

    Raises:
        UnknownNameError: there is no such data set.
    """
    return info(name).splits


def open_dataset(
    name: str,
    folder: Path | str,
    split: str,
    *,
    pictures: bool = True,
    paraphrased: bool | None = None,
    permutations: int | None = None,
) -> Split:
    """Opens a split of a data set.

    Args:
        name: One of :data:`NAMES`.
        folder: The data set's folder, one that holds it under its name, or a table on the hub, ``hf://owner/name``.
        split: An official one, or the name of any file that lies where the official ones do.
        pictures: Whether to make sure that the pictures are there; not needed to score or to replay.
        paraphrased: COVR: whether to ask the paraphrases; they are asked unless told otherwise.
        permutations: NLVR: how many of the six pictures of a statement to ask about; all unless told otherwise.

    Raises:
        InputError: a file is damaged or another data set's, or an option is not this data set's.
        SetupError: the folder, a file or the pictures are missing; the message says what was looked for and where to
            get it.
        UnknownNameError: there is no such data set.
    """
    about = info(name)
    if paraphrased is not None and about is not covr.INFO:
        raise InputError(f"{about.title} has no paraphrases.", hint="Leave that option out.")
    if permutations is not None and about is not nlvr.INFO:
        raise InputError(f"{about.title} has no permutations.", hint="Leave that option out.")
    if not re.fullmatch(r"\w[\w.-]*", split):
        raise InputError(f"{split!r} cannot be a split.", hint=f"There are: {', '.join(about.splits)}.")
    if str(folder).startswith(SCHEME):
        return open_hub(about, str(folder), split)
    place = Folder(Path(folder), *about.folders, title=about.title)
    if about is covr.INFO:
        return covr.open_split(place, split, pictures=pictures, paraphrased=paraphrased is not False)
    if about is nlvr.INFO:
        count = nlvr.PERMUTATIONS if permutations is None else permutations
        return nlvr.open_split(place, split, pictures=pictures, permutations=count)
    if about in (vqav2.INFO, okvqa.INFO):
        return open_files(vqav2.FILES if about is vqav2.INFO else okvqa.FILES, place, split, pictures=pictures)
    if about is gqa.INFO:
        return gqa.open_split(place, split, pictures=pictures)
    return nlvr2.open_split(place, split, pictures=pictures)
