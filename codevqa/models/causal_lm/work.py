"""What a decoding loop has to do: requests, and those that join them on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """Requests to be decoded, and those that join them as slots become free.

    Args:
        requests: what to begin with.
        find_end: says where each completion ends.
        give: takes the tokens that were made of a request.
        take: returns up to so many requests that have come meanwhile; None where none may join.
    """

    def __init__(
        self,
        requests: Sequence[TokenisedRequest],
        find_end: FindEnd,
        give: Callable[[TokenisedRequest, Sequence[int]], None],
        take: Callable[[int], Sequence[TokenisedRequest]] | None = None,
    ) -> None:
        self.open = {request.index: request for request in requests}
        """What has not ended."""
        self.find_end = find_end
        self.joins = take is not None
        self._give, self._take = give, take

    def more(self, most: int) -> Sequence[TokenisedRequest]:
        """Returns up to ``most`` requests that have come meanwhile; they are open from now on."""
        taken = self._take(most) if self._take is not None else ()
        self.open |= {request.index: request for request in taken}
        return taken

    def end(self, request: TokenisedRequest, tokens: list[int]) -> None:
        """Hands out what was made of a request."""
        del self.open[request.index]
        self._give(request, tokens)
