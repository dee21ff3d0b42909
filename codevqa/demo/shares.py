"""Answers that visitors made a link to: pages that anybody who has the link may read, for a while."""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import InputError
from .limits import DemoLimits

__all__ = ["HEADERS", "Shares"]

_PATH = re.compile(r"/shared/([\w-]{43})", re.ASCII)
HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        b"default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
        b" frame-ancestors 'none'",
    ),
    (b"x-robots-tag", b"noindex"),
    (b"cache-control", b"no-store"),
)
"""A page of ours holds no script; were one smuggled in, the browser would not run it."""


@dataclass(frozen=True)
class _Share:
    path: Path
    address: str
    until: float


class Shares:
    """Pages by an id that nobody guesses. The server's gate reads what its page writes here.

    Args:
        files: the folder of uploads, among which pages count.
        limits: how many, and for how long.
        clock: seconds, ever rising.
    """

    def __init__(self, files: Path, limits: DemoLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._limits, self._clock = files / "shared", limits, clock
        self._all: dict[str, _Share] = {}

    async def add(self, page: Path, address: str) -> str:
        """Copies a page and returns its path on this server.

        Raises:
            InputError: there are too many already, of everybody or of one network address; or the page is gone.
        """
        self._drop_old()
        used = Counter(one.address for one in self._all.values())
        if len(self._all) >= self._limits.shared or used[address] >= self._limits.shared_address:
            raise InputError("There are too many links already.", hint="Make one later, or download the page.")
        id = secrets.token_urlsafe(32)
        path = self._folder / f"{id}.html"
        self._all[id] = _Share(path, address, self._clock() + self._limits.shared_seconds)
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            await asyncio.to_thread(shutil.copyfile, page, path)
        except OSError:
            del self._all[id]
            raise InputError("No link could be made.", hint="Ask again, or download the page.") from None
        return f"/shared/{id}"

    async def read(self, path: str) -> bytes | None:
        """Returns the page at a path; None where there is none, or none any more."""
        self._drop_old()
        named = _PATH.fullmatch(path)
        share = self._all.get(named[1]) if named else None
        try:
            return None if share is None else await asyncio.to_thread(share.path.read_bytes)
        except FileNotFoundError:  # deleted to make room for uploads
            return None

    def _drop_old(self) -> None:
        for id in [id for id, one in self._all.items() if one.until < self._clock()]:
            self._all.pop(id).path.unlink(missing_ok=True)
