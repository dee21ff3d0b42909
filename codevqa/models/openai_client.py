"""A model behind any OpenAI-compatible server: api.openai.com, vLLM, llama.cpp, ``transformers serve``."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import httpx2

from ..core.errors import ModelError, SetupError
from ..core.text import shown_address
from .chat_template import without_system
from .server_reply import END, Failure, ServerReply, read
from .text_stream import TextStream
from .turn import Turn

_OPENAI = "https://api.openai.com/v1"
_CONNECT_S = 5.0
_FIRST_DELAY_S = 0.25
_LONGEST_DELAY_S = 8.0
_LONGEST_RETRY_AFTER_S = 30.0
_KEY_LIKE = re.compile(r"\b(?:sk|pk|key)-[\w*.\-]{4,}")
_OPTIONAL = frozenset({"temperature", "stop", "stream", "max_tokens"})
"""Parameters that some models refuse and an answer can do without; the last has another name there."""
_WITH = {"stream": "stream_options", "logprobs": "top_logprobs"}
"""What goes with a parameter that was refused."""
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
        concurrency: most requests in flight.

    Raises:
        SetupError: no API key for OpenAI's own server, an address or key that cannot be one, or a setting out of range.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 3,
        concurrency: int = 16,
    ) -> None:
        if timeout <= 0 or max_retries < 0 or concurrency < 1:
            raise SetupError("timeout and concurrency must be positive, max_retries not negative.")
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
        self.concurrency = concurrency
        self.batch = max(64, concurrency)
        self.turn = Turn()  # any number of threads may ask at once
        self._client = httpx2.Client(
            # A packed answer may unpack to any size; a redirect would take prompt and key to another server.
            headers={"Accept-Encoding": "identity", "Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {key}"} if key else {}),
            follow_redirects=False,
            timeout=httpx2.Timeout(timeout, connect=min(_CONNECT_S, timeout)),
            limits=httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
        )
        self.address = shown_address(str(url)).rstrip("/")
        """Where the server is, without user, password and query."""
        self._secrets = [one for one in (key, url.password, *url.params.values()) if len(one) > 5]
        self._refused: set[str] = set()
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="openai")
        # One that nobody closes must not leave sockets behind.
        self._finalizer = weakref.finalize(self, _close, self._threads, self._client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={self.address!r})"

    def close(self) -> None:
        """Ends the connections and threads; done by itself when the object goes."""
        self._finalizer()

    def _together(self, answer: Callable[[_Q, threading.Event], _A], requests: Sequence[_Q]) -> list[_A]:
        """Answers requests in threads; the event says that nobody waits for the answer any more."""
        cancelled = threading.Event()
        with self.turn:
            futures = [self._threads.submit(answer, request, cancelled) for request in requests]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            return [future.result() for future in futures]
        finally:
            cancelled.set()
            for future in futures:
                future.cancel()

    def check(self) -> None:
        """Asks the server whether it is there, in seconds; what it thinks of the key or the model shows later.

        Raises:
            ServerError: it cannot be reached.
        """
        try:
            with self._client.stream("GET", self._endpoint("models"), timeout=_CONNECT_S):
                pass
        except httpx2.ReadTimeout:  # there, and busy
            pass
        except httpx2.TransportError as error:
            raise self._error(_unreached(error), 1) from None

    def _ask(self, body: dict[str, Any], cancelled: threading.Event, stream: TextStream | None = None) -> ServerReply:
        body, failures = {"model": self.name, "temperature": 0, **body}, 0
        while True:
            given = self._accepted(body)
            try:
                reply = self._send(given, stream, cancelled)
                if not cancelled.is_set():
                    reply.check(body["max_tokens"])
                return reply
            except Failure as failure:
                if self._adapt(failure, given):
                    continue
                failures += 1
                if failure.again and failures <= self.max_retries and not cancelled.wait(_delay(failure, failures)):
                    continue
                raise self._error(failure, failures) from None

    def _send(self, body: dict[str, Any], stream: TextStream | None, cancelled: threading.Event) -> ServerReply:
        reply, ended = ServerReply(), False
        url = self._endpoint("chat/completions" if "messages" in body else "completions")
        try:
            with self._client.stream("POST", url, content=json.dumps(body)) as response:
                for data in read(response, self.timeout):
                    ended = data == END
                    if ended or cancelled.is_set():
                        break
                    reply.add(data)
                    if stream is not None:
                        stream.tell(reply.text)
        except (httpx2.ReadTimeout, httpx2.WriteTimeout, httpx2.PoolTimeout):
            what = f"did not answer within {self.timeout:g} s"
            raise Failure(what, hint="Raise timeout or lower concurrency.", passing=True) from None
        except httpx2.TransportError as error:
            raise _unreached(error) from None
        if not (ended or reply.finish or cancelled.is_set()):
            raise Failure("broke off its answer", passing=True, again=True)
        return reply

    def _endpoint(self, name: str) -> httpx2.URL:
        return self._url.copy_with(path=f"{self._url.path.rstrip('/')}/{name}")

    def _accepted(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns what is sent to this model, without what it refused."""
        refused = frozenset(self._refused)
        gone = refused | {_WITH.get(name) for name in refused}
        given = {name: value for name, value in body.items() if name not in gone}
        if "max_tokens" in refused:
            given["max_completion_tokens"] = body["max_tokens"]
        if "system" in refused and "messages" in given:
            given["messages"] = without_system(given["messages"])
        return given

    def _adapt(self, failure: Failure, given: dict[str, Any]) -> bool:
        """Notes what this model does not take (reasoning models refuse some parameters); False if it is not that."""
        if failure.status not in (400, 403, 422):
            return False
        code, param = failure.about
        said = f"{failure.said} {param}".lower()
        if "stream_options" in given and "stream_options" in said:
            refused = "stream_options"
        elif "logprobs" in given and "logprobs" in said:  # most name it in words alone
            refused = "logprobs"
        elif _NO_SYSTEM.search(failure.said) and any(one["role"] == "system" for one in given.get("messages", ())):
            refused = "system"
        elif code in ("unsupported_parameter", "unsupported_value") and param in given and param in _OPTIONAL:
            refused = param
        else:
            return False
        self._refused.add(refused)
        return True

    def _error(self, failure: Failure, attempts: int) -> ModelError:
        did = f"{self.name} at {self.address} {failure.what}"
        if not failure.what:
            did = f"Cannot reach the model server at {self.address}"
        tries = f" ({attempts} attempts)" if attempts > 1 else ""
        said = self._redact(failure.said).rstrip(".")
        said = f": {said[:200]}{'...' if len(said) > 200 else ''}" if said else ""
        return failure.kind(f"{did}{tries}{said}.", hint=failure.hint, retryable=failure.passing)

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[API key]")
        return _KEY_LIKE.sub("[API key]", text)


def _close(threads: ThreadPoolExecutor, client: httpx2.Client) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    client.close()


def _unreached(error: httpx2.TransportError) -> Failure:
    again = not isinstance(error, httpx2.TimeoutException)
    said = str(error) or type(error).__name__
    return Failure("", said, "Is it running, and is base_url right?", passing=True, again=again)


def _delay(failure: Failure, failures: int) -> float:
    """Seconds to wait: exponential with jitter, or what the server asks for within reason."""
    backoff: float = min(_FIRST_DELAY_S * 2 ** (failures - 1), _LONGEST_DELAY_S) * random.uniform(0.75, 1.25)
    return min(max(failure.wait, backoff), _LONGEST_RETRY_AFTER_S)


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
