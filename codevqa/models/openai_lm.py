"""A language model behind any OpenAI-compatible server: api.openai.com, vLLM, llama.cpp, ``transformers serve``."""

from __future__ import annotations

import functools
import os
import random
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Literal, NoReturn, TypeVar

import openai

from ..core.errors import ModelError, ServerError, SetupError
from .base import Completion, GenerationRequest, Message, cut_at_stop
from .bounded_reply import bounded
from .grammar import Grammar
from .text_stream import TextStream, stream_of

MAX_STOPS = 4
"""Stop strings a server is asked to watch for, the limit of OpenAI's; the rest are cut off here."""
_CONNECT_S = 5.0
_FIRST_DELAY_S = 0.25
_LONGEST_DELAY_S = 8.0
_LONGEST_RETRY_AFTER_S = 30.0
_KEY_LIKE = re.compile(r"\b(?:sk|pk|key)-[\w*.\-]{4,}")
_OPTIONAL = frozenset({"temperature", "stop", "stream", "stream_options"})
"""Parameters that some models refuse and an answer can do without."""
_GRAMMAR_FIELDS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "vllm": lambda text: {"structured_outputs": {"grammar": text}},
    "llama.cpp": lambda text: {"grammar": text},
}
"""What each server wants a grammar in; both read GBNF."""
_GRAMMAR_OPTION = 'OpenAILM(grammar="vllm") or OpenAILM(grammar="llama.cpp")'
_REFUSED_GRAMMAR = f"If it is the grammar that it refuses: {_GRAMMAR_OPTION}, or constrained=False."
_STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

_T = TypeVar("_T")


class OpenAILM:
    """A served model as a :class:`~codevqa.models.base.LanguageModel`.

    Args:
        model: id of the model on the server; for ``transformers serve`` a folder will do.
        base_url: address of the API, usually ending in ``/v1``; None reads OPENAI_BASE_URL, then takes OpenAI's.
        api_key: None reads OPENAI_API_KEY. A server of your own needs none. Appears in no error, repr or log.
        form: prompts made of messages always go to the chat endpoint, and :attr:`chat` asks for such. ``"auto"`` sends
            text prompts to the legacy completions endpoint, ``"chat"`` sends them as one user message;
            ``"completion"`` is for base models, which are not to be talked with.
        timeout: seconds to wait for one answer, or for its next piece where somebody listens to it, and ten times as
            long for the last.
        max_retries: attempts after the first, for answers 429 and 5xx and for lost connections; nothing else is
            tried again.
        concurrency: most requests in flight.
        grammar: how the server takes grammars that completions are held to: ``"vllm"`` (0.12 or newer) or
            ``"llama.cpp"``. Servers pass over fields they do not know without a word, so it is not tried out: None
            sends none.

    Raises:
        SetupError: no API key for OpenAI's own server, or a setting out of range.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        form: Literal["auto", "completion", "chat"] = "auto",
        timeout: float = 60.0,
        max_retries: int = 3,
        concurrency: int = 16,
        grammar: Literal["vllm", "llama.cpp"] | None = None,
    ) -> None:
        if form not in ("auto", "completion", "chat"):
            raise SetupError(f"Unknown form {form!r}.", hint='Use "auto", "completion" or "chat".')
        if grammar is not None and grammar not in _GRAMMAR_FIELDS:
            raise SetupError(f"Unknown grammar {grammar!r}.", hint='Use "vllm", "llama.cpp" or None.')
        if timeout <= 0 or max_retries < 0 or concurrency < 1:
            raise SetupError("timeout and concurrency must be positive, max_retries not negative.")
        address = base_url or os.environ.get("OPENAI_BASE_URL") or None
        key = api_key or os.environ.get("OPENAI_API_KEY") or ""
        if not key and address is None:
            raise SetupError(
                f"No API key for {model}.", hint="Set OPENAI_API_KEY, or give base_url for a server of your own."
            )
        self.name = model
        self.form = form
        self.chat = self.chat_only = form != "completion"
        """Whether it is to be talked with."""
        self.grammar = grammar
        self.timeout = timeout
        self.max_retries = max_retries
        self.concurrency = concurrency
        self._client = openai.OpenAI(
            # The client wants some key even where the server does not.
            api_key=key or "none",
            base_url=address,
            timeout=openai.Timeout(timeout, connect=min(_CONNECT_S, timeout)),
            max_retries=0,
            http_client=openai.DefaultHttpxClient(event_hooks={"response": [bounded(timeout)]}),
        )
        # What messages show; an address may carry a password too.
        self._address = re.sub(r"//[^/@]*@", "//", str(self._client.base_url)).rstrip("/")
        self._key = key
        self._refused: set[str] = set()
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="openai-lm")
        # One that nobody closes must not leave sockets behind.
        self._finalizer = weakref.finalize(self, _close, self._threads, self._client)

    def __repr__(self) -> str:
        return f"OpenAILM({self.name!r}, base_url={self._address!r}, form={self.form!r})"

    @property
    def constrains(self) -> bool:
        """Whether completions can be held to a grammar: the server is said to take one."""
        return self.grammar is not None

    def close(self) -> None:
        """Ends the connections and threads; done by itself when the object goes."""
        self._finalizer()

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Continues each prompt at temperature 0; the requests of one call are in flight together.

        Raises:
            ServerError: the server is down, refuses all, does not know the model, or does not answer in time.
            ModelError: it refuses one of the requests. Either way the first failure ends the call.
            SetupError: a completion is to be held to a grammar, and how the server takes one is not said.
        """
        cancelled = threading.Event()
        futures = [self._threads.submit(self._complete, request, cancelled) for request in requests]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            return [future.result() for future in futures]
        finally:
            cancelled.set()
            for future in futures:
                future.cancel()

    def _complete(self, request: GenerationRequest, cancelled: threading.Event) -> Completion:
        stop = [s for s in request.stop if s]
        options: dict[str, Any] = {"temperature": 0, "max_tokens": request.max_tokens}
        if stop:
            options["stop"] = stop[:MAX_STOPS]
        if request.grammar is not None:
            options["extra_body"] = self._held_to(request.grammar)
        stream = stream_of(request)
        if stream is not None:
            options |= _STREAMED
        create: Callable[..., Any]
        if isinstance(request.prompt, str) and self.form != "chat":
            create = functools.partial(self._client.completions.create, prompt=request.prompt)
            part: Callable[[Any], Any] = _text_of
        else:
            turns = (Message("user", request.prompt),) if isinstance(request.prompt, str) else request.prompt
            messages: Any = [{"role": turn.role, "content": turn.content} for turn in turns]
            create = functools.partial(self._client.chat.completions.create, messages=messages)
            part = _content_of

        def send(given: dict[str, Any]) -> tuple[str, Any]:
            reply = create(model=self.name, **given)
            if stream is not None and isinstance(reply, openai.Stream):
                return _gather(reply, part, stream, cancelled)
            return _text(part(reply.choices[0])), reply.usage

        text, usage = self._ask(send, options, cancelled)
        # Some servers leave the stop text in the output.
        text = cut_at_stop(text, stop)
        if stream is not None:
            stream.finish(text)
        return Completion(
            text,
            prompt_tokens=getattr(usage, "prompt_tokens", 0) or 0,
            completion_tokens=getattr(usage, "completion_tokens", 0) or 0,
        )

    def _ask(self, send: Callable[[dict[str, Any]], _T], options: dict[str, Any], cancelled: threading.Event) -> _T:
        failures = 0
        while True:
            given = self._accepted(options)
            try:
                return send(given)
            except openai.BadRequestError as error:
                if not self._adapt(error, given):
                    self._fail(error, 1, _REFUSED_GRAMMAR if "extra_body" in given else "")
            except openai.APIError as error:
                failures += 1
                if not _transient(error) or failures > self.max_retries or cancelled.wait(_delay(error, failures)):
                    self._fail(error, failures)
            except _NotStreamedError:
                self._refused.add("stream")
            except (ValueError, AttributeError, TypeError, IndexError):
                raise ServerError(
                    f"{self._address} did not answer as an OpenAI-compatible server does.",
                    hint="Check base_url: it usually ends in /v1.",
                ) from None

    def _held_to(self, grammar: Grammar) -> dict[str, Any]:
        """Returns the fields that hold a completion to a grammar, of which OpenAI's own API knows nothing."""
        if self.grammar is None:
            raise SetupError(
                f"{self.name} at {self._address} cannot be held to a grammar.", hint=f"Use {_GRAMMAR_OPTION}."
            )
        return _GRAMMAR_FIELDS[self.grammar](grammar.gbnf)

    def _accepted(self, options: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in options.items() if name not in self._refused}
        if "stream" in self._refused:
            given.pop("stream_options", None)
        if "max_tokens" in self._refused:
            given["max_completion_tokens"] = options["max_tokens"]
        return given

    def _adapt(self, error: openai.BadRequestError, given: dict[str, Any]) -> bool:
        """Notes a parameter that this model does not take (reasoning models refuse some); False if it is not that."""
        if "stream_options" in given and "stream_options" in str(error.message):
            self._refused.add("stream_options")
            return True
        if error.code not in ("unsupported_parameter", "unsupported_value") or error.param not in given:
            return False
        if error.param == "max_tokens" or error.param in _OPTIONAL:
            self._refused.add(error.param)
            return True
        return False

    def _fail(self, error: openai.APIError, attempts: int, advice: str = "") -> NoReturn:
        tries = f" ({attempts} attempts)" if attempts > 1 else ""
        said = self._redact(_said(error))
        retryable = _transient(error)
        if isinstance(error, openai.APITimeoutError):
            if type(error.__cause__).__name__ == "ConnectTimeout":
                message, hint = f"Cannot reach the model server at {self._address}.", "Check base_url and the network."
            else:
                message = f"{self.name} at {self._address} did not answer within {self.timeout:g} s."
                hint = "Raise timeout or lower concurrency."
            retryable = True
        elif isinstance(error, openai.APIConnectionError):
            message = f"Cannot reach the model server at {self._address}{tries}: {said}."
            hint = "Is it running, and is base_url right?"
        elif isinstance(error, openai.APIStatusError):
            code = error.status_code
            message, hint = f"{self.name} at {self._address} answered {code}{tries}: {said}.", _HINTS.get(code, advice)
            if "chat model" in said:
                hint = 'Use form="chat".'
        else:
            message, hint = f"{self.name} at {self._address} failed: {said}.", ""
        kind = ModelError if getattr(error, "status_code", 0) in _ITS_OWN_FAULT else ServerError
        raise kind(message, hint=hint, retryable=retryable) from None

    def _redact(self, text: str) -> str:
        if self._key:
            text = text.replace(self._key, "[API key]")
        return _KEY_LIKE.sub("[API key]", text)


_ITS_OWN_FAULT = (400, 413, 422)
"""What a server says to one request, such as a prompt that is too long: others may fare better."""
_HINTS = {
    401: "Set OPENAI_API_KEY to a valid key.",
    403: "This key may not use this model.",
    404: "Check the model's name and base_url, which usually ends in /v1.",
    429: "Lower concurrency, or check the account's quota.",
}


def _close(threads: ThreadPoolExecutor, client: openai.OpenAI) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    client.close()


class _NotStreamedError(Exception):
    """The server answered in one piece, or with something else."""


def _gather(
    reply: openai.Stream[Any], part: Callable[[Any], Any], stream: TextStream, cancelled: threading.Event
) -> tuple[str, Any]:
    """Puts a streamed answer together and tells it on the way; returns it with the usage, if that came."""
    text, usage, seen, whole = "", None, False, False
    with reply:
        for chunk in reply:
            usage = getattr(chunk, "usage", None) or usage
            for choice in chunk.choices[:1]:
                seen = True
                text += _text(part(choice))
                whole = whole or choice.finish_reason is not None
            stream.tell(text)
            if cancelled.is_set():
                break
    if not seen:
        raise _NotStreamedError
    if not whole and not cancelled.is_set():
        raise openai.APIConnectionError(message="the answer broke off", request=reply.response.request)
    return text, usage


def _text_of(choice: Any) -> Any:
    return choice.text


def _content_of(choice: Any) -> Any:
    said = getattr(choice, "delta", None) or choice.message
    # A refusal, an empty turn or a piece without words has no content.
    return said.content or ""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _transient(error: openai.APIError) -> bool:
    if isinstance(error, openai.APITimeoutError):
        return False
    if isinstance(error, openai.APIStatusError):
        # An empty account also answers 429, and waiting does not fill it.
        return error.status_code >= 500 or (error.status_code == 429 and error.code != "insufficient_quota")
    return isinstance(error, openai.APIConnectionError)


def _delay(error: openai.APIError, failures: int) -> float:
    """Seconds to wait: exponential with jitter, or what the server asks for within reason."""
    backoff: float = min(_FIRST_DELAY_S * 2 ** (failures - 1), _LONGEST_DELAY_S) * random.uniform(0.75, 1.25)
    if isinstance(error, openai.APIStatusError):
        try:
            asked = float(error.response.headers.get("retry-after", ""))
        except ValueError:
            return backoff
        return min(max(asked, backoff), _LONGEST_RETRY_AFTER_S)
    return backoff


def _said(error: openai.APIError) -> str:
    """One line of what the server, or the network, said."""
    cause = error.__cause__
    body = error.body
    if isinstance(error, openai.APIStatusError):
        if isinstance(body, dict):
            text = str(body.get("message") or body.get("detail") or body.get("error") or error.message)
        else:
            text = str(body or error.response.reason_phrase)
    else:
        text = str(cause or error.message)
    line = " ".join(text.split())
    return (line[:200] + "...") if len(line) > 200 else line.rstrip(".") or type(error).__name__
