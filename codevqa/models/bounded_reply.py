"""Bounds on what a server answers: a read that succeeds is enough for an HTTP client, however little it brought."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import httpx2

__all__ = ["bounded"]

_MOST = 16 << 20
"""Bytes of one answer."""
_WHOLE_STREAM = 10
"""How many times as long as one piece a streamed answer may take in all."""


def bounded(seconds: float) -> Callable[[httpx2.Response], None]:
    """Returns a hook that bounds each answer, in time and in bytes.

    A server that keeps a connection warm with blanks or comments does not answer by that, and one that never stops
    writing must end too.

    Args:
        seconds: for an answer, or for each piece of a streamed one.
    """

    def bound(response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _Bounded(response.stream, response, seconds)

    return bound


class _Bounded(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, response: httpx2.Response, seconds: float) -> None:
        self._stream, self._seconds = stream, seconds
        self._request = response.request
        self._streamed = response.headers.get("content-type", "").startswith("text/event-stream")

    def __iter__(self) -> Iterator[bytes]:
        began = piece = time.monotonic()
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            now = time.monotonic()
            whole = self._seconds * (_WHOLE_STREAM if self._streamed else 1)
            if now - piece > self._seconds or now - began > whole:
                raise httpx2.ReadTimeout("the answer took too long", request=self._request)
            if size > _MOST:
                raise httpx2.RemoteProtocolError(f"the answer is over {_MOST >> 20} MB", request=self._request)
            if not self._streamed or b"data:" in chunk:  # the rest are comments
                piece = now
            yield chunk

    def close(self) -> None:
        self._stream.close()
