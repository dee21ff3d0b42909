"""Which weights answered: the SHA-256 of every weight file of a part."""

from __future__ import annotations

import hashlib
import re
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

    A second or two for each gigabyte; nothing for the hub's cache, which names its files by their hash.

    Args:
        spec: ``back end:id``. A server's model has no files here.

    Raises:
        SetupError: a file cannot be read.
    """
    place = _place(spec)
    if place is None:
        return {}
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.suffix in _ENDINGS)
    base = place.parent if place.is_file() else place
    return {path.relative_to(base).as_posix(): _hash(path) for path in files if path.is_file()}


def _hash(path: Path) -> str:
    blob = path.resolve()
    if blob.parent.name == "blobs" and re.fullmatch("[0-9a-f]{64}", blob.name):
        return blob.name
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SetupError(f"Cannot read the weights {path}: {error.strerror}.", hint="Check the file.") from None


def _place(spec: str) -> Path | None:
    """Returns the file of a part's weights or their folder, which may be in the hub's cache; None for a server's."""
    back_end, _, name = spec.partition(":")
    if back_end.startswith("openai"):
        return None
    if WebCheckpoint.named(name):
        return WebCheckpoint.at(name).made
    place = Path(resolve(name)).expanduser()
    if place.exists():
        return place
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    repository, _, revision = name.partition("@")
    with suppress(HFValidationError):
        for mark in _MARKS:
            found = try_to_load_from_cache(repository, mark, revision=revision or None)
            if isinstance(found, str):
                return Path(found).parent
    return None
