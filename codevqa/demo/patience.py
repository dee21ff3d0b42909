"""Connections whose client says nothing, takes nothing or is gone are closed: uvicorn waits for most of these."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

__all__ = ["set_patience"]


def set_patience(server: Any, head: float, piece: float) -> None:
    """Bounds how long each connection of a uvicorn server waits for its client.

    Args:
        server: a ``uvicorn.Server`` that runs; it asks for the class of each new connection.
        head: seconds from the connection, or the first byte after an answer, to the end of a request's head.
        piece: seconds in which the client takes what was written of an answer. Where the system can tell (Linux), a
            machine that acknowledges nothing for so long is taken for gone.
    """
    protocol = server.config.http_protocol_class
    server.config.http_protocol_class = type("Patient", (_Patient, protocol), {"head": head, "piece": piece})


class _Patient(asyncio.Protocol):
    """Stands before a protocol of uvicorn's."""

    head: float
    piece: float
    loop: asyncio.AbstractEventLoop
    transport: Any
    cycle: Any
    due: asyncio.TimerHandle | None = None
    stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # It stalls from the first byte that is not taken: what lies in a buffer would keep even a close waiting.
        transport.set_write_buffer_limits(0)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            wire = transport.get_extra_info("socket")
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self.piece * 1000))
        self._expect()

    def data_received(self, data: bytes) -> None:
        if self.due is None and (self.cycle is None or self.cycle.response_complete):
            self._expect()
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stalled = self.loop.call_later(self.piece, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.due is not None:
            self.due.cancel()
        self._taken()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self.due = self.loop.call_later(self.head, self._cut, self.cycle)

    def _cut(self, before: Any) -> None:
        self.due = None
        if self.cycle is before:  # no request has begun since
            self.transport.close()

    def _taken(self) -> None:
        if self.stalled is not None:
            self.stalled.cancel()
            self.stalled = None
