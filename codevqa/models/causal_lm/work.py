"""What a decoding loop has to do: requests, those that join them on the way, and what has been made of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...core.errors import CodeVQAError
from ..base import Completion, GenerationRequest, RequestFeed
from .tokenised_request import FindEnd, TokenisedRequest


@dataclass
class LMStats:
    """What a language model of this process has done so far."""

    generate_calls: int = 0
    """Batches decoded by ``model.generate``."""
    steps: int = 0
    """Forward passes of a loop of our own that made tokens."""
    prefilled_tokens: int = 0
    """Prompt tokens run through the model, padding not counted."""
    reused_tokens: int = 0
    """Prompt tokens that were taken from a kept prefix, or one of the same batch, instead."""
    guessed_tokens: int = 0
    """Tokens that the model was given to confirm."""
    confirmed_tokens: int = 0
    """Tokens of those that it did confirm: each saved a step."""


class Work:
    """Requests to be decoded.

    Args:
        requests: the requests.
        find_end: says where each completion ends.
    """

    joins = False
    """Whether others may join."""

    def __init__(self, requests: Sequence[TokenisedRequest], find_end: FindEnd) -> None:
        self.open = {request.index: request for request in requests}
        """What has not ended."""
        self.made: dict[int, list[int]] = {}
        """Tokens of what has, by the request's index."""
        self.find_end = find_end

    def more(self, most: int) -> Sequence[TokenisedRequest]:
        """Returns up to ``most`` requests that have come meanwhile; they are open from now on."""
        return ()

    def end(self, request: TokenisedRequest, tokens: list[int]) -> None:
        """Takes what was made of a request."""
        del self.open[request.index]
        self.made[request.index] = tokens


class JoinedWork(Work):
    """Requests of many callers, taken as slots become free.

    Args:
        feed: has the requests, and takes what is made of them.
        tokenise: puts a request in tokens; what it raises is that request's answer.
        finish: makes a completion of tokens.
        find_end: says where each completion ends.
    """

    joins = True

    def __init__(
        self,
        feed: RequestFeed,
        tokenise: Callable[[int, GenerationRequest], TokenisedRequest],
        finish: Callable[[TokenisedRequest, Sequence[int]], Completion],
        find_end: FindEnd,
    ) -> None:
        super().__init__((), find_end)
        self._feed, self._tokenise, self._finish = feed, tokenise, finish

    def more(self, most: int) -> Sequence[TokenisedRequest]:
        """Returns up to ``most`` requests that have come meanwhile; they are open from now on."""
        taken: list[TokenisedRequest] = []
        for number, request in self._feed.take(most):
            try:
                one = self._tokenise(number, request)
            except CodeVQAError as error:
                self._feed.give(number, error)
                continue
            self.open[number] = one
            taken.append(one)
        return taken

    def end(self, request: TokenisedRequest, tokens: list[int]) -> None:
        """Hands out what was made of a request."""
        self.open.pop(request.index, None)
        self._feed.give(request.index, self._finish(request, tokens))
