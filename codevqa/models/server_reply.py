"""What an OpenAI-compatible server answers: read within bounds of time and size, and checked before it is used.

A read that succeeds is enough for an HTTP client, however little it brought; and a server may send anything.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx2

from ..core.errors import ModelError, ServerError
from ..core.text import shown_address, whole_characters, without_thoughts

END = b"[DONE]"
"""What comes last of an answer that did not break off."""
_MOST = 16 << 20
"""Bytes of one answer."""
_LONGEST_SAID = 5000
"""Characters of what a server says of an error."""
_BUSY = (429, 503)
"""What a server says that will answer later, and perhaps in words when."""
_LATER = re.compile(
    r"(?:again|retry|wait)\D{0,30}?((?:[\d.]+ ?(?:ms|milli\w*|s|sec\w*|m|min\w*|h|hours?)(?![a-z]) ?)+)", re.I
)
_LOADING = re.compile(r"\bloading\b|\bloaded yet|starting up|warming up", re.I)
_UNITS = {"ms": 0.001, "mil": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "hou": 3600.0}
"""Seconds in each unit but the second, by its first letters."""
_THINKING_HINT = "Raise query.max_tokens (programs: writer.max_tokens), or turn the model's thinking off."
_OWN_FAULT = (400, 413, 422)
"""What a server says to one request, such as a prompt that is too long: others may fare better."""
_PASSING = (408, 409, 429)
"""What a server says that may answer the next time, besides all from 500 on."""
_STATUS_HINTS = {
    401: "Set OPENAI_API_KEY to a valid key.",
    403: "This key may not use this model.",
    404: "Check the model's name and OPENAI_BASE_URL, which usually ends in /v1.",
    429: "Lower concurrency, or check the account's quota.",
}

_T = TypeVar("_T")


@dataclass(eq=False)
class Failure(Exception):
    """Why a request failed, before the server and the attempts are named."""

    what: str
    """What the server did, or failed to do."""
    detail: str = ""
    """What it, or the network, said about that."""
    hint: str = ""
    """What to do."""
    kind: type[ModelError] = ServerError
    """ServerError, or ModelError where other requests may fare better."""
    passing: bool = False
    """Whether it may go well another time."""
    again: bool = False
    """Whether to try so at once."""
    status: int = 0
    """The HTTP status, where it is one."""
    about: tuple[str, str] = ("", "")
    """Code and parameter of a refusal, where the server names them."""
    wait: float = 0.0
    """Seconds that the server asks to wait."""
    busy: bool = False
    """Whether it says that it will answer after a while."""
    streamed: bool = False
    """Whether the answer may come if it is not streamed."""

    def __post_init__(self) -> None:
        self.detail = " ".join(whole_characters(self.detail[:_LONGEST_SAID]).split())


class ServerReply:
    """What a server has written so far of one text; each piece is checked as it is added."""

    def __init__(self) -> None:
        self.finish = ""
        """Why it ended, as the server says."""
        self.size = 0
        """Characters so far, thoughts included."""
        self.pieces: list[str] = []
        """What :meth:`add` was called with."""
        self._parts: list[str] = []
        self._refusal = ""
        self._usage: dict[str, Any] = {}
        self._logprobs: Any = None
        self._seen = self._thinks = False

    def add(self, data: bytes) -> None:
        """Adds a piece, or the whole answer.

        Raises:
            Failure: it has another form, or is an error.
        """
        chunk = _expect(_json(data), dict)
        self.pieces.append(data.decode("utf-8", "replace"))
        if chunk.get("error") or ("choices" not in chunk and (chunk.get("message") or chunk.get("detail"))):
            raise Failure("failed", _complaint(chunk)[0])
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        for entry in _expect(chunk.get("choices") or [], list)[:1]:  # the last piece may tell the usage alone
            choice = _expect(entry, dict)
            message = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
            message = _expect(message, dict)
            self._seen = self._seen or not choice.keys().isdisjoint(("delta", "message", "text"))
            self._parts.append(_content_text(message.get("content")))
            self.size += len(self._parts[-1])
            refusal = message.get("refusal")
            self._refusal += refusal[:_LONGEST_SAID] if isinstance(refusal, str) else ""
            called = "tool_calls" if message.get("tool_calls") else ""
            thinks = bool(message.get("reasoning_content") or message.get("reasoning"))
            self._thinks = self._thinks or thinks
            if not thinks:
                self._logprobs = self._logprobs or choice.get("logprobs")
            self.finish = str(choice.get("finish_reason") or called or self.finish)

    @property
    def _raw(self) -> str:
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    @property
    def text(self) -> str:
        """The text without the thoughts before it; empty while those go on."""
        text = whole_characters(self._raw)
        rest = without_thoughts(text, ended=bool(self.finish))
        # Those within the text are left to its readers: what was told before them is told already.
        return text if rest == text or not text.endswith(rest) else rest.lstrip()

    @property
    def thinks(self) -> bool:
        """Whether thoughts came with the text."""
        return self._thinks or self.text.strip() != whole_characters(self._raw).strip()

    @property
    def beginnings(self) -> dict[str, float]:
        """The likeliest tokens for the text to begin with, each with its probability; none where that isn't told."""
        try:
            first = self._logprobs["content"][0]
            token = first["token"].strip()
            # Others than the text's are those of thoughts.
            if not token or self.text != whole_characters(self._raw) or not self.text.lstrip().startswith(token):
                return {}
            return {
                str(candidate["token"]): math.exp(candidate["logprob"])
                for candidate in first["top_logprobs"]
                if candidate["logprob"] < 1
            }
        except (AttributeError, LookupError, OverflowError, TypeError):  # a server may tell anything
            return {}

    def tokens(self, kind: str) -> int:
        """Returns how many tokens the server counted, 0 where it doesn't say."""
        count = self._usage.get(kind)
        return count if type(count) is int and 0 <= count < 1 << 53 else 0

    def check(self, max_tokens: int, *, stops: bool = False) -> None:
        """Refuses an answer whose text is not there; it may be empty where it ``stops`` at what a prompt names.

        Raises:
            Failure: says why.
        """
        if not self._seen:
            raise _malformed_failure()
        if self.text.strip() and self.finish != "content_filter":
            return
        if self._refusal:
            raise Failure("refused to answer", self._refusal, kind=ModelError)
        ended = self.finish not in ("content_filter", "tool_calls", "function_call")
        thoughts = ended and (self._thinks or self._raw.strip())
        if self.finish == "length" or thoughts:
            what = "only thoughts" if thoughts else "no text"
            raise Failure(f"wrote {what} within {max_tokens} tokens", "", _THINKING_HINT, ModelError)
        if self.finish in ("tool_calls", "function_call"):
            raise Failure("called a tool in place of an answer", "", "Turn the server's tools off.", ModelError)
        if self.finish == "content_filter":
            raise Failure("withheld text: its content filter stepped in", kind=ModelError)
        if not stops and not self.text:
            raise Failure("wrote nothing", "", "Check the model's chat template, or ask another model.", ModelError)


def read_pieces(response: httpx2.Response) -> Iterator[bytes]:
    """Yields an answer in the pieces that :meth:`ServerReply.add` takes, one or each event of a stream, then the END.

    Args:
        response: the answer, none of which has been read.

    Raises:
        Failure: it is a refusal, or too large.
        httpx2.TransportError: it took too long, or the network failed.
    """
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":  # a few kilobytes may unpack to any size
        raise Failure(f"packed its answer ({encoding!r:.40}), which was not asked for", hint="Turn that off there.")
    streamed = response.headers.get("content-type", "").startswith("text/event-stream")
    pieces = limit_body(response)
    if not response.is_success:
        raise _refusal(response, b"".join(pieces))
    if not streamed:
        yield from (b"".join(pieces), END)
        return
    for line in _split_lines(pieces):
        kind, _, data = line.partition(b":")
        if kind in (b"data", b"error") and data.strip():  # llama.cpp tells errors so; the rest are comments
            yield data.strip()


def limit_body(response: httpx2.Response) -> Iterator[bytes]:
    """Yields a body as it comes; a :class:`Failure` ends one over 16 MB."""
    size = 0
    for chunk in response.iter_raw():
        size += len(chunk)
        if size > _MOST:
            raise Failure(f"sent an answer over {_MOST >> 20} MB")
        yield chunk


def _split_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    begun: list[bytes] = []
    for piece in pieces:
        begun.append(piece)
        if b"\n" in piece:
            *lines, rest = b"".join(begun).split(b"\n")
            yield from lines
            begun = [rest]
    yield b"".join(begun)


def _refusal(response: httpx2.Response, body: bytes) -> Failure:
    status, headers = response.status_code, response.headers
    if response.has_redirect_location:  # prompt and key are for the server that was named
        hint = "Set OPENAI_BASE_URL to where the server is."
        elsewhere = shown_address(headers["location"])
        return Failure(f"answered {status}, which points elsewhere", elsewhere, hint, status=status)
    try:
        message, about = _complaint(_json(body))
    except Failure:
        message, about = body.decode("utf-8", "replace"), ("", "")
    # An empty account also answers 429, and waiting does not fill it.
    again = status >= 500 or (status in _PASSING and about[0] != "insufficient_quota")
    wait = _wait(headers, message if status in _BUSY else "") if again else None
    busy = again and (wait is not None or (status in _BUSY and bool(_LOADING.search(message))))
    hint = 'Use form="chat".' if "chat model" in message else _STATUS_HINTS.get(status, "")
    kind = ModelError if status in _OWN_FAULT else ServerError
    message = message.strip() or response.reason_phrase
    what = f"answered {status}"
    return Failure(what, message, hint, kind, again, again, status, about, wait=wait or 0.0, busy=busy)


def _wait(headers: httpx2.Headers, words: str) -> float | None:
    """Returns the seconds that a server asks to wait, by its headers or in words; None where it does not."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        with suppress(ValueError):
            return max(0.0, float(value) * unit)
        with suppress(ValueError, OverflowError):
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    if (later := _LATER.search(words)) is None:
        return None
    times = re.findall(r"(\d+\.?\d*|\.\d+) ?([a-z]+)", later[1].lower())
    return sum(float(count) * _UNITS.get(unit[:3], 1.0) for count, unit in times)


def _complaint(data: object) -> tuple[str, tuple[str, str]]:
    """Returns what an error's body says, its code, and the parameter that it is about."""
    inner = data.get("error") or data if isinstance(data, dict) else data
    if not isinstance(inner, dict):
        return str(inner or ""), ("", "")
    message = inner.get("message") or inner.get("detail") or ""
    return str(message), (str(inner.get("code")), str(inner.get("param")))


def _content_text(content: object) -> str:
    """Returns the text of a content, which may come in parts; others than texts, such as thoughts, are left out."""
    if isinstance(content, list):
        parts = [_expect(part, dict) for part in content]
        return "".join(_content_text(part.get("text")) for part in parts if part.get("type") in ("text", "output_text"))
    return "" if content is None else _expect(content, str)


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise _malformed_failure() from None


def _expect(value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise _malformed_failure()
    return value


def _malformed_failure() -> Failure:
    hint = "Check OPENAI_BASE_URL: it usually ends in /v1."
    return Failure("did not answer as an OpenAI-compatible server does", hint=hint)
