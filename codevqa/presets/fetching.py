"""How checkpoints come here from the hub and the web: sizes first, then whole and held to their hashes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..core.errors import ModelNotFoundError, SetupError
from ..models.library_errors import first_line
from ..models.web_checkpoint import WebCheckpoint
from .checkpoints import NOT_HERE, cached, damage, fetchable, hub_id, loaded, missing

_SECONDS = 3.0
"""Seconds that a hub may take to answer first: nobody who is offline should wait longer."""


@dataclass(frozen=True)
class Download:
    """A checkpoint that is not here, and what it takes to have it."""

    name: str
    size: int | None
    """Bytes still to come; None where its server doesn't say."""
    bring: Callable[[], object]
    """Fetches it, without the files that came before, and holds it to its hashes."""


def plan(specs: Iterable[str], preset: str = "PRESET") -> list[Download]:
    """Returns what has to be fetched for some parts, asking once for each how large it is; nothing is fetched.

    Args:
        specs: ``back end:id`` of each.
        preset: what to download later, for who is offline.

    Raises:
        ModelNotFoundError: there is no such checkpoint, or no way to it; told within seconds.
    """
    lacking = {spec.partition(":")[2]: spec for spec in specs if fetchable(spec) and missing(spec) == NOT_HERE}
    try:
        return [_on_web(name) if WebCheckpoint.named(name) else _on_hub(name, spec) for name, spec in lacking.items()]
    except (ConnectionError, TimeoutError) as error:
        raise ModelNotFoundError(
            f"Not on this machine: {', '.join(lacking)}; {error}.",
            hint=f"Connect once and run codevqa download {preset}; the preset mini needs no network.",
        ) from None


def fetch(specs: Iterable[str], tell: Callable[[str], None] = lambda line: None, preset: str = "PRESET") -> None:
    """Fetches what some parts lack, if anything.

    Args:
        specs: ``back end:id`` of each.
        tell: told what comes, before it does.
        preset: what to download later, for who is offline.

    Raises:
        ModelNotFoundError: there is no such checkpoint, or no way to it, or one that is here is not whole.
        SetupError: there is no room, or what came is not what it has to be.
    """
    specs = list(specs)
    for told in filter(None, map(damage, specs)):
        raise ModelNotFoundError(f"{told}.")
    wanted = plan(specs, preset)
    if wanted:
        whole = amount(sum(one.size or 0 for one in wanted))
        tell(f"fetching {', '.join(one.name for one in wanted)}: {whole}, {amount(room())} free")
        bring(wanted)


def bring(wanted: Sequence[Download]) -> None:
    """Fetches what was planned, where there is room for all of it.

    Raises:
        ModelNotFoundError: something cannot be had any more; what came is kept.
        SetupError: there is no room, or what came is not what it has to be.
    """
    whole, free = sum(one.size or 0 for one in wanted), room()
    if whole > free:
        raise SetupError(
            f"{amount(whole)} are to come, and the disk has {amount(free)} left.",
            hint="Make room, or set HF_HOME to a folder elsewhere.",
        )
    for one in wanted:
        one.bring()


def amount(count: int | None) -> str:
    """Returns bytes as a reader takes them in."""
    if count is None:
        return "size unknown"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def room() -> int:
    """Returns the bytes that are free where checkpoints are kept."""
    from huggingface_hub import constants

    place = Path(constants.HF_HUB_CACHE).expanduser().absolute()
    return shutil.disk_usage(next(one for one in (place, *place.parents) if one.exists())).free


def _on_hub(name: str, spec: str) -> Download:
    """Asks the hub about a checkpoint.

    Raises:
        ConnectionError: it cannot be asked.
        ModelNotFoundError: it has none of that name.
    """
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    repository, revision = hub_id(spec) or (name, None)
    _allowed()
    api = HfApi()
    try:
        about = api.model_info(repository, revision=revision, files_metadata=True, timeout=_SECONDS)
    except HfHubHTTPError as error:
        told = f"{error.response.status_code} {error.response.reason_phrase}".strip()
        raise ModelNotFoundError(f"{api.endpoint} has no {name} to give: {told}.", hint="Check the name.") from None
    except (httpx2.HTTPError, OSError) as error:
        raise ConnectionError(f"{urlsplit(api.endpoint).netloc} cannot be reached: {first_line(error)}") from None
    sizes = {one.rfilename: one.size or 0 for one in about.siblings or ()}
    files = loaded(list(sizes))
    if not files:
        raise ModelNotFoundError(f"{name} on {api.endpoint} has nothing that can be loaded.", hint="Check the name.")
    whole = sum(sizes[one] for one in files if cached(repository, one, about.sha) is None)
    return Download(name, whole, lambda: _bring(repository, revision, files))


def _bring(repository: str, revision: str | None, files: list[str]) -> None:
    import httpx2
    from huggingface_hub import HfApi, snapshot_download

    try:
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=files))
        found = HfApi().verify_repo_checksums(repository, revision=revision).mismatches
        wrong = [one["path"] for one in found if one["path"] in files]
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


def _on_web(name: str) -> Download:
    """Asks the web about a checkpoint.

    Raises:
        ConnectionError: it cannot be asked.
    """
    import httpx2

    checkpoint = WebCheckpoint.at(name)

    def bring() -> None:
        from ..models.blip.lavis_names import convert_web

        convert_web(checkpoint)

    if checkpoint.file.is_file():
        return Download(name, 0, bring)
    _allowed()
    try:
        reply = httpx2.head(checkpoint.url, follow_redirects=True, timeout=_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ConnectionError(f"{urlsplit(checkpoint.url).netloc} cannot be reached: {first_line(error)}") from None
    length = reply.headers.get("Content-Length", "") if reply.is_success else ""
    return Download(name, int(length) if length else None, bring)


def _allowed() -> None:
    from huggingface_hub import is_offline_mode

    if is_offline_mode():
        raise ConnectionError("HF_HUB_OFFLINE keeps it from being fetched")
