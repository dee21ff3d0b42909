"""A model behind any OpenAI-compatible server: api.openai.com, vLLM, llama.cpp, ``transformers serve``."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar, cast

import httpx2

from ..collections.disk_memory import DiskMemory, StoredCall
from ..core.errors import EngineClosedError, ModelError, SetupError
from ..core.notices import notice
from ..core.text import shown_address, visible
from .http_backend import Exchange, parse_address, transport
from .redaction import Redaction
from .refusals import drop_refused, refused_by
from .request_queue import ModelLock, cancellation_check
from .server_reply import END, Failure, ServerReply, read_pieces
from .text_stream import TextStream

_OPENAI = "https://api.openai.com/v1"
_CONNECT_S = 5.0
_FIRST_DELAY_S = 0.25
_LONGEST_DELAY_S = 8.0
_LOOK_S = 0.2
"""How often it is asked whether somebody still waits for an answer."""
_BURST_S = 0.5
"""Requests that are sent in this time may reach the server in any order."""

_Q = TypeVar("_Q")
_A = TypeVar("_A")

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs whole addresses, and so the keys in them


class OpenAIClient:
    """What all served models share: requests in flight together, tries again, typed errors.

    Args:
        model: id of the model on the server; for ``transformers serve`` a folder will do.
        base_url: address of the API, usually ending in ``/v1``; None reads OPENAI_BASE_URL, then takes OpenAI's.
        api_key: None reads OPENAI_API_KEY. A server of your own needs none. Appears in no error, repr or log.
        timeout: seconds to wait for one answer, or for its next piece where somebody listens to it, and ten times as
            long for the last. The time begins anew while the server answers requests that were sent before.
        max_retries: attempts after the first, for answers 408, 409, 429 and 5xx and for lost connections; nothing else
            is tried again.
        max_wait: seconds in all that a request waits for a server that says when it will answer, or that it loads its
            model; these attempts do not count.
        concurrency: most requests in flight.

    Raises:
        SetupError: no API key for OpenAI's own server, an address or key that cannot be one, a setting out of range, or
            a proxy or certificates in the environment that cannot be used.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 3,
        max_wait: float = 60.0,
        concurrency: int = 16,
    ) -> None:
        if timeout <= 0 or max_retries < 0 or not max_wait >= 0 or concurrency < 1:
            raise SetupError("timeout and concurrency must be positive, max_retries and max_wait not negative.")
        address = base_url or os.environ.get("OPENAI_BASE_URL") or ""
        key = (api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
        if not key and not address:
            raise SetupError(
                f"No API key for {model}.", hint="Set OPENAI_API_KEY, or give base_url for a server of your own."
            )
        if not (key.isascii() and key.isprintable()):
            raise SetupError("The API key must be plain ASCII.", hint="Check api_key or OPENAI_API_KEY.")
        url, names = parse_address(address or _OPENAI), ("models", "completions", "chat/completions")
        self._urls = {name: url.copy_with(path=f"{url.path.rstrip('/')}/{name}") for name in names}
        self.name = model
        self.timeout = timeout
        self.max_retries = max_retries
        self.max_wait = max_wait
        self.concurrency = concurrency
        self.batch = max(64, concurrency)
        self.turn = ModelLock()  # any number of threads may ask at once
        sender, self._proxy, proxy = transport(url, concurrency)
        self._client = httpx2.Client(
            # A packed answer may unpack to any size; a redirect would take prompt and key to another server.
            headers={"Accept-Encoding": "identity", "Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {key}"} if key else {}),
            follow_redirects=False,
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),
            transport=sender,
        )
        self.address = shown_address(str(url)).rstrip("/")
        """Where the server is, without user, password and query."""
        self.memory: DiskMemory | None = None
        """Where its answers are looked up and kept: what it was asked once is not paid for again."""
        self.fresh = False
        """Whether it is asked anew; its answers are kept all the same."""
        queried = [value for name, value in url.params.items() if "version" not in name]
        self._redact = Redaction([key, url.password, httpx2.URL(proxy).password, *queried])
        self._refused: frozenset[str] = frozenset()
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="openai")
        self._under_way: set[Exchange] = set()
        self._guard = threading.Lock()
        self._sent: set[Exchange] = set()
        self._burst: list[Exchange] = []
        self._burst_began = 0.0
        # One that nobody closes must not leave sockets behind.
        self._finalizer = weakref.finalize(self, _close, self._threads, self._client, self._under_way)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={self.address!r})"

    def close(self) -> None:
        """Ends requests under way, connections and threads; done by itself when the object goes."""
        self._finalizer()

    def _together(self, answer: Callable[[_Q, Exchange], _A], requests: Sequence[_Q]) -> list[_A]:
        """Answers requests in threads; one that nobody waits for any more is ended, and its place holds None.

        Raises:
            EngineClosedError: the client is closed.
        """
        exchanges, over = [Exchange() for _ in requests], cancellation_check()
        self._under_way.update(exchanges)
        futures: list[Future[_A]] = []
        try:
            with self.turn:
                for number, (request, exchange) in enumerate(zip(requests, exchanges, strict=True)):
                    ended = partial(over, number)
                    futures.append(self._threads.submit(_unless_cancelled, answer, request, exchange, ended))
            waiting = futures
            while waiting:
                for future in wait(waiting, _LOOK_S, FIRST_EXCEPTION).done:
                    future.result()
                for number, exchange in enumerate(exchanges):
                    if over(number):
                        exchange.cancel()
                waiting = [future for future in waiting if not future.done()]
        except (RuntimeError, CancelledError):  # threads of a closed client take nothing
            if self._finalizer.alive:
                raise
        finally:
            for future in futures:  # before a thread that becomes free takes one
                future.cancel()
            for exchange in exchanges:
                exchange.cancel()
            self._under_way.difference_update(exchanges)
        if not self._finalizer.alive:
            raise EngineClosedError(f"The client of {self.name} is closed. Make another to ask more.")
        return [future.result() for future in futures]

    def check(self) -> None:
        """Asks the server whether it is there, in seconds; what it thinks of the key or the model shows later.

        Raises:
            ServerError: it cannot be reached.
        """
        try:
            with Exchange().within(_CONNECT_S), self._client.stream("GET", self._urls["models"]):
                pass
        except httpx2.ReadTimeout:  # there, and busy
            pass
        except httpx2.TransportError as error:
            raise self._error(_unreachable_failure(error), 1) from None

    def _ask(self, body: dict[str, Any], exchange: Exchange, stream: TextStream | None = None) -> ServerReply:
        """Sends a request until it is answered.

        Raises:
            CancelledError: nobody waits for it any more.
            ModelError: it is not answered.
        """
        body = {"model": self.name, "temperature": 0, **body}
        if (remembered := self._remembered(body)) is not None:
            if stream is not None:
                stream.tell(remembered.text)
            return remembered
        refused, whole, failures, attempts, waited = self._refused, frozenset[str](), 0, 0, 0.0
        while not exchange.cancelled():
            sent, attempts = drop_refused(body, refused | whole), attempts + 1
            try:
                reply = self._send(sent, stream, exchange)
                reply.check(body["max_tokens"], stops="stop" in body and "prompt" in body)
                self._refused |= refused  # not before: a server may name a parameter by the way
                if self.memory is not None and reply.text.strip():
                    with self.memory.keeping():
                        self.memory.save_calls("reply", {self._key(body): StoredCall(json.dumps(reply.pieces))})
                return reply
            except Failure as failure:
                if adapted := self._adapt(failure, sent):
                    refused |= adapted
                    continue
                if failure.streamed and not whole:
                    whole = frozenset({"stream"})
                    continue
                delay, left = _delay(failure, attempts), self.max_wait - waited
                if failure.wait > left:
                    failure.what += f" and asks to wait {failure.wait:.0f} s, longer than max_wait"
                    failure.hint = "Ask again later, or raise max_wait."
                elif failure.busy and left > 0:
                    delay = min(delay, left)
                    waited += delay
                    with notice(self._busy(failure)):
                        exchange.pause(delay)
                    continue
                elif failure.again and not failure.busy and failures < self.max_retries:
                    failures += 1
                    exchange.pause(delay)
                    continue
                raise self._error(failure, attempts) from None
        raise CancelledError

    def _key(self, body: dict[str, Any]) -> bytes:
        """Returns the SHA-256 of a request: what is asked of which server, however the answer comes."""
        asked = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
        return hashlib.sha256(json.dumps([self.address, asked], sort_keys=True).encode()).digest()

    def _remembered(self, body: dict[str, Any]) -> ServerReply | None:
        """Returns what the server answered to this before, if it is kept."""
        looks = self.memory is not None and not self.fresh
        stored = self.memory.find_call(self._key(body)) if looks and self.memory is not None else None
        if stored is None:
            return None
        reply = ServerReply()
        with suppress(
            Failure, ValueError, TypeError, AttributeError, RecursionError
        ):  # what was kept is damaged: it is asked again
            for piece in json.loads(stored.text):
                reply.add(piece.encode())
            reply.check(body["max_tokens"])
            return reply
        return None

    def _send(self, body: dict[str, Any], stream: TextStream | None, exchange: Exchange) -> ServerReply:
        reply, ended, heard = ServerReply(), False, 0
        url = self._urls["chat/completions" if "messages" in body else "completions"]
        try:
            with (
                self._sending(exchange) as ahead,
                exchange.within(self.timeout, ahead),
                self._client.stream("POST", url, content=json.dumps(body)) as response,
            ):
                for data in read_pieces(response):
                    ended = data == END
                    if ended or exchange.cancelled():
                        break
                    exchange.extend()
                    reply.add(data)
                    if stream is not None and reply.size - heard > reply.size >> 6:  # each time reads the whole text
                        heard = reply.size
                        stream.tell(reply.text)
        except (httpx2.ReadTimeout, httpx2.WriteTimeout, httpx2.PoolTimeout):
            what = f"did not answer within {self.timeout:g} s"
            hint = "Raise language_model.timeout (eyes.timeout), or lower concurrency there."
            raise Failure(what, hint=hint, passing=True) from None
        except httpx2.TransportError as error:
            raise _unreachable_failure(error) from None
        finally:
            if exchange.cancelled():  # whatever came of it, a body that ends in the midst included
                raise CancelledError
        if not reply.finish and (not ended or "stream" in body):
            raise Failure("broke off its answer", passing=True, again=True, streamed=ended)
        return reply

    @contextmanager
    def _sending(self, exchange: Exchange) -> Iterator[Sequence[Exchange]]:
        """Gives the requests that were sent before, or at about the same time: a server takes these in any order."""
        with self._guard:
            if time.monotonic() - self._burst_began > _BURST_S:
                self._burst, self._burst_began = [*self._sent], time.monotonic()
            self._burst.append(exchange)
            self._sent.add(exchange)
            ahead = self._burst
        try:
            yield ahead
        finally:
            self._sent.discard(exchange)

    def _adapt(self, failure: Failure, sent: dict[str, Any]) -> frozenset[str]:
        """Returns what this model does not take of a request that failed."""
        return refused_by(failure, sent)

    def _busy(self, failure: Failure) -> str:
        asks = f"asks to wait {failure.wait:.0f} s" if failure.wait >= 0.5 else "is busy"
        return visible(f"the server {asks}: {self._redact(failure.detail)[:80]}")

    def _error(self, failure: Failure, attempts: int) -> ModelError:
        through = f" through the proxy of {self._proxy}" if self._proxy else ""
        did = f"{self.name} at {self.address}{through} {failure.what}"
        if not failure.what:
            did = f"Cannot reach the model server at {self.address}{through}"
        tries = f" ({attempts} attempts)" if attempts > 1 else ""
        detail = self._redact(failure.detail).rstrip(".")
        detail = f": {detail[:200]}{'...' if len(detail) > 200 else ''}" if detail else ""
        own = self._proxy and (failure.status in (403, 407, 502, 503, 504) or not failure.what)
        hint = f"Mend or unset {self._proxy}, or list the server in NO_PROXY." if own else failure.hint
        return failure.kind(f"{did}{tries}{detail}.", hint=hint, retryable=failure.passing, wait=failure.wait)


def _unless_cancelled(
    answer: Callable[[_Q, Exchange], _A], request: _Q, exchange: Exchange, ended: Callable[[], bool]
) -> _A:
    if ended():
        exchange.cancel()
    with suppress(CancelledError):
        return answer(request, exchange)
    return cast(_A, None)


def _close(threads: ThreadPoolExecutor, client: httpx2.Client, under_way: set[Exchange]) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    for exchange in tuple(under_way):
        exchange.cancel()
    client.close()


def _unreachable_failure(error: httpx2.TransportError) -> Failure:
    again = not isinstance(error, httpx2.TimeoutException | httpx2.ProxyError)
    detail = str(error) or type(error).__name__
    return Failure("", detail, "Is it running, and is OPENAI_BASE_URL (base_url) right?", passing=True, again=again)


def _delay(failure: Failure, failures: int) -> float:
    """Seconds to wait: exponential with jitter, or what the server asks for."""
    backoff: float = min(_FIRST_DELAY_S * 2 ** (failures - 1), _LONGEST_DELAY_S) * random.uniform(0.75, 1.25)
    return max(failure.wait, backoff)
