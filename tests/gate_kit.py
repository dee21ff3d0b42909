"""Sends a request through the demo's gate, to an app behind it that notes what it received."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from codevqa.demo.gate import Gate
from codevqa.demo.limits import DemoLimits


def through(
    gate_files: Path,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    *,
    hosts: frozenset[str] = frozenset({"127.0.0.1"}),
    numbers: bool = False,
    slow: float = 0.0,
    **limits: Any,
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Returns status and headers of a request through the gate, and the body that the app behind it received."""
    received: list[bytes] = []
    sent: list[Any] = []
    chunks = [body[i : i + 1000] for i in range(0, len(body), 1000)] or [b""]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            received.append(message.get("body", b""))
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def receive() -> Any:
        await asyncio.sleep(slow)
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def send(message: Any) -> None:
        sent.append(message)

    told = {"host": "127.0.0.1:7860"} | (headers or {})
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in told.items()],
    }

    async def main() -> None:
        await Gate(app, DemoLimits(**limits), gate_files, hosts, numbers=numbers)(scope, receive, send)

    asyncio.run(main())
    if not sent:
        return 0, {}, b""
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(received)
