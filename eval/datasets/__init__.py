"""The data sets: each a stream of examples from the files that users download.

>>> from codevqa.eval.datasets import LOADERS
>>> list(LOADERS)
['gqa', 'covr', 'nlvr2', 'nlvr', 'vqav2', 'okvqa', 'collections', 'vhs']
>>> LOADERS["nlvr"].splits
('dev', 'test', 'hidden', 'train')
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ... import plugins
from ...core.errors import InputError, UnknownNameError
from ..task import AS_EXAMPLE, Example
from .collections import Collections
from .covr import COVR
from .files import Folder, plain_name
from .gqa import GQA
from .hub import SCHEME, open_hub
from .hub_table import HubColumns, open_hub_table
from .loader import Loader, Split
from .nlvr import NLVR, NLVR2
from .own import open_own
from .vhs import VisualHaystacks
from .vqa import OKVQA, VQAv2

__all__ = ["LOADERS", "HubColumns", "Split", "open_dataset"]

LOADERS: Mapping[str, type[Loader]] = {
    loader.name: loader for loader in (GQA, COVR, NLVR2, NLVR, VQAv2, OKVQA, Collections, VisualHaystacks)
}


def open_dataset(
    name: str,
    folder: Path | str | None = None,
    split: str | None = None,
    *,
    pictures: bool = True,
    permutations: int | None = None,
    group_by: Sequence[str] = (),
    columns: HubColumns | None = None,
) -> Split:
    """Opens a split of a data set.

    Args:
        name: One of :data:`LOADERS`, a file of one's own questions (``questions.jsonl``, or ``own:`` and its path), any
            table of questions on the hub, ``hf://owner/name``, or a plugin's data set, ``package/name``.
        folder: The data set's folder, one that holds it under its name, or a table on the hub, ``hf://owner/name``.
            Not needed where pictures lie beside the file of one's own questions.
        split: An official one, or the name of any file that lies where the official ones do; None is the first.
        pictures: Whether to make sure that the pictures are there; not needed to score or to replay.
        permutations: NLVR: how many of the six pictures of a statement to ask about; all unless told otherwise.
        group_by: One's own questions: fields to break figures down by.
        columns: A table on the hub as ``name``: its columns, where not the usual ones.

    Raises:
        InputError: a file is damaged or another data set's, or an option is not this data set's.
        SetupError: the folder, a file or the pictures are missing; the message says what was looked for and where to
            get it.
        UnknownNameError: there is no such data set.
    """
    if name.startswith(SCHEME):
        _check_unused(name, {"--data": folder, "--permutations": permutations, "--group-by": group_by})
        return open_hub_table(name, split, columns)
    _check_unused(name, {"a choice of columns": columns not in (None, HubColumns())})
    own = name.removeprefix("own:")
    if own != name or name.endswith(".jsonl"):
        if split is not None or permutations is not None:
            raise InputError(f"{own} has no splits.", hint="Leave out --split and --permutations.")
        return open_own(Path(own), Path(folder) if folder else None, group_by)
    if group_by:
        raise InputError("--group-by is for your own questions.", hint=f"{name} has groups of its own.")
    kind = None if "/" in name else LOADERS.get(plain_name(name))
    if kind is None and "/" not in name:
        raise UnknownNameError.of("data set", name, LOADERS)
    if folder is None:
        raise InputError(f"{name} needs a folder.", hint="Give --data FOLDER.")
    if kind is None:
        maker = plugins.find("dataset", name)
        if maker is None:
            raise UnknownNameError.of("data set", name, [*LOADERS, *plugins.names("dataset")])
        split = split or "test"
        return Split(name, split, "", (), partial(_check_examples, name, maker, Path(folder), split))
    split = split or kind.splits[0]
    if not re.fullmatch(r"\w[\w.-]*", split):
        raise InputError(f"{split!r} cannot be a split.", hint=f"There are: {', '.join(kind.splits)}.")
    if permutations is not None and kind is not NLVR:
        raise InputError(f"{kind.title} has no permutations.", hint="Leave that option out.")
    loader = kind(split) if permutations is None else NLVR(split, permutations)
    if str(folder).startswith(SCHEME):
        return open_hub(loader, str(folder))
    return loader.open(Folder(Path(folder), *kind.folders, title=kind.title), pictures=pictures)


def _check_unused(name: str, options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value:
            raise InputError(f"{name} does not accept {option}.", hint="Leave it out.")


def _check_examples(
    name: str, maker: Callable[[Path, str], Iterable[Example]], folder: Path, split: str
) -> Iterator[Example]:
    shown = f"The data set {name}"
    with plugins.failures(shown):
        examples = iter(maker(folder, split))
    while True:
        with plugins.failures(shown):
            example: object = next(examples, shown)
            if example is shown:
                return
            if not isinstance(example, Example):
                raise InputError(f"{shown} yields examples, not {example!r:.60}.", hint="Mend the plugin.")
            checked = AS_EXAMPLE.validate_python(vars(example))
        yield checked
