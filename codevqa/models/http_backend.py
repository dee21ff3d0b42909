"""How requests reach a server: within their time from the first byte to the last, and to be ended from any thread."""

from __future__ import annotations

import math
import os
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any

import httpcore2
import httpx2
from httpcore2._backends.sync import SyncStream

from ..core.errors import SetupError

_SLICE = 1 << 16
"""Bytes that are written before the time is looked at again."""
_WHOLE_STREAM = 10
"""How many times as long as one piece a streamed answer may take in all."""
_here = threading.local()
"""``exchange``: what the thread is at work on."""


class Exchange:
    """One request: how long it may take, and its end from any thread.

    A timeout of the library holds for one read, and a server that trickles is read from for ever.
    """

    def __init__(self) -> None:
        self._deadline = self._last = math.inf
        self._seconds = 0.0
        self._cancelled = threading.Event()
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._cancelled.is_set()

    def pause(self, seconds: float) -> bool:
        """Waits, and says whether it was cancelled meanwhile."""
        return self._cancelled.wait(seconds)

    def cancel(self) -> None:
        """Ends it at once, and lets nothing of it begin."""
        with self._guard:
            self._cancelled.set()
            if self._socket is not None:
                with suppress(OSError):  # the server was faster
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # SSLSocket's own would take its TLS away

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Sends what this thread sends in the block as this exchange, and gives it so long."""
        self._seconds, self._last = seconds, time.monotonic() + seconds * _WHOLE_STREAM
        self.extend()
        _here.exchange = self
        try:
            yield
        finally:
            _here.exchange = None

    def extend(self) -> None:
        """Gives it as long again, for it has brought a piece of a streamed answer."""
        self._deadline = min(time.monotonic() + self._seconds, self._last)

    def left(self, most: float | None = None) -> float:
        """Returns the seconds that are left, or ``most``.

        Raises:
            httpcore2.ReadTimeout: none are left.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("out of time")
        return left if most is None else min(left, most)

    @contextmanager
    def using(self, connection: socket.socket) -> Iterator[None]:
        """Lets :meth:`cancel` shut a socket while the block waits for it.

        Raises:
            httpcore2.ReadError: it was cancelled already.
        """
        with self._guard:
            if self._cancelled.is_set():
                raise httpcore2.ReadError("cancelled")
            self._socket = connection
        try:
            yield
        finally:
            with self._guard:
                self._socket = None


class _Stream(httpcore2.NetworkStream):
    """A connection that waits no longer than the exchange of its thread may."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream
        self._socket: socket.socket = stream.get_extra_info("socket")
        self.close = stream.close  # type: ignore[method-assign]
        self.get_extra_info = stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        exchange: Exchange = _here.exchange
        with exchange.using(self._socket):
            return self._stream.read(max_bytes, exchange.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        exchange: Exchange = _here.exchange
        with exchange.using(self._socket):
            for start in range(0, len(buffer), _SLICE):
                self._stream.write(buffer[start : start + _SLICE], exchange.left(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        exchange: Exchange = _here.exchange
        # The handshake takes the socket over: a twin can still shut the connection.
        with socket.socket(fileno=os.dup(self._socket.fileno())) as twin, exchange.using(twin):
            return _Stream(self._stream.start_tls(ssl_context, server_hostname, exchange.left(timeout)))


class _Backend(httpcore2.NetworkBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        exchange: Exchange = _here.exchange
        failure = OSError("the name has no address")
        try:
            for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                connection = socket.socket(family, kind, protocol)
                try:
                    with exchange.using(connection):
                        connection.settimeout(exchange.left(timeout))
                        connection.connect(address)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return _Stream(SyncStream(connection))
                except BaseException as error:
                    connection.close()
                    if not isinstance(error, OSError):
                        raise
                    failure = error
            raise failure
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error


def transport(url: httpx2.URL, connections: int) -> tuple[httpx2.BaseTransport, str, str]:
    """Returns what sends requests to a server, the variable of the environment that names its proxy, and that proxy.

    Raises:
        SetupError: the variable, or SSL_CERT_FILE, names what cannot be used.
    """
    variable, address = _proxy(url)
    secure = url.scheme == "https" or address.startswith("https:")
    try:
        # Without TLS nothing reads certificates: a context that trusts nobody is made at once.
        context = httpx2.create_ssl_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    except OSError as error:  # ssl.SSLError is one
        name = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), "the system")
        raise SetupError(f"Cannot read the certificates of {name}: {error}.", hint=f"Mend or unset {name}.") from None
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
    try:
        proxy = (
            httpx2.Proxy(address, ssl_context=context if address.startswith("https:") else None) if address else None
        )
        made = httpx2.HTTPTransport(verify=context, limits=limits, proxy=proxy)
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        why = "SOCKS needs the package socksio" if isinstance(error, ImportError) else "it must begin with http://"
        raise SetupError(
            f"The proxy of {variable} cannot be used: {why}.", hint=f"Mend or unset {variable}, or set NO_PROXY."
        ) from None
    made._pool._network_backend = _Backend()  # no argument of the library leads there
    return made, variable, address


def _proxy(url: httpx2.URL) -> tuple[str, str]:
    """Returns the variable that names the proxy of a server, and its address; neither for one on this machine."""
    try:
        local = ip_address(url.host).is_loopback
    except ValueError:
        local = url.host == "localhost" or url.host.endswith(".localhost")
    if local or urllib.request.proxy_bypass(url.host):
        return "", ""
    proxies = urllib.request.getproxies()
    for kind in (url.scheme, "all"):
        if address := proxies.get(kind):
            names = (f"{kind}_proxy", f"{kind}_proxy".upper())
            variable = next((name for name in names if os.environ.get(name)), "the system's settings")
            return variable, address if "://" in address else f"http://{address}"
    return "", ""
