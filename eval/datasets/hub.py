"""Data sets from tables of the Hugging Face hub, ``--data hf://owner/name`` or ``hf://owner/name@revision``.

========================================  =============================================================================
``lmms-lab/GQA``                          configurations ``…_instructions`` and ``…_images``, joined by picture
``lmms-lab/VQAv2``, ``lmms-lab/OK-VQA``   OK-VQA's answers are plain strings there
``lmms-lab/NLVR2``                        ``question``, ``answer`` "True" or "False"; subsets, not whole splits
========================================  =============================================================================

Sample: ``{"id": "201307251", "imageId": "n161313", "question": "Is it overcast?", "answer": "no", "types": {…}}``.
Pictures are kept as files in the hub's cache when they are come to, so that reports, resumed runs and other processes
find them.

A repository is known by an index in the cache: the commit, and the SHA-256 of each file. What was asked once can be
read without the network; a run's provenance is the index, so that nothing has to be fetched to hash it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from ...core.errors import InputError, SetupError
from ...models.library_errors import first_line
from ..task import Example, PictureFile
from .files import Located
from .json_stream import JsonRecord
from .loader import Loader, Split

__all__ = ["SCHEME", "open_hub"]

SCHEME = "hf://"
_ADDRESS = re.compile(r"hf://(?:datasets/)?([\w.-]+/[\w.-]+?)(?:@([^@]+?))?/?")
_TABLE = re.compile(r"(?:(?P<config>[\w.-]+)/)?(?P<split>[\w.-]+?)(?:-\d+-of-\d+(?:-\w+)?|/\d+)?\.parquet")
"""How tables are named: ``data/val-00000-of-00002.parquet``, maybe with a hash, or ``default/val/0000.parquet``."""
_PLAIN = ("data", "default", None)
"""Folders of a repository that has no configurations."""
_APART = ("_instructions", "_images")
"""How configurations end that hold questions, or the pictures of these."""
_CELLS = ("image", "left_image", "right_image")
"""Columns that hold a row's own pictures, in their order."""
_BATCH = 32
"""Rows in memory at once: each may hold photographs."""
_SECONDS = 10.0


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
    repository = _Repository.at(address)
    tables = repository.tables()
    split = loader.hub.get(loader.split, loader.split)
    files = tables.get(split) or tables.get(split + _APART[0]) or tables.get(loader.split)
    if files is None:
        there = [name.removesuffix(_APART[0]) for name in tables if not name.endswith(_APART[1])]
        message = f"{repository.name} has no {loader.title} of the split {loader.split!r}."
        raise SetupError(message, hint=f"There are: {', '.join(there) or 'no tables'}.")
    pictures = _Pictures(repository.index.parent / loader.split, repository.rows(tables.get(split + _APART[1], [])))
    start = partial(_examples, loader, repository, files, pictures)
    if next(start(), None) is None:
        raise InputError(f"{address} has no rows in {loader.split}.", hint=loader.questions)
    note = f"{repository.name} at {repository.commit[:12]}: files are fetched on demand"
    return Split(loader.name, loader.split, loader.name, (Located(repository.index),), start, (note,))


def _examples(loader: Loader, repository: _Repository, files: list[str], pictures: _Pictures) -> Iterator[Example]:
    def rows() -> Iterator[tuple[str, JsonRecord]]:
        for row in repository.rows(files):
            pictures.cells = [row.pop(name) for name in _CELLS if name in row]
            yield loader.from_table(row)

    return loader.made(repository.name, rows(), pictures.find)


class _Pictures:
    """The pictures of a split: files, written when they are come to."""

    def __init__(self, folder: Path, others: Iterator[JsonRecord]) -> None:
        """Takes where they go, and the rows of the table that has them by id, where one has."""
        self.folder, self.others = folder, others
        self.cells: list[Any] = []
        """Those of the row that is read, in the order in which it is asked for them."""

    def find(self, name: str, *_: str) -> PictureFile:
        """Returns the next picture of the row, or else that of this name, keeping those before it in their table.

        Raises:
            SetupError: it cannot be written.
            ValueError: there is none.
        """
        key = name.rpartition(".")[0]
        path = self._path(key)
        if self.cells:
            self._keep(path, name, self.cells.pop(0))
        while not path.is_file():
            row = next(self.others, None)
            if row is None:
                raise ValueError(f"picture {key} is not among those given")
            self._keep(self._path(str(row["id"])), str(row["id"]), row["image"])
        return PictureFile(path)

    def _keep(self, path: Path, name: str, cell: Any) -> None:
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(data, bytes):
            raise ValueError(f"{name} has no picture")
        if not path.is_file():
            _write(path, data)

    def _path(self, name: str) -> Path:
        safe = re.sub(r"[^\w-]", "_", name)  # whatever the table says, in this folder
        told_apart = "" if safe == name else f"-{crc32(name.encode()):08x}"
        return self.folder / f"{safe}{told_apart}.jpg"


@dataclass(frozen=True)
class _Repository:
    """A repository of data sets on the hub at one commit."""

    name: str
    commit: str
    files: Mapping[str, str]
    """SHA-256 by the name of each table; empty where the hub tells none."""
    index: Path
    """A file that says all this."""

    @classmethod
    def at(cls, address: str) -> _Repository:
        """Asks the hub, or where it cannot be asked, the cache.

        Args:
            address: ``hf://owner/name`` or ``hf://owner/name@revision``.

        Raises:
            InputError: it is no such address.
            SetupError: the hub has no such repository, or cannot be reached and was not asked before.
        """
        from huggingface_hub import cached_assets_path

        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise InputError(
                f"{address!r} is no address on the hub.", hint="Give hf://OWNER/NAME or .../NAME@REVISION."
            )
        name, revision = found[1], found[2] or "main"
        place = cached_assets_path("codevqa", namespace="datasets", subfolder=name)
        known = place / (re.sub(r"[^\w.-]", "--", revision) + ".commit")
        try:
            commit, files = _asked(name, revision)
        except ConnectionError as error:
            try:
                commit = known.read_text(encoding="utf-8")
                index = place / commit / "files.json"
                return cls(name, commit, json.loads(index.read_text(encoding="utf-8"))["files"], index)
            except (OSError, ValueError, KeyError):
                hint = "Connect once; what was read then can be read without the network."
                raise SetupError(f"{name} is not on this machine: {error}.", hint=hint) from None
        index = place / commit / "files.json"
        _write(index, json.dumps({"repository": name, "commit": commit, "files": files}, indent=1).encode())
        _write(known, commit.encode())
        return cls(name, commit, files, index)

    def tables(self) -> dict[str, list[str]]:
        """The files of each table by its split; by its configuration where questions and pictures are apart."""
        found: dict[str, list[str]] = {}
        for file in sorted(self.files):
            if (named := _TABLE.fullmatch(file)) is not None:
                config, name = named["config"], named["split"]
                if config not in _PLAIN:
                    name = config if config.endswith(_APART) else f"{config}/{name}"
                found.setdefault(name, []).append(file)
        return found

    def rows(self, files: list[str]) -> Iterator[dict[str, Any]]:
        """Yields the rows of a table without their empty cells, fetching each file when it is come to.

        Raises:
            SetupError: pyarrow is missing, or a file cannot be fetched or read.
        """
        try:
            from pyarrow import ArrowException, parquet
        except ImportError:
            raise SetupError("Tables of the hub need pyarrow.", hint="pip install 'codevqa[hub]'") from None
        for file in files:
            path = self._bring(file)
            try:
                with parquet.ParquetFile(path) as table:
                    for batch in table.iter_batches(batch_size=_BATCH):
                        for row in batch.to_pylist():
                            yield {name: value for name, value in row.items() if value is not None}
            except (ArrowException, OSError) as error:
                raise SetupError(
                    f"Cannot read {file} of {self.name}: {first_line(error)}.", hint=f"Delete {path}."
                ) from None

    def _bring(self, file: str) -> Path:
        import httpx2
        from huggingface_hub import hf_hub_download, try_to_load_from_cache

        cached = try_to_load_from_cache(self.name, file, revision=self.commit, repo_type="dataset")
        if isinstance(cached, str):
            return Path(cached)
        try:
            path = Path(hf_hub_download(self.name, file, revision=self.commit, repo_type="dataset"))
        except (httpx2.HTTPError, OSError, ValueError) as error:
            raise SetupError(
                f"Cannot fetch {file} of {self.name}: {first_line(error)}.", hint="What came is kept: ask again."
            ) from None
        with path.open("rb") as opened:
            whole = hashlib.file_digest(opened, "sha256").hexdigest()
        if self.files[file] not in ("", whole):
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise SetupError(f"{file} of {self.name} came damaged.", hint="It was not kept; ask again.")
        return path


def _asked(name: str, revision: str) -> tuple[str, dict[str, str]]:
    """Returns the commit and the tables of a repository.

    Raises:
        ConnectionError: the hub cannot be asked.
        InputError: there can be no repository of that name.
        SetupError: the hub says that it has no such repository or revision.
    """
    import httpx2
    from huggingface_hub import HfApi, is_offline_mode
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if is_offline_mode():
        raise ConnectionError("HF_HUB_OFFLINE keeps it from being fetched")
    api = HfApi()
    try:
        about = api.dataset_info(name, revision=revision, files_metadata=True, timeout=_SECONDS)
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status >= 500:
            raise ConnectionError(f"{api.endpoint} answers {status}") from None
        why = f"{status} {error.response.reason_phrase}".strip()
        raise SetupError(
            f"{api.endpoint} has no data set {name} at {revision} to give: {why}.",
            hint="Check its name; one that is gated or private wants hf auth login.",
        ) from None
    except HFValidationError:
        raise InputError(f"{name} can be no name on the hub.", hint="Give hf://OWNER/NAME.") from None
    except (httpx2.HTTPError, OSError) as error:
        raise ConnectionError(f"{api.endpoint} cannot be reached: {first_line(error)}") from None
    there = about.siblings or ()
    files = {one.rfilename: one.lfs.sha256 if one.lfs else "" for one in there if one.rfilename.endswith(".parquet")}
    return about.sha or revision, files


def _write(path: Path, data: bytes) -> None:
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
