"""A model behind any OpenAI-compatible server: api.openai.com, vLLM, llama.cpp, ``transformers serve``."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar, cast

import httpx2

from ..core.errors import EngineClosedError, ModelError, SetupError
from ..core.text import shown_address
from .chat_template import without_system
from .http_backend import Exchange, transport
from .redaction import Redaction
from .server_reply import END, Failure, ServerReply, read
from .text_stream import TextStream
from .turn import Turn
from .unwanted import unwanted

_OPENAI = "https://api.openai.com/v1"
_CONNECT_S = 5.0
_FIRST_DELAY_S = 0.25
_LONGEST_DELAY_S = 8.0
_LOOK_S = 0.2
"""How often it is asked whether somebody still waits for an answer."""
_WITH = {"stream": "stream_options", "logprobs": "top_logprobs", "top_logprobs": "logprobs"}
"""What goes with a parameter that was refused."""
_REFUSING = re.compile(
    r"support|unrecogni|unknown|unexpected|extra|not (?:permitted|allowed|accepted|available|implemented|enabled)"
    r"|invalid|deprecated|\bmust\b|only|instead|cannot|disabled",
    re.I,
)
"""What servers say of a parameter that the model does not take."""
_TOO_MANY = re.compile(r"too (?:large|long|many|high)|context|at most|exceed|maximum", re.I)
"""What they say of a number of tokens that is refused for its size."""
_NO_SYSTEM = re.compile(
    r"system.*\brole|\brole.*system|roles must alternate|system (?:message|prompt|instruction)", re.I
)
"""What servers say whose chat template has no turn of the system."""

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
            long for the last.
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
        self._url = url = _parsed(address or _OPENAI)
        self.name = model
        self.timeout = timeout
        self.max_retries = max_retries
        self.max_wait = max_wait
        self.concurrency = concurrency
        self.batch = max(64, concurrency)
        self.turn = Turn()  # any number of threads may ask at once
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
        queried = [value for name, value in url.params.items() if "version" not in name]
        self._redact = Redaction([key, url.password, httpx2.URL(proxy).password, *queried])
        self._refused: frozenset[str] = frozenset()
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="openai")
        self._under_way: set[Exchange] = set()
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
        exchanges, over = [Exchange() for _ in requests], unwanted()
        futures: list[Future[_A]] = []
        self._under_way.update(exchanges)
        try:
            with self.turn:
                for request, exchange in zip(requests, exchanges, strict=True):
                    futures.append(self._threads.submit(answer, request, exchange))
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, _LOOK_S, FIRST_EXCEPTION)
                for future in done:
                    if not future.cancelled() and not isinstance(future.exception(), CancelledError | None):
                        future.result()
                for number, exchange in enumerate(exchanges):
                    if over(number):
                        exchange.cancel()
        except RuntimeError:
            if self._finalizer.alive:
                raise
        finally:
            for exchange, future in zip(exchanges, futures, strict=False):
                exchange.cancel()
                future.cancel()
            self._under_way.difference_update(exchanges)
        if not self._finalizer.alive:
            raise EngineClosedError(f"The client of {self.name} is closed. Make another to ask more.")
        broken = [future.cancelled() or future.exception() is not None for future in futures]
        return [cast(_A, None) if lost else future.result() for lost, future in zip(broken, futures, strict=True)]

    def check(self) -> None:
        """Asks the server whether it is there, in seconds; what it thinks of the key or the model shows later.

        Raises:
            ServerError: it cannot be reached.
        """
        try:
            with Exchange().within(_CONNECT_S), self._client.stream("GET", self._endpoint("models")):
                pass
        except httpx2.ReadTimeout:  # there, and busy
            pass
        except httpx2.TransportError as error:
            raise self._error(_unreached(error), 1) from None

    def _ask(self, body: dict[str, Any], exchange: Exchange, stream: TextStream | None = None) -> ServerReply:
        """Sends a request until it is answered.

        Raises:
            CancelledError: the exchange was cancelled.
            ModelError: it is not answered.
        """
        body = {"model": self.name, "temperature": 0, **body}
        refused, failures, attempts, waited = self._refused, 0, 0, 0.0
        whole: frozenset[str] = frozenset()
        while True:
            sent, attempts = _accepted(body, refused | whole), attempts + 1
            try:
                reply = self._send(sent, stream, exchange)
                reply.check(body["max_tokens"], stops="stop" in body and "prompt" in body)
                self._refused |= refused  # learnt only now, for a server may have named a parameter by the way
                return reply
            except Failure as failure:
                if adapted := self._adapt(failure, sent):
                    refused |= adapted
                    continue
                if failure.streamed and not whole:
                    whole = frozenset({"stream"})
                    continue
                if failure.wait > self.max_wait - waited:
                    failure.what += f" and asks to wait {failure.wait:.0f} s, longer than max_wait"
                    failure.hint = "Ask again later, or raise max_wait."
                    raise self._error(failure, attempts) from None
                failures += 1
                delay = _delay(failure, attempts)
                if failure.busy and waited < self.max_wait:
                    delay = min(delay, self.max_wait - waited)
                    waited, failures = waited + delay, failures - 1
                elif failure.busy or not failure.again or failures > self.max_retries:
                    raise self._error(failure, attempts) from None
                if exchange.pause(delay):
                    raise CancelledError from None

    def _send(self, body: dict[str, Any], stream: TextStream | None, exchange: Exchange) -> ServerReply:
        reply, ended, heard = ServerReply(), False, 0
        url = self._endpoint("chat/completions" if "messages" in body else "completions")
        try:
            with (
                exchange.within(self.timeout),
                self._client.stream("POST", url, content=json.dumps(body)) as response,
            ):
                for data in read(response):
                    ended = data == END
                    if ended or exchange.cancelled:
                        break
                    exchange.extend()
                    reply.add(data)
                    if stream is not None and reply.size - heard > reply.size >> 6:  # the whole text is looked at
                        heard = reply.size
                        stream.tell(reply.text)
        except httpx2.TransportError as error:
            if exchange.cancelled:
                raise CancelledError from None
            if isinstance(error, httpx2.ReadTimeout | httpx2.WriteTimeout | httpx2.PoolTimeout):
                what = f"did not answer within {self.timeout:g} s"
                raise Failure(what, hint="Raise timeout or lower concurrency.", passing=True) from None
            raise _unreached(error) from None
        if exchange.cancelled:
            raise CancelledError
        if not reply.finish and (not ended or "stream" in body):
            raise Failure("broke off its answer", passing=True, again=True, streamed=ended)
        return reply

    def _endpoint(self, name: str) -> httpx2.URL:
        return self._url.copy_with(path=f"{self._url.path.rstrip('/')}/{name}")

    def _adapt(self, failure: Failure, sent: dict[str, Any]) -> frozenset[str]:
        """Returns what this model does not take of a request, by what its server says; nothing if it is not that."""
        code, parameter = failure.about
        words = f"{failure.said} {code} {parameter}"
        if failure.status < 400 or failure.status in (401, 429):
            return frozenset()
        if _NO_SYSTEM.search(failure.said) and any(turn["role"] == "system" for turn in sent.get("messages", ())):
            return frozenset({"system"})
        if not _REFUSING.search(words):
            return frozenset()
        places = {
            name: named.start()
            for name in sent.keys() - {"model", "messages", "prompt"}
            if (named := re.search(rf"\b{name}{'(?:ing)?' * (name == 'stream')}\b", words))
            and not ("tokens" in name and _TOO_MANY.search(failure.said))
        }
        if not places:
            return frozenset()
        name = parameter if parameter in places else min(places, key=lambda name: places[name])
        return frozenset({name})

    def _error(self, failure: Failure, attempts: int) -> ModelError:
        through = f" through the proxy of {self._proxy}" if self._proxy else ""
        did = f"{self.name} at {self.address}{through} {failure.what}"
        if not failure.what:
            did = f"Cannot reach the model server at {self.address}{through}"
        tries = f" ({attempts} attempts)" if attempts > 1 else ""
        said = self._redact(failure.said).rstrip(".")
        said = f": {said[:200]}{'...' if len(said) > 200 else ''}" if said else ""
        own = self._proxy and failure.status in (0, 403, 407, 502, 503, 504)
        hint = f"Mend or unset {self._proxy}, or list the server in NO_PROXY." if own else failure.hint
        return failure.kind(f"{did}{tries}{said}.", hint=hint, retryable=failure.passing)


def _close(threads: ThreadPoolExecutor, client: httpx2.Client, under_way: set[Exchange]) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    for exchange in tuple(under_way):
        exchange.cancel()
    client.close()


def _accepted(body: dict[str, Any], refused: frozenset[str]) -> dict[str, Any]:
    """Returns what is sent to a model, without what it refused."""
    gone = refused | {_WITH.get(name) for name in refused}
    sent = {name: value for name, value in body.items() if name not in gone}
    if "max_tokens" in refused and "max_completion_tokens" not in refused:
        sent["max_completion_tokens"] = body["max_tokens"]
    if "system" in refused and "messages" in sent:
        sent["messages"] = without_system(sent["messages"])
    return sent


def _unreached(error: httpx2.TransportError) -> Failure:
    again = not isinstance(error, httpx2.TimeoutException | httpx2.ProxyError)
    said = str(error) or type(error).__name__
    return Failure("", said, "Is it running, and is base_url right?", passing=True, again=again)


def _delay(failure: Failure, failures: int) -> float:
    """Seconds to wait: exponential with jitter, or what the server asks for."""
    backoff: float = min(_FIRST_DELAY_S * 2 ** (failures - 1), _LONGEST_DELAY_S) * random.uniform(0.75, 1.25)
    return max(failure.wait, backoff)


def _parsed(address: str) -> httpx2.URL:
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
        "base_url must be an address such as http://127.0.0.1:8000/v1.",
        hint="Check base_url, or OPENAI_BASE_URL where it is not given.",
    )
