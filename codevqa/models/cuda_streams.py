"""Short work on a GPU beside long work.

What is queued on one stream waits for all that was queued there before. A language model queues rounds of a tenth of a
second, a caption takes a few milliseconds: so the models that see have a stream of their own, which goes first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_FIRST = -1
"""Priority; that of the default stream is 0."""
_streams: dict[int, torch.cuda.Stream] = {}
"""By number of the GPU: "cuda" and "cuda:0" are one."""
_lock = threading.Lock()


@contextmanager
def short_work(device: torch.device) -> Iterator[None]:
    """Queues the block's work on the stream for short work; the default stream sees what it made."""
    if device.type != "cuda":
        yield
        return
    default = torch.cuda.default_stream(device)
    number = torch.cuda.current_device() if device.index is None else device.index
    with _lock:
        if number not in _streams:
            _streams[number] = torch.cuda.Stream(number, priority=_FIRST)  # type: ignore[no-untyped-call, unused-ignore]
        stream = _streams[number]
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        default.wait_stream(stream)


def loaded(device: torch.device) -> None:
    """Waits until a model's weights are where every stream can read them."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
