"""A checkpoint that lies on the web as one file: fetched once, resumed where it broke off, held to its checksum.

It is kept in the cache of huggingface_hub (``HF_HOME`` moves it), in ``assets/codevqa/checkpoints``, in a folder of its
own: the file, its checksum, and the folder that was made of it. Once that is made, the file may go.
"""

from __future__ import annotations

import hashlib
import logging
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

from huggingface_hub import constants

from ..core.errors import ModelNotFoundError, SetupError
from .library_errors import first_line

__all__ = ["WebCheckpoint"]

_log = logging.getLogger(__name__)
_SECONDS = 60.0
"""How long a server may say nothing."""


@dataclass(frozen=True)
class WebCheckpoint:
    """Where a checkpoint comes from, and what is kept of it."""

    url: str
    sha256: str | None
    """What the file has to be. None trusts the copy that came first, and holds later ones to it."""
    folder: Path

    @staticmethod
    def named(name: str) -> bool:
        """Whether a checkpoint's name is an address of the web."""
        return name.startswith(("https://", "http://"))

    @classmethod
    def at(cls, address: str) -> WebCheckpoint:
        """Reads an address: ``https://host/file.pth``, and ``#sha256=HEX`` behind it where the checksum is known.

        Raises:
            SetupError: it names no file, or what is behind it is no checksum.
        """
        url, given = urldefrag(address)
        file = PurePosixPath(unquote(urlsplit(url).path)).name
        if not file:
            raise SetupError(f"{url} names no file.", hint="Give the address of a .pth file.")
        checksum = re.fullmatch(r"sha256=([0-9a-f]{64})", given.lower())
        if given and checksum is None:
            raise SetupError(f"{given!r} is no checksum.", hint="Write #sha256= and 64 hexadecimal digits.")
        # Files of one name lie at many addresses.
        key = f"{PurePosixPath(file).stem}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
        folder = Path(constants.HF_ASSETS_CACHE).expanduser() / "codevqa" / "checkpoints" / key
        return cls(url, checksum and checksum[1], folder)

    @property
    def file(self) -> Path:
        """Where the file is kept."""
        return self.folder / PurePosixPath(unquote(urlsplit(self.url).path)).name

    @property
    def known(self) -> str | None:
        """The checksum that the file is held to, None before the first copy came."""
        return self.sha256 or _noted(self._record)

    @property
    def made(self) -> Path | None:
        """The folder that was made of this very file, if it was."""
        known = self.known
        return self.model if known is not None and _noted(self._source) == known else None

    @property
    def model(self) -> Path:
        """Where the folder that is made of the file goes."""
        return self.folder / "model"

    def note_made(self) -> None:
        """Says of the folder that it was made of the file as it is."""
        self._source.write_text(self.known or "")

    @property
    def _source(self) -> Path:
        return self.model / "source.sha256"

    @property
    def _record(self) -> Path:
        return self.file.with_name(f"{self.file.name}.sha256")

    def lock(self) -> AbstractContextManager[object]:
        """Keeps other processes from fetching the same file at the same time.

        Raises:
            SetupError: the cache cannot be written.
        """
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # in its docs, not in its __all__

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unkept(error) from None
        return WeakFileLock(self.folder / ".lock")

    def fetch(self) -> Path:
        """Returns the file: the one that is here, else a new copy; either is held to the checksum.

        Raises:
            ModelNotFoundError: it cannot be had; what came is kept, and the next call goes on there.
            SetupError: it is not the file that it has to be, or there is no room for it.
        """
        import httpx2

        try:
            if self.file.is_file():
                self._check(self.file)
            else:
                part = self.file.with_name(f"{self.file.name}.part")
                self._download(part)
                self._check(part)
                part.replace(self.file)
        except httpx2.HTTPStatusError as error:
            told = f"{error.response.status_code} {error.response.reason_phrase}".strip()
            raise ModelNotFoundError(f"{self.url} cannot be had: {told}.", hint=self._by_hand) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ModelNotFoundError(
                f"Cannot fetch {self.url}: {first_line(error)}.",
                hint=f"Ask again: it goes on where it stopped. {self._by_hand}",
            ) from None
        except OSError as error:
            raise self._unkept(error) from None
        return self.file

    def _download(self, part: Path) -> None:
        """Appends to what came before, if the server still has the same version of the file."""
        import httpx2
        from huggingface_hub.utils.tqdm import tqdm

        note = part.with_name(f"{part.name}.etag")
        version = _noted(note) if part.is_file() else None
        # One byte is asked for again: servers refuse a range that begins at the end of a file.
        begun = max(part.stat().st_size - 1, 0) if version else 0
        headers = {"Accept-Encoding": "identity"}
        if version and begun:
            headers |= {"Range": f"bytes={begun}-", "If-Range": version}
        with httpx2.stream("GET", self.url, headers=headers, follow_redirects=True, timeout=_SECONDS) as reply:
            reply.raise_for_status()
            begun = begun if reply.status_code == httpx2.codes.PARTIAL_CONTENT else 0
            version = reply.headers.get("ETag", "")
            note.write_text("" if version.startswith("W/") else version)  # a weak one may name other bytes as well
            total = begun + int(reply.headers.get("Content-Length", 0)) or None
            shown: Any = tqdm(  # type: ignore[no-untyped-call]
                total=total, initial=begun, unit="B", unit_scale=True, desc=self.file.name
            )
            with part.open("r+b" if begun else "wb") as file, shown as bar:
                file.seek(begun)
                for piece in reply.iter_raw():
                    file.write(piece)
                    bar.update(len(piece))
        note.unlink()

    def _check(self, path: Path) -> None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if self.known is None:
            self._record.write_text(found)
            _log.warning(
                "Nobody published a checksum of %s: this copy is trusted, and later ones are held to it (sha256 %s).",
                self.url,
                found,
            )
        elif found != self.known:
            raised = f"{path} is not the file that it has to be: its sha256 is {found}, not {self.known}."
            hint = "Remove it, and it is fetched again."
            if path != self.file:
                path.unlink()
                hint = "It was not kept; fetch it again."
            if self.sha256 is None:
                hint += f" If it was published anew, remove {self._record} first."
            raise SetupError(raised, hint=hint)

    @property
    def _by_hand(self) -> str:
        return f"Or put the file at {self.file} yourself."

    def _unkept(self, error: OSError) -> SetupError:
        return SetupError(
            f"Cannot keep {self.url} in {self.folder}: {error.strerror or error}.",
            hint="Make room there, or set HF_HOME to a folder elsewhere; what came is kept.",
        )


def _noted(path: Path) -> str | None:
    """What a small file says, None where there is none or it says nothing."""
    return path.read_text().strip() or None if path.is_file() else None
