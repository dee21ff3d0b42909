"""A checkpoint that lies on the web as one file: fetched once, and held to its checksum.

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
from urllib.parse import unquote, urldefrag, urlsplit

from huggingface_hub import constants

from ..core.errors import ModelNotFoundError, SetupError
from .library_errors import first_line

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WebCheckpoint:
    """Where a checkpoint comes from, and what is kept of it."""

    url: str
    sha256: str | None
    """What the file has to be. None trusts the copy that came first, and holds later ones to it."""
    file: Path
    """Where the file is kept."""

    @staticmethod
    def is_address(name: str) -> bool:
        """Whether a checkpoint's name is an address of the web."""
        return name.startswith(("https://", "http://"))

    @classmethod
    def at(cls, address: str) -> WebCheckpoint:
        """Reads an address: ``https://host/file.pth``, and ``#sha256=HEX`` behind it where the checksum is known.

        Raises:
            SetupError: it names no file, or what is behind it is no checksum.
        """
        url, fragment = urldefrag(address)
        file = PurePosixPath(unquote(urlsplit(url).path))
        if not file.name:
            raise SetupError(f"{url} names no file.", hint="Give the address of a .pth file.")
        checksum = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment.lower())
        if fragment and checksum is None:
            raise SetupError(f"{fragment!r} is no checksum.", hint="Write #sha256= and 64 hexadecimal digits.")
        # Files of one name lie at many addresses.
        key = f"{file.stem}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
        folder = Path(constants.HF_ASSETS_CACHE).expanduser() / "codevqa" / "checkpoints" / key
        return cls(url, checksum and checksum[1], folder / file.name)

    @property
    def model(self) -> Path:
        """Where the folder that is made of the file goes."""
        return self.file.parent / "model"

    @property
    def ready_folder(self) -> Path | None:
        """The folder that was made of this very file, if it was."""
        return (
            self.model
            if self._expected_sum and _read_note(self.model / "source.sha256") == self._expected_sum
            else None
        )

    def note_made(self) -> None:
        """Says of the folder that it was made of the file as it is."""
        (self.model / "source.sha256").write_text(self._expected_sum)

    @property
    def _record(self) -> Path:
        return self.file.with_name(f"{self.file.name}.sha256")

    @property
    def _expected_sum(self) -> str:
        """The checksum that the file is held to, empty before the first copy came."""
        return self.sha256 or _read_note(self._record)

    def lock(self) -> AbstractContextManager[object]:
        """Keeps other processes from fetching the same file at the same time.

        Raises:
            SetupError: the cache cannot be written.
        """
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # in its docs, not in its __all__

        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._storage_error(error) from None
        return WeakFileLock(self.file.parent / ".lock")

    def fetch(self) -> Path:
        """Returns the file: the one that is here, else a new copy; either is held to the checksum.

        Raises:
            ModelNotFoundError: it cannot be had.
            SetupError: it is not the file that it has to be, or there is no room for it.
        """
        import httpx2
        from huggingface_hub.errors import HfHubHTTPError

        # It goes on after a broken connection and refuses a file that is too short; torch.hub's does neither.
        from huggingface_hub.file_download import http_get

        part = self.file.with_name(f"{self.file.name}.part")
        by_hand = f"Or put the file at {self.file} yourself."
        try:
            if self.file.is_file():
                self._check(self.file)
                return self.file
            with part.open("wb") as opened:
                http_get(self.url, opened, displayed_filename=self.file.name)
            self._check(part)
            part.replace(self.file)
        except HfHubHTTPError as error:
            status = f"{error.response.status_code} {error.response.reason_phrase}".strip()
            raise ModelNotFoundError(f"{self.url} cannot be had: {status}.", hint=by_hand) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise self._storage_error(error) from None
            raise ModelNotFoundError(
                f"Cannot fetch {self.url}: {first_line(error)}.", hint=f"Ask again. {by_hand}"
            ) from None
        finally:
            part.unlink(missing_ok=True)
        return self.file

    def _check(self, path: Path) -> None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if not self._expected_sum:
            self._record.write_text(digest)
            _log.warning(
                "Nobody published a checksum of %s: this copy is trusted, and later ones are held to it (sha256 %s).",
                self.url,
                digest,
            )
        elif digest != self._expected_sum:
            hint = "Remove it, and it is fetched again." if path == self.file else "It was not kept; fetch it again."
            if self.sha256 is None:
                hint += f" If it was published anew, remove {self._record} first."
            raise SetupError(
                f"{path} is not the file that it has to be: its sha256 is {digest}, not {self._expected_sum}.",
                hint=hint,
            )

    def _storage_error(self, error: OSError) -> SetupError:
        return SetupError(
            f"Cannot keep {self.url} in {self.file.parent}: {error.strerror or error}.",
            hint="Make room there, or set HF_HOME to a folder elsewhere.",
        )


def _read_note(path: Path) -> str:
    """What a small file says, nothing where there is none."""
    return path.read_text().strip() if path.is_file() else ""
