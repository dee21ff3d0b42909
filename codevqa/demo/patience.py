"""Connections that say nothing are closed: uvicorn has a time for what follows an answer, not for a first request."""

from __future__ import annotations

from typing import Any

__all__ = ["set_patience"]


def set_patience(server: Any, seconds: float) -> None:
    """Gives each connection of a uvicorn server so many seconds for the head of a request.

    Args:
        server: a ``uvicorn.Server`` that runs; it asks for the class of each new connection.
        seconds: from the connection, or the first byte after an answer, to the end of the head.
    """
    server.config.http_protocol_class = _patient(server.config.http_protocol_class, seconds)


def _patient(protocol: Any, seconds: float) -> Any:
    class Patient(protocol):  # type: ignore[misc]
        due: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect()

        def data_received(self, data: bytes) -> None:
            if self.due is None and (self.cycle is None or self.cycle.response_complete):
                self._expect()
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.due is not None:
                self.due.cancel()
            super().connection_lost(exc)

        def _expect(self) -> None:
            self.due = self.loop.call_later(seconds, self._cut, self.cycle)

        def _cut(self, before: Any) -> None:
            self.due = None
            if self.cycle is before:  # no request has begun since
                self.transport.close()

    return Patient
