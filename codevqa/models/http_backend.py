"""How requests reach a server: within their time from the first byte to the last, and to be ended from any thread."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from typing import Any

import httpcore2
import httpx2

from ..core.errors import SetupError

_SLICE = 1 << 16
"""Bytes that are written before the time is looked at again."""
_WHOLE_STREAM = 10
"""How many times as long as one piece a streamed answer may take in all."""
_LOOK_S = 0.1
"""How often a connection that comes about asks whether it is still waited for."""
_here = threading.local()
"""``exchange``: what the thread is at work on."""


class Exchange:
    """One request: how long it may take, and its end from any thread.

    A timeout of the library holds for one read, so it would wait for ever for a server that trickles.
    """

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._heard = 0.0
        self._ahead: Sequence[Exchange] = ()
        self.pause = self._cancelled.wait
        """Waits for so many seconds, and says whether it was cancelled meanwhile."""
        self.cancelled = self._cancelled.is_set
        """Whether nobody waits for it any more."""

    def cancel(self) -> None:
        """Ends it at once, and lets nothing of it begin."""
        with self._guard, suppress(OSError):  # the server may be faster
            self._cancelled.set()
            if self._socket is not None:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # SSLSocket's own would take its TLS away

    @contextmanager
    def within(self, seconds: float, ahead: Sequence[Exchange] = ()) -> Iterator[None]:
        """Makes what this thread sends in the block this exchange, and gives it so long.

        Each sign that the server still works on those ``ahead`` begins its time anew.
        """
        self._seconds, self._ahead, self._heard = seconds, ahead, 0.0
        self._begin(time.monotonic())
        _here.exchange = self
        try:
            yield
        finally:
            _here.exchange, self._ahead = None, ()

    def _begin(self, now: float) -> None:
        self._deadline, self._last = now + self._seconds, now + self._seconds * _WHOLE_STREAM

    def extend(self) -> None:
        """Gives it as long again, for it has brought a piece of its answer."""
        self._heard = time.monotonic()
        self._deadline = min(self._heard + self._seconds, self._last)

    def seconds_left(self) -> float:
        """Returns the seconds that are left.

        Raises:
            httpcore2.ReadTimeout: none are, or it was cancelled.
        """
        left = self._deadline - time.monotonic()
        if left <= 0 and not self._heard:  # a server that answers one at a time has not begun with it
            self._begin(max(self._deadline - self._seconds, *(other._heard for other in self._ahead), 0.0))
            left = self._deadline - time.monotonic()
        if left <= 0 or self._cancelled.is_set():
            raise httpcore2.ReadTimeout
        return left

    def attach_socket(self, connection: socket.socket | None) -> None:
        """Lets :meth:`cancel` shut a socket while a thread waits for it; None ends that."""
        with self._guard:
            self._socket = connection


class _Stream(httpcore2.NetworkStream):
    """A connection that waits no longer than the exchange of its thread may."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream, self._socket = stream, stream.get_extra_info("socket")
        self.close, self.get_extra_info = stream.close, stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        exchange: Exchange = _here.exchange
        exchange.attach_socket(self._socket)
        try:
            while True:
                with suppress(httpcore2.ReadTimeout):
                    return self._stream.read(max_bytes, exchange.seconds_left())
                exchange.seconds_left()
        finally:
            exchange.attach_socket(None)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        exchange: Exchange = _here.exchange
        exchange.attach_socket(self._socket)
        try:
            for start in range(0, len(buffer), _SLICE):
                self._stream.write(buffer[start : start + _SLICE], exchange.seconds_left())
        finally:
            exchange.attach_socket(None)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        exchange: Exchange = _here.exchange
        # The handshake takes the socket over: a twin can still shut the connection.
        with socket.socket(fileno=os.dup(self._socket.fileno())) as twin:
            exchange.attach_socket(twin)
            try:
                return _Stream(self._stream.start_tls(ssl_context, server_hostname, exchange.seconds_left()))
            finally:
                exchange.attach_socket(None)


class _Backend(httpcore2.SyncBackend):
    def connect_tcp(self, host: str, port: int, timeout: float | None = None, *more: Any, **options: Any) -> _Stream:
        exchange: Exchange = _here.exchange
        left = exchange.seconds_left()
        connection: Future[httpcore2.NetworkStream] = Future()
        begin = partial(super().connect_tcp, host, port, min(left, timeout or left), *more, **options)
        # A look-up of a name cannot be ended, nor can a connect. Who gives up leaves this thread behind.
        threading.Thread(target=_set_connection, args=(connection, begin), daemon=True).start()
        try:
            while not wait((connection,), _LOOK_S).done:
                exchange.seconds_left()
        except BaseException as error:
            connection.add_done_callback(lambda late: None if late.exception() else late.result().close())
            if isinstance(error, httpcore2.ReadTimeout):
                raise httpcore2.ConnectTimeout from None
            raise
        return _Stream(connection.result())


def _set_connection(connection: Future[httpcore2.NetworkStream], begin: Callable[[], httpcore2.NetworkStream]) -> None:
    try:
        connection.set_result(begin())
    except BaseException as error:  # noqa: BLE001 - it is raised where the connection is wanted
        connection.set_exception(error)


def transport(url: httpx2.URL, connections: int) -> tuple[httpx2.HTTPTransport, str, str]:
    """Returns what sends requests to a server, the variable of the environment that names its proxy, and that proxy.

    Raises:
        SetupError: the proxy, or the certificates that the environment names, cannot be used.
    """
    variable, address = _proxy(url)
    try:
        # Without TLS nothing reads certificates: a context that trusts nobody is there at once.
        secure = "https" in (url.scheme, address.partition(":")[0])
        context = httpx2.create_ssl_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    except OSError as error:  # ssl.SSLError is one
        name = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), "the system")
        raise SetupError(f"Cannot read the certificates of {name}: {error}.", hint=f"Mend or unset {name}.") from None
    try:
        proxy = (
            httpx2.Proxy(address, ssl_context=context if address.startswith("https:") else None) if address else None
        )
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        sender = httpx2.HTTPTransport(verify=context, limits=limits, proxy=proxy)
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        why = "SOCKS needs the package socksio" if isinstance(error, ImportError) else "its address must be http://..."
        hint = f"Mend or unset {variable}, or list the server in NO_PROXY."
        raise SetupError(f"Cannot use the proxy of {variable}: {why}.", hint=hint) from None
    sender._pool._network_backend = _Backend()  # HTTPTransport has no argument for it
    return sender, variable, address


def _proxy(url: httpx2.URL) -> tuple[str, str]:
    """Returns the variable that names the proxy of a server, and its address; neither for one on this machine."""
    local = url.host == "localhost" or url.host.endswith(".localhost")
    with suppress(ValueError):
        local = ip_address(url.host).is_loopback
    proxies = urllib.request.getproxies()
    names = [name.strip().lstrip("*.").lower() for name in proxies.get("no", "").split(",")]  # Python knows no *.host
    direct = any(name and f".{url.host}".endswith(f".{name}") for name in names)
    if local or direct or urllib.request.proxy_bypass(url.host):
        return "", ""
    kind = url.scheme if url.scheme in proxies else "all"
    if not (address := proxies.get(kind, "")):
        return "", ""
    variables = (f"{kind}_proxy", f"{kind}_proxy".upper())
    variable = next((name for name in variables if os.environ.get(name)), "the system's settings")
    return variable, address if "://" in address else f"http://{address}"


def parse_address(address: str) -> httpx2.URL:
    """Returns the address of a server.

    Raises:
        SetupError: it is none; it is not repeated, for it may hold a password.
    """
    try:
        url = httpx2.URL(address)
        url.host.encode("idna")  # as the system will
        if url.scheme in ("http", "https") and url.host and (url.port or 80) < 1 << 16:
            return url
    except (httpx2.InvalidURL, ValueError):
        pass
    raise SetupError(
        "The address of a model server must be like http://127.0.0.1:8000/v1.",
        hint="Check OPENAI_BASE_URL, or base_url where that is set.",
    )
