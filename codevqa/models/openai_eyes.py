"""A vision-language model on an OpenAI-compatible server."""

from __future__ import annotations

import base64
import io
import re
import threading
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Literal, Unpack

from cachetools import LRUCache, cached

from ..core.errors import NoEyesError, SetupError
from ..core.images import Picture
from .http_backend import Exchange
from .options import ServerOptions
from .protocols import LookRequest, Sight
from .served_model import ServedModel
from .server_reply import Failure

_KEPT_BYTES = 64 << 20
"""Encoded pictures that are kept for their next questions."""
_UNSURE = 0.05
"""Most of the choices' probability that may be anyone's."""
_BLIND = re.compile(
    r"(?:n[o']t|that) support (?:image|vision)|(?:images?|image input|vision) (?:is|are) not supported"
    r"|missing data required for image input|vision add-?on is not loaded|not a multi-?modal"
    r"|at most 0 image|type.{0,20}image_url|variant.{0,3}image_url|content'? must be a string",
    re.I,
)
"""What servers say whose model reads text alone; some with status 500."""


class OpenAIEyes(ServedModel):
    """A served vision-language model as :class:`~codevqa.models.protocols.Eyes`.

    Args:
        model: id of the model on the server.
        side: longest side, in pixels, of the pictures that are sent; larger ones are shrunk.
        detail: how closely OpenAI's models look; None leaves it to the server.
        structured: whether vLLM is to hold answers to the choices, where a request has some.
        server: see :class:`.options.ServerOptions`.

    Raises:
        SetupError: as :class:`.openai_client.OpenAIClient` says, or ``side`` or ``detail`` is out of range.
    """

    def __init__(
        self,
        model: str,
        *,
        side: int = 1024,
        detail: Literal["low", "high", "auto"] | None = None,
        structured: bool = False,
        **server: Unpack[ServerOptions],
    ) -> None:
        if side < 1 or detail not in ("low", "high", "auto", None):
            raise SetupError('side must be positive, and detail "low", "high", "auto" or none.')
        super().__init__(model, **server)
        self.side = side
        self.structured = structured
        self._detail = {} if detail is None else {"detail": detail}
        # Threads that want the same picture wait for the one that encodes it.
        self._data_uri = cached(
            LRUCache[str, str](_KEPT_BYTES, len), key=lambda picture: picture.key, condition=threading.Condition()
        )(lambda picture: _encode_picture(picture, side))

    def look(self, requests: Sequence[LookRequest]) -> list[Sight]:
        """Answers each request at temperature 0; the requests of one call are in flight together.

        Raises:
            ServerError, ModelError: as :meth:`.openai_lm.OpenAILM.generate` says; NoEyesError if the model
                reads text alone.
        """
        return self._together(self._look, requests)

    def _look(self, request: LookRequest, exchange: Exchange) -> Sight:
        shown = [{"url": self._data_uri(picture), **self._detail} for picture in request.pictures]
        content = [*({"type": "image_url", "image_url": url} for url in shown), {"type": "text", "text": request.text}]
        body: dict[str, Any] = {"max_tokens": request.max_tokens, "messages": [{"role": "user", "content": content}]}
        if request.choices:
            body |= {"logprobs": True, "top_logprobs": 20}  # no server tells more
            if self.structured:
                body["structured_outputs"] = {"choice": list(request.choices)}
        reply = self._ask(body, exchange)
        return Sight(
            # A word takes a token at least: what goes beyond was not asked for.
            _first_words(reply.text, request.max_tokens),
            chances(reply.beginnings, request.choices),
            reply.tokens("prompt_tokens"),
            reply.tokens("completion_tokens"),
            reply.thinks,
        )

    def _adapt(self, failure: Failure, sent: dict[str, Any]) -> frozenset[str]:
        if failure.status >= 400 and _BLIND.search(failure.detail):
            hint = "Name a vision-language model; llama.cpp's server also needs its --mmproj FILE."
            raise self._error(Failure("cannot see pictures", failure.detail, hint, NoEyesError), 1) from None
        return super()._adapt(failure, sent)


def chances(beginnings: Mapping[str, float], choices: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Returns the probability of each choice, from those of the tokens that an answer could have begun with.

    A token counts for the one choice that begins with it, in either case. None where much is left open: by tokens that
    begin several, and by choices without a token, each of which may be as likely as the last token listed.
    """
    by_choice, unsure = dict.fromkeys(choices, 0.0), 0.0
    for token, chance in beginnings.items():
        piece = token.strip().casefold()
        begun = [choice for choice in by_choice if piece and choice.strip().casefold().startswith(piece)]
        if len(begun) == 1:
            by_choice[begun[0]] += chance
        elif begun:
            unsure += chance
    total = sum(by_choice.values())
    unsure += sum(not chance for chance in by_choice.values()) * min(beginnings.values(), default=0)
    if not total or unsure > _UNSURE * total:
        return ()
    return tuple((choice, by_choice[choice] / total) for choice in choices)


def _first_words(text: str, count: int) -> str:
    """Returns a text up to the end of that many words."""
    end = 0
    for word in islice(re.finditer(r"\S+", text), count):
        end = word.end()
    return text[:end].strip()


def _encode_picture(picture: Picture, side: int) -> str:
    """Returns a picture as a data URI of a JPEG with at most ``side`` pixels a side."""
    pixels = picture.pixels
    scale = min(1.0, side / max(pixels.size))
    width, height = (max(1, round(count * scale)) for count in pixels.size)
    file = io.BytesIO()
    # A comment in the user's file would go with the pixels.
    pixels.resize((width, height), reducing_gap=2.0).save(file, "JPEG", quality=90, comment=b"")
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
