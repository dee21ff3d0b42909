"""Data sets from tables of the Hugging Face hub, ``--data hf://owner/name`` or ``hf://owner/name@revision``.

========================================  =============================================================================
``lmms-lab/GQA``                          configurations ``…_instructions`` and ``…_images``, joined by picture
``lmms-lab/VQAv2``, ``lmms-lab/OK-VQA``   OK-VQA's answers are plain strings there
``lmms-lab/NLVR2``                        ``question``, ``answer`` "True" or "False"; subsets, not whole splits
========================================  =============================================================================

Sample: ``{"id": "201307251", "imageId": "n161313", "question": "Is it overcast?", "answer": "no", "types": {…}}``.
Tables are downloaded on demand. Pictures become files in the hub's cache, so that reports and other processes find
them. An index in the cache names the commit and the SHA-256 of each table: a run is identified by it, and what was
read once needs no network.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from ...core.errors import InputError, SetupError
from ...models.library_errors import first_line
from ..task import DatasetPicture, Example, Located
from .files import JsonRecord, sha256
from .loader import Loader, Split

SCHEME = "hf://"
_ADDRESS = re.compile(r"hf://(?:datasets/)?([\w.-]+/[\w.-]+?)(?:@([^@]+?))?/?")
_TABLE = re.compile(r"(?:(?P<config>[\w.-]+)/)?(?P<split>[\w.-]+?)(?:-\d+-of-\d+(?:-\w+)?|/\d+)?\.parquet")
"""How tables are named: ``data/val-00000-of-00002.parquet``, maybe with a hash, or ``default/val/0000.parquet``."""
_APART = ("_instructions", "_images")
"""How configurations end that hold questions, or the pictures of these."""
_CELLS = ("image", "left_image", "right_image")
"""Columns that hold a row's own pictures, in their order."""


def open_hub(loader: Loader, address: str) -> Split:
    """Opens a split of a data set on the hub.

    Args:
        loader: The split; one of a name that the hub uses is read too.
        address: ``hf://owner/name``, with ``@revision`` where it is not the newest.

    Raises:
        InputError: it is no address, or no table of this data set.
        SetupError: there is no such table, or no way to it.
    """
    if loader.hub is None:
        raise InputError(f"{loader.title} is not read from the hub.", hint="Give the folder of its files.")
    index = fetch_index(address)
    known = json.loads(index.read_text(encoding="utf-8"))
    name, commit = known["repository"], known["commit"]
    tables = list_tables(known)
    split = loader.hub.get(loader.split, loader.split)
    files = tables.get(split) or tables.get(split + _APART[0]) or tables.get(loader.split)
    if files is None:
        there = ", ".join(table.removesuffix(_APART[0]) for table in tables if not table.endswith(_APART[1]))
        message = f"{name} has no {loader.title} of the split {loader.split!r}."
        raise SetupError(message, hint=f"There are: {there or 'no tables'}.")
    pictures = _Pictures(index.parent / commit / loader.split, table_rows(known, tables.get(split + _APART[1], [])))

    def examples() -> Iterator[Example]:
        def rows() -> Iterator[tuple[str, JsonRecord]]:
            for row in table_rows(known, files):
                pictures.cells = [row.pop(column) for column in _CELLS if column in row]
                yield loader.from_table(row)

        return loader.make_examples(name, rows(), pictures.find)

    if next(examples(), None) is None:
        raise InputError(f"{address} has no rows in {loader.split}.", hint=loader.questions)
    note = f"{name} at {commit[:12]}: files are fetched on demand"
    return Split(loader.name, loader.split, loader.name, (Located(index),), examples, (note,))


def list_tables(known: dict[str, Any]) -> dict[str, list[str]]:
    """Returns the files of each table that an index names, by split, or ``configuration/split``."""
    tables: dict[str, list[str]] = {}
    for file in sorted(known["files"]):
        if (named := _TABLE.fullmatch(file)) is not None:
            config, table = named["config"], named["split"]
            if config not in (None, "data", "default"):  # as repositories without configurations have
                table = config if config.endswith(_APART) else f"{config}/{table}"
            tables.setdefault(table, []).append(file)
    return tables


class _Pictures:
    """The pictures of a split: files, written when they are asked for."""

    def __init__(self, folder: Path, others: Iterator[JsonRecord]) -> None:
        """Takes where they go, and the rows of the table that has them by id, where one has."""
        self.folder, self.others = folder, others
        self.cells: list[Any] = []
        """Those of the row that is read, in the order in which it asks for them."""

    def find(self, name: str, *_: str) -> DatasetPicture:
        """Returns the next picture of the row, or else that of this name, keeping those before it in their table.

        Raises:
            SetupError: it cannot be written.
            ValueError: there is none.
        """
        key = name.rpartition(".")[0]
        if self.cells:
            self._keep(key, self.cells.pop(0))
        while not self._path(key).is_file():
            if (row := next(self.others, None)) is None:
                raise ValueError(f"picture {key} is not among those given")
            self._keep(str(row["id"]), row["image"])
        return DatasetPicture(self._path(key))

    def _keep(self, name: str, cell: Any) -> None:
        if (data := picture_bytes(cell)) is None:
            raise ValueError(f"{name} has no picture")
        if not (path := self._path(name)).is_file():
            write_cache(path, data)

    def _path(self, name: str) -> Path:
        safe = re.sub(r"[^\w-]", "_", name)  # whatever the table says, in this folder
        told_apart = "" if safe == name else f"-{crc32(name.encode()):08x}"
        return self.folder / f"{safe}{told_apart}.jpg"


def picture_bytes(cell: Any) -> bytes | None:
    """Returns the file that a cell holds; None where it holds no file, such as an address."""
    data = cell.get("bytes") if isinstance(cell, dict) else cell
    return data if isinstance(data, bytes) else None


def table_rows(known: dict[str, Any], files: list[str], columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table without their empty cells, fetching each file when it is needed.

    Args:
        known: What the index says.
        files: Of the table.
        columns: Those to read; None reads all.

    Raises:
        SetupError: pyarrow is missing, or a file cannot be fetched or read.
    """
    for file in files:
        with _open_table(known, file) as table:
            for batch in table.iter_batches(batch_size=32, columns=columns):  # each row may hold photographs
                for row in batch.to_pylist():
                    yield {name: value for name, value in row.items() if value is not None}


def column_classes(known: dict[str, Any], file: str) -> dict[str, tuple[str, ...]]:
    """Returns the columns of a table's file; those that hold numbers of classes with the names of the classes.

    Raises:
        SetupError: pyarrow is missing, or the file cannot be fetched or read.
    """
    with _open_table(known, file) as table:
        schema = table.schema_arrow
        about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = about.get("info", {}).get("features", {})
    return {name: _class_names(features.get(name)) for name in schema.names}


def _class_names(feature: Any) -> tuple[str, ...]:
    """Returns what the numbers of a feature, or of a list of it, stand for."""
    if isinstance(feature, list):  # as older versions of the library write one
        feature = {"feature": feature[0]}
    if not isinstance(feature, dict):
        return ()
    return tuple(map(str, feature.get("names") or ())) or _class_names(feature.get("feature"))


@contextmanager
def _open_table(known: dict[str, Any], file: str) -> Iterator[Any]:
    """Fetches a file, unless it is there, and opens it.

    Raises:
        SetupError: pyarrow is missing, or the file cannot be fetched or read.
    """
    import httpx2
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise SetupError("Tables of the hub need pyarrow.", hint="pip install 'codevqa[hub]'") from None
    name, kept = known["repository"], {"revision": known["commit"], "repo_type": "dataset"}
    try:
        is_new = not isinstance(try_to_load_from_cache(name, file, **kept), str)
        path = Path(hf_hub_download(name, file, **kept))
        if is_new and known["files"][file] not in ("", sha256(Located(path))):
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise SetupError(f"{file} of {name} came damaged.", hint="It was not kept; ask again.")
        with parquet.ParquetFile(path) as table:
            yield table
    except (ArrowException, httpx2.HTTPError, OSError, ValueError) as error:
        raise SetupError(f"Cannot read {file} of {name}: {first_line(error)}.", hint="Ask again.") from None


def fetch_index(address: str) -> Path:
    """Asks the hub what a repository holds and returns its index; the one in the cache where the hub is out of reach.

    Raises:
        InputError: it is no such address.
        SetupError: the hub has no such repository, or cannot be reached and was not asked before.
    """
    import httpx2
    from huggingface_hub import HfApi, cached_assets_path
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InputError(f"{address!r} is no address on the hub.", hint="Give hf://OWNER/NAME or .../NAME@REVISION.")
    name, revision = match[1], match[2] or "main"
    place = cached_assets_path("codevqa", namespace="datasets", subfolder=name)
    index = place / (re.sub(r"[^\w.-]", "--", revision) + ".json")
    try:
        about = HfApi().dataset_info(name, revision=revision, files_metadata=True, timeout=10)
    except HFValidationError:
        raise InputError(f"{name} can be no name on the hub.", hint="Give hf://OWNER/NAME.") from None
    except (httpx2.HTTPError, OSError) as error:
        if isinstance(error, HfHubHTTPError) and error.response.status_code < 500:
            raise SetupError(
                f"The hub has no data set {name} at {revision} to give: {error.response.status_code}.",
                hint="Check its name; one that is gated or private wants hf auth login.",
            ) from None
        if index.is_file():
            return index
        hint = "Connect once; what was read then can be read without the network."
        raise SetupError(f"{name} is not on this machine: {first_line(error)}.", hint=hint) from None
    tables = (file for file in about.siblings or () if file.rfilename.endswith(".parquet"))
    files = {table.rfilename: table.lfs.sha256 if table.lfs else "" for table in tables}
    provenance = {"repository": name, "commit": about.sha or revision, "files": files}
    write_cache(index, json.dumps(provenance, indent=1).encode())
    return index


def write_cache(path: Path, data: bytes) -> None:
    """Writes a file of the cache, whole or not at all.

    Raises:
        SetupError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise SetupError(
            f"Cannot write {path}: {error.strerror}.", hint="Make room, or set HF_HOME to a folder elsewhere."
        ) from None
