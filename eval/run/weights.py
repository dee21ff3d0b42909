"""Which weights answered: the SHA-256 of every weight file of a part, reckoned once for each file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...core.errors import SetupError
from ...models.web_checkpoint import WebCheckpoint
from ...presets.assembly import resolve

__all__ = ["weight_hashes"]

_ENDINGS = (".safetensors", ".bin", ".pth", ".pt")
_MARKS = ("config.json", "modules.json")
"""What every checkpoint of the hub has, and by which its folder in the hub's cache is found."""


def weight_hashes(spec: str) -> dict[str, str]:
    """Returns the SHA-256 of each weight file of a part that lies on this machine, by its name in the checkpoint.

    A second or two for each gigabyte; remembered by path, size and time of change in the cache of huggingface_hub
    (``HF_HOME`` moves it), in ``assets/codevqa/weights``.

    Args:
        spec: ``back end:id``. A server's model has no files here.

    Raises:
        SetupError: a file cannot be read.
    """
    from huggingface_hub import constants

    cache = Path(constants.HF_ASSETS_CACHE, "codevqa", "weights", "sha256.json")
    known = _read(cache)
    found, new = {}, {}
    for name, path in _files(spec).items():
        try:
            about = path.stat()
            key = f"{path.resolve()}|{about.st_size}|{about.st_mtime_ns}"
            digest = known.get(key)
            if digest is None:
                with path.open("rb") as file:
                    digest = new[key] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise SetupError(f"Cannot read the weights {path}: {error.strerror}.", hint="Check the file.") from None
        found[name] = digest
    if new:
        _write(cache, {**_read(cache), **new})
    return found


def _files(spec: str) -> dict[str, Path]:
    """Returns the weight files of a part by name: of a folder, of a file, or of a checkpoint in the hub's cache."""
    back_end, _, name = spec.partition(":")
    if back_end.startswith("openai"):
        return {}
    if WebCheckpoint.named(name):
        made = WebCheckpoint.at(name).made
        return {} if made is None else _inside(made)
    place = Path(resolve(name)).expanduser()
    if place.is_file():
        return {place.name: place}
    if not place.is_dir():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        repository, _, revision = name.partition("@")
        with suppress(HFValidationError):
            for mark in _MARKS:
                found = try_to_load_from_cache(repository, mark, revision=revision or None)
                if isinstance(found, str):
                    return _inside(Path(found).parent)
        return {}
    return _inside(place)


def _inside(folder: Path) -> dict[str, Path]:
    files = sorted(path for path in folder.rglob("*") if path.suffix in _ENDINGS and path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in files}


def _read(cache: Path) -> Mapping[str, str]:
    try:
        known = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it is a cache: what is not there, or damaged, is made again
        return {}
    return {key: value for key, value in known.items() if isinstance(value, str)} if isinstance(known, dict) else {}


def _write(cache: Path, known: Mapping[str, str]) -> None:
    """Keeps what was reckoned, where it can be kept; two runs at once may cost a hash, and never a wrong one."""
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        whole = cache.with_suffix(f".{os.getpid()}")
        whole.write_text(json.dumps(known), encoding="utf-8")
        whole.replace(cache)
