"""Writes the drawn world out as data sets in the file formats of GQA, COVR and NLVR2.

The files are complete before they are seen: everything goes into a folder beside the target, which then takes its name.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from ..core.errors import InputError, SetupError
from . import export_collections, export_covr, export_gqa, export_nlvr2
from .export_draw import SPLITS

ABOUT = "mini-data.json"
"""File at the root that says how the folder was made, and that it was made here."""
Writer: TypeAlias = Callable[[Path, str, int, int, int], dict[str, int]]
WRITERS: dict[str, Writer] = {
    "gqa": export_gqa.write_gqa_split,
    "covr": export_covr.write_covr_split,
    "nlvr2": export_nlvr2.write_nlvr2_split,
}
LARGEST = 10_000
LARGEST_SET = 500


def write_datasets(
    out: Path,
    *,
    images: int = 120,
    seed: int = 0,
    splits: Sequence[str] = SPLITS,
    only: Sequence[str] = tuple(WRITERS),
    sets: Sequence[int] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, int]:
    """Writes the data sets.

    Args:
        out: Folder to make; must be absent or empty.
        images: Pictures (GQA, five questions each), sets (COVR) and pairs (NLVR2) of each split; "train" has twice as
            many.
        seed: The same seed gives the same bytes, whichever splits are asked for.
        splits: Some of ``SPLITS``.
        only: Data sets: some of ``gqa``, ``covr`` and ``nlvr2``.
        sets: Sizes of further sets of COVR, each in a file such as ``covr/test_20.jsonl``, and of collections, each in
            a file such as ``collections/test_20.jsonl``.
        progress: Told what is being written.

    Returns:
        How many questions each file has.

    Raises:
        InputError: a split or a data set is unknown, the number is out of range, or the folder has something in it.
        SetupError: the folder cannot be written.
    """
    unknown = [split for split in splits if split not in SPLITS]
    if unknown or not splits:
        raise InputError(f"No split {', '.join(unknown) or 'given'}.", hint=f"There are: {', '.join(SPLITS)}.")
    if not only or set(only) - WRITERS.keys():
        raise InputError(f"No data set {', '.join(only) or 'given'}.", hint=f"There are: {', '.join(WRITERS)}.")
    if not 4 <= images <= LARGEST:
        raise InputError(f"{images} pictures a split.", hint=f"From 4 to {LARGEST} can be drawn.")
    if not all(1 <= size <= LARGEST_SET for size in sets):
        raise InputError(f"Sets of {min(sets)} to {max(sets)} pictures.", hint=f"From 1 to {LARGEST_SET} can be drawn.")
    out, counts = Path(os.path.abspath(out)), dict[str, int]()  # noqa: PTH100 - a link stays a link
    splits = [known for known in SPLITS if known in splits]
    try:
        if os.path.lexists(out) and (not out.is_dir() or out.is_symlink() or any(out.iterdir())):
            raise InputError(f"{out} is not an empty folder.", hint="Give a folder that does not exist yet.")
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as held:
            root = Path(held) / "new"
            for split in splits:
                many = images * 2 if split == "train" else images
                for name in only:
                    progress(f"{name}: {split}")
                    counts |= WRITERS[name](root / name, split, many, seed, SPLITS.index(split))
                for size in dict.fromkeys(sets):
                    progress(f"covr and collections: {split}, sets of {size}")
                    for name, larger in (
                        ("covr", export_covr.write_covr_split),
                        ("collections", export_collections.write_collections_split),
                    ):
                        counts |= larger(root / name, split, images, seed, SPLITS.index(split), size)
            about = {"images": images, "seed": seed, "splits": splits, "questions": counts}
            (root / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            root.rename(out)
    except OSError as error:
        raise SetupError(f"Cannot write {out}: {error.strerror or error}.", hint="Give another folder.") from error
    return counts
