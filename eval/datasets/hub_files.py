"""Tables of the Hugging Face hub: which files a repository has, and their rows, fetched as they are read.

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
from pathlib import Path
from typing import Any

from ...core.errors import InputError, SetupError
from ...models.library_errors import first_line

__all__ = ["SCHEME", "Repository", "write"]

SCHEME = "hf://"
_ADDRESS = re.compile(r"hf://(?:datasets/)?([\w.-]+/[\w.-]+?)(?:@([^@]+?))?/?")
_TABLE = re.compile(r"(?:(?P<config>[\w.-]+)/)?(?P<split>[\w.-]+?)(?:-\d+-of-\d+(?:-\w+)?|/\d+)?\.parquet")
"""How tables are named: ``data/val-00000-of-00002.parquet``, maybe with a hash, or ``default/val/0000.parquet``."""
_PLAIN = ("data", "default", "")
"""Folders of a repository that has no configurations."""
_BATCH = 32
"""Rows in memory at once: each may hold photographs."""
_SECONDS = 10.0


@dataclass(frozen=True)
class Repository:
    """A repository of data sets on the hub at one commit."""

    name: str
    commit: str
    files: Mapping[str, str]
    """SHA-256 by the name of each table; empty where the hub tells none."""
    index: Path
    """A file that says all this."""

    @classmethod
    def at(cls, address: str) -> Repository:
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
        write(index, json.dumps({"repository": name, "commit": commit, "files": files}, indent=1).encode())
        write(known, commit.encode())
        return cls(name, commit, files, index)

    def tables(self) -> dict[tuple[str, str], list[str]]:
        """The files of each table by its configuration and split; the configuration is empty where there are none."""
        found: dict[tuple[str, str], list[str]] = {}
        for file in sorted(self.files):
            if (named := _TABLE.fullmatch(file)) is not None:
                config = named["config"] or ""
                found.setdefault(("" if config in _PLAIN else config, named["split"]), []).append(file)
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


def write(path: Path, data: bytes) -> None:
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
