"""What visitors upload: how much one network address may, and which pictures go first where room is short."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from .limits import DemoLimits

__all__ = ["Uploads"]

FRESH = 60.0
"""Seconds for which a file stays whatever comes: a question about it may be on its way."""


class Uploads:
    """The folder of uploads.

    Args:
        folder: where they lie.
        limits: how much of it all may use, and one address.
        clock: seconds.
    """

    def __init__(self, folder: Path, limits: DemoLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._limits, self._clock = folder, limits, clock
        self._sent: dict[str, deque[tuple[float, int]]] = {}
        """When each address sent how many bytes, as long as they are kept."""
        self._coming = 0
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def room(self, address: str, count: int) -> AsyncIterator[str]:
        """Makes room for so many bytes while the block receives them; gives why they are refused, else nothing."""
        refused = self._over(address, count)
        if not refused:
            async with self._lock:
                # A walk through the folder takes as long as the disk likes.
                if await asyncio.to_thread(self._make_room, self._coming + count):
                    self._coming += count
                    self._sent.setdefault(address, deque()).append((self._clock(), count))
                else:
                    refused = "503 too much is being uploaded: try again later"
        try:
            yield refused
        finally:
            if not refused:
                self._coming -= count

    def _over(self, address: str, count: int) -> str:
        before = self._clock() - self._limits.keep_seconds
        for name, sent in list(self._sent.items()):
            while sent and sent[0][0] < before:
                sent.popleft()
            if not sent:
                del self._sent[name]
        used = sum(size for _, size in self._sent.get(address, ()))
        if used + count > self._limits.stored_bytes_address:
            return "429 too much has been uploaded from your network address: try again later"
        return ""

    def _make_room(self, count: int) -> bool:
        """Deletes the oldest files until so many bytes fit; returns whether they do."""
        found = sorted(_files(self._folder))
        total = sum(size for _, size, _ in found)
        for written, size, path in found:
            if total + count <= self._limits.stored_bytes:
                break
            if time.time() - written > FRESH:
                path.unlink(missing_ok=True)
                total -= size
        return total + count <= self._limits.stored_bytes


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """Returns time, size and path of each file in a folder."""
    found = []
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
        except FileNotFoundError:  # deleted meanwhile, as old uploads are
            continue
    return found
