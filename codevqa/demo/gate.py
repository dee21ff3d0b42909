"""Stands before Gradio: lets through what the page and its clients need, and nothing else.

Gradio serves more than this page asks for. It fetches addresses that a request names, keeps a history, forwards to
other machines. Here each path is allowed by name; requests are bounded; one that names a file by an address is refused;
and the browser is told to fetch nothing from anywhere else.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..core.errors import InputError
from ..core.given_files import parse_json
from .limits import DemoLimits
from .uploads import Uploads

__all__ = ["Gate"]

_access = logging.getLogger("codevqa.demo.access")

GET = re.compile(
    r"/|/config|/theme\.css|/favicon\.ico|/manifest\.json|/robots\.txt|/(assets|static|svelte)/[^\\]*"
    r"|/login/?|/logout|/gradio_api/(info|app_id|startup-events|theme\.css|user|login_check|queue/status|queue/data|upload_progress"
    r"|heartbeat/\w+|call/(v2/)?\w+/\w+|file=.*)/?"
)
"""What may be read."""
POST = re.compile(r"/login/?|/gradio_api/(queue/join|cancel|reset|upload|call/(v2/)?\w+)/?")
"""What may be sent."""
ADDRESS = re.compile(r"\s*[a-z][a-z0-9+.-]+:/|\s*(//|\\)", re.IGNORECASE)
"""What is an address rather than a path of this machine."""

WRONG = 1.0
"""Seconds that a wrong password costs."""
LONGEST = 255
"""Bytes of a file's name."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Why a file cannot grow."""

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
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: DemoLimits,
        files: Path,
        hosts: frozenset[str],
        *,
        numbers: bool = False,
    ) -> None:
        self._app = app
        self._limits = limits
        self._files = files
        self._hosts = hosts
        self._numbers = numbers
        self._uploads = Uploads(files, limits)
        self._passwords = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        try:
            await self._pass(scope, receive, answer)
        finally:
            _access.info("%s %s %s %s %.3f s", *answer.told())

    async def _pass(self, scope: Scope, receive: Receive, send: _Answer) -> None:
        refused = "404 there is nothing here" if scope["type"] != "http" else self._refused(scope)
        if refused:
            await _refuse(scope, send, refused)
        elif scope["method"] != "POST":
            try:
                await self._app(scope, receive, send)
            except RuntimeError as error:  # Gradio looks whether a session has events once it has begun to tell them
                if getattr(error.__cause__, "status_code", None) != 404:
                    raise
                await send({"type": "http.response.body", "body": b""})
        elif scope["path"].rstrip("/").endswith("/upload"):
            await self._upload(scope, receive, send)
        else:
            body = await self._body(scope, receive)
            if isinstance(body, str):
                await _refuse(scope, send, body)
            elif _form(scope):
                async with self._passwords:  # one after another, so that guessing side by side is no faster
                    await self._app(scope, body, send)
                    if send.status >= 400:
                        await asyncio.sleep(WRONG)
            else:
                try:
                    await self._app(scope, body, send)
                except TypeError as error:  # which Gradio raises where arguments are missing or unknown
                    if send.begun or "/call/v2/" not in scope["path"]:
                        raise
                    await _refuse(scope, send, f"422 {str(error).partition('.')[0]}")

    async def _upload(self, scope: Scope, receive: Receive, send: _Answer) -> None:
        """Passes an upload on as it comes, in bounded time."""
        length = _length(scope)
        if length is None:
            await _refuse(scope, send, "411 an upload says how long it is")
            return
        if length > self._limits.upload_request_bytes:
            await _refuse(scope, send, "413 the request is too large")
            return
        async with self._uploads.room(length) as granted:
            if not granted:
                await _refuse(scope, send, "503 too much is being uploaded: try again later")
                return
            try:
                # Only what is received has a time: what is done with it is not the client's.
                await self._app(scope, _hurried(receive, self._limits.receive_seconds), send)
            except TimeoutError:
                if not send.begun:
                    await _refuse(scope, send, "408 the upload took too long")
            except OSError as error:
                if send.begun or error.errno not in FULL:
                    raise
                await _refuse(scope, send, "507 there is no room for pictures left: try again later")

    def _refused(self, scope: Scope) -> str:
        """Says why a request is refused by its head alone; empty where it is not."""
        method, path = scope["method"], scope["path"]
        headers = Headers(scope=scope)
        host = re.sub(r":\d+$", "", headers.get("host", "").lower())
        if host not in self._hosts and not (self._numbers and _is_number(host)):
            return "403 this server is not known by that name"
        if method == "POST" and not _own_page(headers):
            return "403 another page may not ask here"
        allowed = {"GET": GET, "HEAD": GET, "POST": POST, "OPTIONS": POST}.get(method)
        if allowed is None or not allowed.fullmatch(path):
            return "404 there is nothing here"
        _, named, file = path.partition("/gradio_api/file=")
        if named and ADDRESS.match(file):
            return "403 only files of this server are served"
        return ""

    def _uploaded(self, path: str) -> bool:
        """Whether a path names a file among the uploads, as far as its text tells; it may be gone."""
        if ADDRESS.match(path) or any(len(part) > LONGEST for part in os.fsencode(path).split(b"/")):
            return False
        place = Path(os.path.normpath(path))
        # Each lies in a folder of its own: one that names a folder would have Gradio delete it at the end.
        return place.is_relative_to(self._files) and len(place.relative_to(self._files).parts) > 1

    async def _body(self, scope: Scope, receive: Receive) -> Receive | str:
        """Returns what the app receives, or why the request is refused."""
        limit = self._limits.request_bytes
        if (_length(scope) or 0) > limit:
            return "413 the request is too large"
        body = b""
        receive = _hurried(receive, self._limits.receive_seconds)
        while True:
            try:
                message = await receive()
            except TimeoutError:
                return "408 the request took too long"
            if message["type"] != "http.request":
                return _nothing
            body += message.get("body", b"")
            if len(body) > limit:
                return "413 the request is too large"
            if not message.get("more_body"):
                break
        try:
            given = parse_json(body.decode(), "the request") if body and not _form(scope) else {}
        except (InputError, UnicodeDecodeError):
            return "400 the request is not JSON that can be read"
        if not isinstance(given, dict) or given.get("data", ()) is None:
            return "400 the request is not one of the page or its clients"
        if not all(self._uploaded(path) for path in _paths(given)):
            return "400 pictures are uploaded, not named by an address or a path"
        return _replay(body, receive)


def _own_page(headers: Headers) -> bool:
    """Whether the request comes from a page of this server, or from no browser at all."""
    origin = headers.get("origin")
    return origin is None or origin.partition("//")[2].lower() == headers.get("host", "").lower()


def _form(scope: Scope) -> bool:
    """Whether a request is the form of the page that asks for the password."""
    return bool(scope["path"].rstrip("/") == "/login")


def _paths(given: Any) -> Iterator[str]:
    """Yields each text under a key that Gradio takes for a file's place."""
    waiting = [given]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(one.get("path"), str):
                yield one["path"]
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _length(scope: Scope) -> int | None:
    """Returns how long a request says its body is; None where it does not."""
    headers = Headers(scope=scope)
    length = headers.get("content-length", "")
    return int(length) if length.isdecimal() and "transfer-encoding" not in headers else None


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _hurried(receive: Receive, seconds: float) -> Receive:
    """Returns the same messages of a request's body; those that come too late raise ``TimeoutError``."""
    due = time.monotonic() + seconds
    whole = False

    async def hurried() -> Message:
        nonlocal whole
        if whole:  # what is left to come is that the client has gone
            return await receive()
        async with asyncio.timeout(max(0.0, due - time.monotonic())):
            message = await receive()
        whole = not message.get("more_body")
        return message

    return hurried


class _Answer:
    """Sends an answer with our headers, and remembers what it was.

    Args:
        scope: of the request.
        send: sends on.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self._since = time.monotonic()
        self.status = 0
        """Of the answer; 0 before it has begun."""

    @property
    def begun(self) -> bool:
        """Whether the answer has begun."""
        return self.status > 0

    def told(self) -> tuple[str, str, str, int, float]:
        """Returns what the access log says: no question, no name of a file, no cookie."""
        path = re.sub(r"(/file=|/call/\w+/|heartbeat/).*", r"\1...", self._scope.get("path", ""))
        client, seconds = self._scope.get("client") or ("",), time.monotonic() - self._since
        return str(client[0]), self._scope.get("method", "-"), repr(path)[1:-1], self.status, seconds

    async def __call__(self, message: Message) -> None:
        """Sends one message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message.setdefault("headers", [])
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(scope: Scope, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    status, _, text = why.partition(" ")
    # Closed, since a client may go on to send what nobody reads.
    answer = JSONResponse({"detail": f"{text[0].upper()}{text[1:]}."}, int(status), {"connection": "close"})
    await answer(scope, _nothing, send)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
