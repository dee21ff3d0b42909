"""Stands before Gradio: lets through what the page and its clients need, and nothing else.

Gradio serves more than this page asks for. It fetches addresses that a request names, keeps a history, forwards to
other machines. Here each path is allowed by name; requests are bounded; one that names a file by an address is refused;
and the browser is told to fetch nothing from anywhere else.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..core.errors import InputError
from ..core.input_files import parse_json
from .limits import DemoLimits

GET = re.compile(
    r"/|/config|/theme\.css|/favicon\.ico|/manifest\.json|/robots\.txt|/(assets|static|svelte)/[^\\]*"
    r"|/login/?|/logout|/gradio_api/(info|app_id|startup-events|theme\.css|user|login_check|queue/status|queue/data|upload_progress"
    r"|heartbeat/\w+|call/\w+/\w+|file=.*)/?"
)
"""What may be read."""
POST = re.compile(r"/login/?|/gradio_api/(queue/join|run/predict|cancel|reset|upload|call/\w+)/?")
"""What may be sent. Gradio itself refuses ``run/predict`` for all that has to wait in the queue."""
ADDRESS = re.compile(r"\s*[a-z][a-z0-9+.-]+:/|\s*(//|\\)", re.IGNORECASE)
"""What is an address rather than a path of this machine."""

LOGIN = 1.0
"""Seconds that each try of a password takes. They are tried one after another, so that guessing is slow."""
LONGEST = 255
"""Bytes of a file's name."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Why a file cannot grow."""
NO_ROOM = "There is no room for pictures left: try again later."
TOO_LARGE = "The request is too large."

PASSED = frozenset(
    b"accept accept-encoding accept-language authorization content-length content-type cookie host if-modified-since"
    b" if-none-match if-range range transfer-encoding user-agent x-gradio-user".split()
)
"""Headers that reach Gradio. From others it makes addresses of this server, and rules for pages of other origins."""

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:;"
    " worker-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
}


class Gate:
    """ASGI middleware.

    Args:
        app: what it stands before.
        limits: how large requests may be.
        files: the folder of uploads.
        hosts: names by which the server may be addressed. A page of somebody else's that makes its own name mean
            this machine is kept out by it.
        numbers: whether any network address will do as well: a name that changes its meaning is none.
        proxies: which of the names a proxy serves: there it says whether visitors come by TLS.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: DemoLimits,
        files: Path,
        hosts: frozenset[str],
        *,
        numbers: bool = False,
        proxies: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._limits = limits
        self._files = files
        self._hosts = hosts
        self._numbers = numbers
        self._proxies = proxies
        self._coming = 0
        """Bytes of the uploads under way."""
        self._passwords = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            send = _with_headers(send)
            try:
                await self._pass(scope, receive, send)
            except ClientDisconnect:
                pass
            except HTTPException as refused:
                # Closed, since a client may go on to send what nobody reads.
                why = JSONResponse({"detail": refused.detail}, refused.status_code, {"connection": "close"})
                await why(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = self._checked_head(scope)
        path = scope["path"].rstrip("/")
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif path.endswith("/upload"):
            async with self._room(Headers(scope=scope)):
                await self._app(scope, receive, send)
        elif path == "/login":
            body = await self._body(scope, receive)
            async with self._passwords:
                await asyncio.sleep(LOGIN)
                await self._app(scope, _replay(body, receive), send)
        else:
            body = await self._body(scope, receive)
            self._check_files(body)
            await self._app(scope, _replay(body, receive), send)

    def _checked_head(self, scope: Scope) -> Scope:
        """Returns what Gradio reads of a request, besides its body."""
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        host = re.sub(r":\d+$", "", headers.get("host", "").lower())
        if host not in self._hosts and not (self._numbers and _is_number(host)):
            raise HTTPException(403, "This server is not known by that name.")
        origin = headers.get("origin")  # no browser leaves it out where a page of another site asks
        if origin and origin.partition("//")[2].lower() != headers.get("host", "").lower():
            raise HTTPException(403, "Another page may not ask here.")
        allowed = {"GET": GET, "HEAD": GET, "POST": POST}.get(method)
        if allowed is None or not allowed.fullmatch(path):
            raise HTTPException(404, "There is nothing here.")
        if ADDRESS.match(path.partition("/gradio_api/file=")[2]):
            raise HTTPException(403, "Only files of this server are served.")
        secure = host in self._proxies and headers.get("x-forwarded-proto") == "https"
        # With a page named, Gradio does not keep for everybody the address by which the first visitor asked.
        named = {"query_string": b"page="} if path.rstrip("/").endswith("/info") else {}
        kept = [header for header in scope["headers"] if header[0] in PASSED]
        return {**scope, **named, "headers": kept, "scheme": "https" if secure else "http"}

    @asynccontextmanager
    async def _room(self, headers: Headers) -> AsyncIterator[None]:
        """Refuses an upload that is too large, or that the disk has no room for."""
        length = headers.get("content-length", "")
        if not length.isdecimal() or "transfer-encoding" in headers:
            raise HTTPException(411, "An upload says how long it is.")
        if int(length) > self._limits.upload_request_bytes:
            raise HTTPException(413, TOO_LARGE)
        self._coming += int(length)
        try:
            # A walk through the folder takes as long as the disk likes.
            if await asyncio.to_thread(_folder_size, self._files) + self._coming > self._limits.stored_bytes:
                raise HTTPException(503, NO_ROOM)
            yield
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise HTTPException(507, NO_ROOM) from None
        finally:
            self._coming -= int(length)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        body = b""
        async for chunk in Request(scope, receive).stream():
            body += chunk
            if len(body) > self._limits.request_bytes:
                raise HTTPException(413, TOO_LARGE)
        return body

    def _check_files(self, body: bytes) -> None:
        """Refuses a request that cannot be read, or that names a file that was not uploaded."""
        try:
            request_data = parse_json(body.decode(), "the request") if body else {}
        except (InputError, UnicodeDecodeError):
            raise HTTPException(400, "The request is not JSON that can be read.") from None
        if not isinstance(request_data, dict) or request_data.get("data", ()) is None:
            raise HTTPException(400, "The request is not one of the page or its clients.")
        if not all(self._is_upload(path) for path in _uploaded_paths(request_data)):
            raise HTTPException(400, "Pictures are uploaded, not named by an address or a path.")

    def _is_upload(self, path: str) -> bool:
        """Whether a path names a file among the uploads, as far as its text tells; it may be gone."""
        if ADDRESS.match(path) or any(len(part) > LONGEST for part in os.fsencode(path).split(b"/")):
            return False
        place = Path(os.path.normpath(path))
        # Each lies in a folder of its own: one that names a folder would have Gradio delete it at the end.
        return place.is_relative_to(self._files) and len(place.relative_to(self._files).parts) > 1


def _uploaded_paths(data: Any) -> Iterator[str]:
    """Yields each text under a key that Gradio takes for a file's place."""
    waiting = [data]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get("path"), str):
                yield part["path"]
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _is_number(host: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host.strip("[]")))
    return False


def _folder_size(folder: Path) -> int:
    """Returns how many bytes lie in a folder; files may be deleted meanwhile."""
    total = 0
    for place in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += place.stat().st_size if place.is_file() else 0
    return total


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message.setdefault("headers", [])
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def _replay(body: bytes, receive: Receive) -> Receive:
    """Returns what the app receives: the body that is here already, then what comes after it."""
    first = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Message:
        return next(first, None) or await receive()

    return replay
