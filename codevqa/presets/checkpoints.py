"""Where the checkpoint of a part lies, and how it comes here from the hub or the web. Loads nothing itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from urllib.parse import urlsplit

from ..core.errors import ModelNotFoundError, SetupError
from ..models.lavis.process import python_of
from ..models.library_errors import first_line
from ..models.web_checkpoint import WebCheckpoint
from .back_ends import back_end_of

_SECONDS = 3.0
"""Seconds that a hub may take to answer first: nobody who is offline should wait longer."""
NOT_HERE = "not downloaded yet: needs the network once"
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
"""Weights as back ends look for them; the first kind there is is loaded."""
_SMALL = (".json", ".txt", ".model", ".jinja")
EXPECTED: Mapping[str, float] = MappingProxyType(
    {
        "blip-itm-base-coco": 0.9,
        "blip-image-captioning-base": 1.0,
        "blip-itm-large-coco": 1.8,
        "blip-image-captioning-large": 1.9,
        "all-mpnet-base-v2": 0.4,
        "siglip2-base-patch16-224": 1.5,
        "grounding-dino-tiny": 0.7,
        "SmolVLM-500M-Instruct": 1.0,
        "Qwen2.5-Coder-1.5B-Instruct": 3.1,
        "Qwen2.5-Coder-7B-Instruct": 15.2,
    }
)
"""Gigabytes of the presets' checkpoints, computed from their numbers of parameters: for who is offline."""
_VOCABULARY = ("tokenizer.json", "vocab.*", "*.model")


def resolve(name: str) -> str:
    """Returns the id a back end loads: ``@folder`` becomes the folder inside the package."""
    if name.startswith("@"):
        return str(Path(__file__).resolve().parent.parent / name[1:])
    return name


def display_name(name: str) -> str:
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
        access = os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")  # one's own server needs no key
        return "" if access else "OPENAI_API_KEY is not set"
    if runs == "own":
        return ""
    if runs == "lavis":
        return "" if python_of().is_file() else "needs LAVIS: docs/reports/lavis.md"
    if fetchable(spec):
        return "" if find_checkpoint(spec) else NOT_HERE
    place = find_checkpoint(spec)
    if place is None:
        return "no such folder"
    return "" if place.is_file() or _weight_files(place) else "folder has no weights"


def fetchable(spec: str) -> bool:
    """Says whether a part's checkpoint comes from the hub or the web."""
    name = spec.partition(":")[2]
    return back_end_of(spec).runs == "here" and (WebCheckpoint.is_address(name) or hub_id(spec) is not None)


def find_checkpoint(spec: str) -> Path | None:
    """Returns the folder or file of a part's checkpoint, None where it is not here as a whole."""
    name = spec.partition(":")[2]
    if back_end_of(spec).runs != "here":
        return None
    if WebCheckpoint.is_address(name):
        return WebCheckpoint.at(name).ready_folder
    identity = hub_id(spec)
    if identity is None:
        place = Path(resolve(name)).expanduser()
        return place if place.exists() else None
    repository, revision = identity
    paths = (find_cached(repository, mark, revision) for mark in ("config.json", "modules.json"))
    mark = next(filter(None, paths), None)
    return mark.parent if mark is not None and _is_complete(mark.parent) else None


def size(place: Path) -> int:
    """Returns the bytes that a checkpoint takes on disk."""
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files)


def expected_bytes(spec: str) -> int | None:
    """Returns about how many bytes a part's checkpoint has, without a network; None where that is not known."""
    gigabytes = EXPECTED.get(spec.partition(":")[2].partition("@")[0].rpartition("/")[2])
    return None if gigabytes is None else round(gigabytes * 1e9)


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


def find_cached(repository: str, file: str, revision: str | None) -> Path | None:
    """Returns where a file of the hub lies, None where it is not here."""
    from huggingface_hub import try_to_load_from_cache  # it brings an HTTP client

    path = try_to_load_from_cache(repository, file, revision=revision)
    return Path(path) if isinstance(path, str) else None


def _weight_files(folder: Path) -> list[Path]:
    return [folder / name for name in files_to_load(_file_names(folder)) if PurePosixPath(name).suffix not in _SMALL]


def _file_names(folder: Path) -> list[str]:
    files = [path for depth in ("*", "*/*") for path in sorted(folder.glob(depth)) if path.is_file()]
    return [path.relative_to(folder).as_posix() for path in files]


def files_to_load(names: Sequence[str]) -> list[str]:
    """Returns what loading reads of a repository's files: small ones, and of each folder one kind of weights.

    Folders are those of sentence-transformers' modules, such as ``1_Pooling``.
    """
    mine = [name for name in names if re.fullmatch(r"(\d+_\w+/)?[^/]+", name)]
    files = [name for name in mine if name.endswith(_SMALL)]
    for folder in dict.fromkeys(PurePosixPath(name).parent for name in mine):
        inside = [name for name in mine if PurePosixPath(name).parent == folder]
        kinds = ([name for name in inside if fnmatch(PurePosixPath(name).name, kind)] for kind in _WEIGHTS)
        files += next(filter(None, kinds), [])
    return files


def _is_complete(folder: Path) -> bool:
    """Whether a snapshot has a vocabulary and every part of its weights: a download may have broken off."""
    names = _file_names(folder)
    vocabulary = any(fnmatch(PurePosixPath(name).name, pattern) for name in names for pattern in _VOCABULARY)
    weights = [path.relative_to(folder).as_posix() for path in _weight_files(folder)]
    shard = next(filter(None, (re.fullmatch(r"(.+)-\d+-of-(\d+)(\.\w+)", name) for name in weights)), None)
    if shard is None:
        return vocabulary and bool(weights)
    parts = [name for name in weights if fnmatch(name, f"{shard[1]}-*-of-{shard[2]}{shard[3]}")]
    return vocabulary and len(parts) == int(shard[2]) and f"{shard[1]}{shard[3]}.index.json" in names


# -- fetching ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Download:
    """A checkpoint that is not here, and what it takes to have it."""

    name: str
    size: int | None
    """Bytes still to come; None where its server doesn't say."""
    bring: Callable[[], object]
    """Fetches it, without the files that came before, and holds it to its hashes."""


def fetch(
    specs: Iterable[str],
    tell: Callable[[str], None] = lambda lines: None,
    preset: str = "PRESET",
    *,
    only_tell: bool = False,
) -> bool:
    """Fetches what some parts lack, and says whether they lacked anything.

    Args:
        specs: ``back end:id`` of each.
        tell: told what comes, before it does.
        preset: what to download later, for who is offline.
        only_tell: whether nothing is to be fetched. Sizes are then told offline, too.

    Raises:
        ModelNotFoundError: there is no such checkpoint, or no way to it; told within seconds. What came is kept.
        SetupError: what came is not what it has to be.
    """
    lacking = {spec.partition(":")[2]: spec for spec in specs if fetchable(spec) and not find_checkpoint(spec)}
    try:
        wanted = [
            _on_web(name) if WebCheckpoint.is_address(name) else _on_hub(name, spec) for name, spec in lacking.items()
        ]
    except (ConnectionError, TimeoutError) as error:
        if not only_tell:
            raise ModelNotFoundError(
                f"Not on this machine: {', '.join(lacking)}; {error}.",
                hint=f"Connect once and run codevqa download {preset}; the preset mini needs no network.",
            ) from None
        tell(f"Sizes are computed from numbers of parameters: {error}.")
        wanted = [_Download(name, expected_bytes(spec), int) for name, spec in lacking.items()]
    if wanted:
        lines = [f"{amount(download.size):>12}  {download.name}" for download in wanted]
        tell("\n".join([f"{_total([download.size for download in wanted])} to download:", *lines]))
    for download in wanted if not only_tell else ():
        download.bring()
    return bool(wanted)


def amount(count: int | None) -> str:
    """Returns bytes as a reader takes them in."""
    if count is None:
        return "size unknown"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _total(sizes: Sequence[int | None]) -> str:
    known, unknown = sum(filter(None, sizes)), sizes.count(None)
    files = f"{unknown} {'file' if unknown == 1 else 'files'} of unknown size"
    return amount(known) if not unknown else f"at least {amount(known)} and {files}" if known else files


def _on_hub(name: str, spec: str) -> _Download:
    """Asks the hub about a checkpoint.

    Raises:
        ConnectionError: it cannot be asked.
        ModelNotFoundError: it has none of that name.
    """
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    repository, revision = hub_id(spec) or (name, None)
    api = HfApi()
    try:
        about = api.model_info(repository, revision=revision, files_metadata=True, timeout=_SECONDS)
    except HfHubHTTPError as error:
        status = f"{error.response.status_code} {error.response.reason_phrase}".strip()
        raise ModelNotFoundError(f"{api.endpoint} has no {name} to give: {status}.", hint="Check the name.") from None
    except (httpx2.HTTPError, OSError) as error:
        raise ConnectionError(f"{urlsplit(api.endpoint).netloc} cannot be reached: {first_line(error)}") from None
    sizes = {file.rfilename: file.size or 0 for file in about.siblings or ()}
    files = files_to_load(list(sizes))
    if not files:
        raise ModelNotFoundError(f"{name} on {api.endpoint} has nothing that can be loaded.", hint="Check the name.")
    whole = sum(sizes[file] for file in files if find_cached(repository, file, about.sha) is None)
    return _Download(name, whole, lambda: _bring(repository, revision, files))


def _bring(repository: str, revision: str | None, files: list[str]) -> None:
    import httpx2
    from huggingface_hub import HfApi, snapshot_download

    try:
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=files))
        mismatches = HfApi().verify_repo_checksums(repository, revision=revision).mismatches
        wrong = [mismatch["path"] for mismatch in mismatches if mismatch["path"] in files]
        for name in wrong:
            (folder / name).resolve().unlink()
            (folder / name).unlink(missing_ok=True)
    except (httpx2.HTTPError, OSError) as error:
        raise ModelNotFoundError(
            f"Cannot fetch {repository}: {first_line(error)}.", hint="Ask again: the files that came are kept."
        ) from None
    if wrong:
        raise SetupError(
            f"Of {repository} came other files than its hashes tell: {', '.join(wrong)}.",
            hint="They were not kept; fetch them again.",
        )


def _on_web(name: str) -> _Download:
    """Asks the web about a checkpoint.

    Raises:
        ConnectionError: it cannot be asked.
    """
    import httpx2
    from huggingface_hub import get_session

    checkpoint = WebCheckpoint.at(name)

    def bring() -> None:
        from ..models.blip.lavis_names import convert_web

        convert_web(checkpoint)

    if checkpoint.file.is_file():
        return _Download(name, 0, bring)
    try:
        reply = get_session().head(checkpoint.url, follow_redirects=True, timeout=_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise ConnectionError(f"{urlsplit(checkpoint.url).netloc} cannot be reached: {first_line(error)}") from None
    length = reply.headers.get("Content-Length", "") if reply.is_success else ""
    return _Download(name, int(length) if length else None, bring)
