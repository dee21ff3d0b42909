"""A language model on an OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack

from ..core.errors import SetupError
from .http_backend import Exchange
from .options import ServerOptions
from .protocols import Completion, GenerationRequest, cut_at_stop
from .served_model import ServedModel
from .text_stream import stream_of

MAX_STOPS = 4
"""Stop strings a server is asked to watch for, the limit of OpenAI's; the rest are cut off here."""
_CHARACTERS = 4
"""Of a token, by which it is estimated what a server did not count, as llama-cpp-python's does not where it streams."""
_STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


class OpenAILM(ServedModel):
    """A served model as a :class:`~codevqa.models.protocols.LanguageModel`.

    Args:
        model: id of the model on the server; for ``transformers serve`` a folder will do.
        form: prompts made of messages always go to the chat endpoint, and :attr:`chat` asks for such. ``"auto"`` sends
            text prompts to the legacy completions endpoint, ``"chat"`` sends them as one user message;
            ``"completion"`` is for base models, which are not to be talked with.
        server: see :class:`.options.ServerOptions`.

    Raises:
        SetupError: as :class:`.openai_client.OpenAIClient` says, or there is no such form.
    """

    def __init__(
        self,
        model: str,
        *,
        form: Literal["auto", "completion", "chat"] = "auto",
        **server: Unpack[ServerOptions],
    ) -> None:
        if form not in ("auto", "completion", "chat"):
            raise SetupError(f"Unknown form {form!r}.", hint='Use "auto", "completion" or "chat".')
        super().__init__(model, **server)
        self.form = form
        self.cheap = True
        """A server works on several texts at once."""
        self.chat = self.chat_only = form != "completion"
        """Whether it is to be talked with."""

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Continues each prompt at temperature 0; the requests of one call are in flight together.

        Raises:
            ServerError: the server is down, refuses all, does not know the model, or does not answer in time.
            ModelError: it refuses one of the requests, or answers it without a text. Either way the first failure ends
                the call.
        """
        return self._together(self._complete, requests)

    def _complete(self, request: GenerationRequest, exchange: Exchange) -> Completion:
        stop = [s for s in request.stop if s]
        body: dict[str, Any] = {"max_tokens": request.max_tokens}
        if stop:
            body["stop"] = stop[:MAX_STOPS]
        stream = stream_of(request)
        if stream is not None:
            body |= _STREAMED
        if not isinstance(request.prompt, str):
            body["messages"] = [{"role": turn.role, "content": turn.content} for turn in request.prompt]
        elif self.form == "chat":
            body["messages"] = [{"role": "user", "content": request.prompt}]
        else:
            body["prompt"] = request.prompt
        reply = self._ask(body, exchange, stream)
        # Some servers leave the stop text in the output.
        text = cut_at_stop(reply.text, stop)
        if stream is not None:
            stream.finish(text)
        read, written = reply.tokens("prompt_tokens"), reply.tokens("completion_tokens")
        if read or written:
            return Completion(text, read, written)
        prompt = request.prompt if isinstance(request.prompt, str) else "".join(turn.content for turn in request.prompt)
        return Completion(text, _tokens(prompt), _tokens(reply.text), estimated=True)


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS)
