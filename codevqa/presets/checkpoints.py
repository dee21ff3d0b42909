"""Where the checkpoint of a part lies, what it takes there, and what of it is loaded. Loads nothing itself."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from ..models.lavis.process import python_of
from ..models.web_checkpoint import WebCheckpoint
from .back_ends import back_end_of

NOT_HERE = "not downloaded yet: needs the network once"
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
"""Weights as back ends look for them; the first kind there is is loaded."""
_SMALL = (".json", ".txt", ".model", ".jinja")
_VOCABULARY = ("tokenizer.json", "vocab.*", "*.model")


def resolve(name: str) -> str:
    """Returns the id a back end loads: ``@folder`` becomes the folder inside the package."""
    if name.startswith("@"):
        return str(Path(__file__).resolve().parent.parent / name[1:])
    return name


def shown(name: str) -> str:
    """Returns what a checkpoint is called in answers: as presets write it, and never a path of this machine."""
    return Path(name).expanduser().resolve().name if Path(name).expanduser().exists() else name


def missing(spec: str | None) -> str:
    """Says what a part lacks on this machine, without loading or fetching it; empty when nothing.

    None is a part that a preset leaves to be chosen.
    """
    if spec is None:
        return "yours to choose: --language-model"
    runs = back_end_of(spec).runs
    if runs == "server":
        told = os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")  # one's own server needs no key
        return "" if told else "OPENAI_API_KEY is not set"
    if runs == "lavis":
        return "" if python_of().is_file() else "needs LAVIS: docs/reports/lavis.md"
    if fetchable(spec):
        return damage(spec) if lies(spec) else NOT_HERE
    place = lies(spec)
    if place is None:
        return "no such folder"
    return damage(spec) if place.is_file() or _weights(place) else "folder has no weights"


def damage(spec: str) -> str:
    """Names a file of a part's checkpoint that is not whole, and says what to do; empty where all are, or none is here.

    Only the sizes of files, and their first and last bytes, are looked at.
    """
    place = lies(spec)
    if place is None:
        return ""
    files = [place] if place.is_file() else [place / name for name in loaded(_names(place))]
    flaws = (f"{file} {flaw}" for file in files if (flaw := _flaw(file)))
    absent = [] if place.is_file() else _absent(place)
    return next(flaws, f"{place} lacks {absent[0]}. Download or copy it again" if absent else "")


def fetchable(spec: str) -> bool:
    """Says whether a part's checkpoint comes from the hub or the web."""
    name = spec.partition(":")[2]
    return back_end_of(spec).runs == "here" and (WebCheckpoint.named(name) or hub_id(spec) is not None)


def lies(spec: str) -> Path | None:
    """Returns the folder or file of a part's checkpoint, None where it is not here as a whole."""
    name = spec.partition(":")[2]
    if back_end_of(spec).runs != "here":
        return None
    if WebCheckpoint.named(name):
        return WebCheckpoint.at(name).made
    identity = hub_id(spec)
    if identity is None:
        place = Path(resolve(name)).expanduser()
        return place if place.exists() else None
    repository, revision = identity
    found = (cached(repository, mark, revision) for mark in ("config.json", "modules.json"))
    mark = next(filter(None, found), None)
    return mark.parent if mark is not None and _whole(mark.parent) else None


def size(place: Path) -> int:
    """Returns the bytes that a checkpoint takes on disk."""
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files)


def hub_id(spec: str) -> tuple[str, str | None] | None:
    """Returns repository and revision of what the hub has; None for a folder or a file."""
    name = spec.partition(":")[2]
    if name.startswith(("@", ".", "/", "~")) or Path(name).exists():
        return None
    named = re.fullmatch(r"(\w[\w.-]*(?:/[\w.-]+)?)(?:@(\S+))?", name)
    if named is None:
        return None
    owner = back_end_of(spec).owner
    return (named[1] if "/" in named[1] or not owner else f"{owner}/{named[1]}"), named[2]


def cached(repository: str, file: str, revision: str | None) -> Path | None:
    """Returns where a file of the hub lies, None where it is not here."""
    from huggingface_hub import try_to_load_from_cache  # it brings an HTTP client

    found = try_to_load_from_cache(repository, file, revision=revision)
    return Path(found) if isinstance(found, str) else None


def _weights(folder: Path) -> list[Path]:
    return [folder / name for name in loaded(_names(folder)) if PurePosixPath(name).suffix not in _SMALL]


def _names(folder: Path) -> list[str]:
    files = [path for depth in ("*", "*/*") for path in sorted(folder.glob(depth)) if path.is_file()]
    return [path.relative_to(folder).as_posix() for path in files]


def loaded(names: Sequence[str]) -> list[str]:
    """Returns what loading reads of a repository's files: small ones, and of each folder one kind of weights.

    Folders are those of sentence-transformers' modules, such as ``1_Pooling``.
    """
    mine = [name for name in names if re.fullmatch(r"(\d+_\w+/)?[^/]+", name)]
    found = [name for name in mine if name.endswith(_SMALL)]
    for folder in dict.fromkeys(PurePosixPath(name).parent for name in mine):
        inside = [name for name in mine if PurePosixPath(name).parent == folder]
        kinds = ([name for name in inside if fnmatch(PurePosixPath(name).name, kind)] for kind in _WEIGHTS)
        found += next(filter(None, kinds), [])
    return found


def _whole(folder: Path) -> bool:
    """Whether a snapshot has weights, every part of them, and a vocabulary: a download may have broken off."""
    vocabulary = any(fnmatch(PurePosixPath(name).name, one) for name in _names(folder) for one in _VOCABULARY)
    return vocabulary and bool(_weights(folder)) and not _absent(folder)


def _absent(folder: Path) -> list[str]:
    """Returns which parts of the weights that are loaded a folder lacks, or that their index is what it lacks."""
    weights = [path.name for path in _weights(folder) if path.parent == folder]
    if not any("-of-" in name for name in weights):
        return []
    index = f"{'model.safetensors' if weights[0].endswith('.safetensors') else 'pytorch_model.bin'}.index.json"
    try:
        shards = json.loads((folder / index).read_bytes())["weight_map"].values()
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return [index]
    return sorted({str(shard) for shard in shards}.difference(weights))


def _flaw(file: Path) -> str:
    """Says why a file cannot be whole."""
    from safetensors import SafetensorError, safe_open

    with file.open("rb") as opened:
        if opened.read(64).startswith(b"version https://git-lfs"):
            return "is a pointer of Git LFS and not the file itself. Run git lfs pull in its folder"
        opened.seek(max(0, file.stat().st_size - 64))
        whole = opened.read().rstrip().endswith((b"}", b"]")) if file.suffix == ".json" else file.stat().st_size > 0
    if file.suffix == ".safetensors":
        try:
            with safe_open(file, "numpy"):
                pass
        except SafetensorError:
            whole = False
    return "" if whole else "is cut off or damaged. Delete it, and download or copy it again"
