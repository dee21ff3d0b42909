"""Whether anybody still waits for what a model works on: callers tell it, and models that can stop ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_UNWANTED: ContextVar[Callable[[int], bool]] = ContextVar("codevqa-unwanted", default=lambda number: False)


@contextmanager
def unwanted_once(over: Sequence[Callable[[], bool]]) -> Iterator[None]:
    """Tells the model that is called in the block, for each of its requests, whether nobody waits for it any more.

    The result of such a request is of no use to anybody; its place must be filled, with whatever it is.
    """
    token = _UNWANTED.set(lambda number: over[number]())
    try:
        yield
    finally:
        _UNWANTED.reset(token)


def unwanted() -> Callable[[int], bool]:
    """Returns what says whether a request of this call, by its number, is wanted no more; from any thread."""
    return _UNWANTED.get()
