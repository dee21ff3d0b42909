"""What visitors upload: which pictures go first where room is short."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
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
        limits: how much of it all may use.
    """

    def __init__(self, folder: Path, limits: DemoLimits) -> None:
        self._folder, self._limits = folder, limits
        self._coming = 0
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def room(self, count: int) -> AsyncIterator[bool]:
        """Makes room for so many bytes while the block receives them; says whether there is any."""
        async with self._lock:
            # A walk through the folder takes as long as the disk likes.
            granted = await asyncio.to_thread(self._make_room, self._coming + count)
            if granted:
                self._coming += count
        try:
            yield granted
        finally:
            if granted:
                self._coming -= count

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
