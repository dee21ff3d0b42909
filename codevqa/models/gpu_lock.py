"""The turn of a network on a GPU, which has a stream of its own there.

What threads of a process send to a GPU goes into one stream unless they say otherwise, and a stream is worked off in
its order: a caption would wait until the language model has read the prompts of all other questions. Of two streams the
GPU works on both. Nothing is under way when a turn ends, so whoever shares its parts finds them as they are.
"""

from __future__ import annotations

import torch

from .request_queue import ModelLock


def lock_on(device: torch.device, *parts: object, urgent: bool = True) -> ModelLock:
    """Returns a turn over parts that are on a device.

    Args:
        device: where they are.
        parts: see :class:`.turn.ModelLock`.
        urgent: whether a GPU is to begin with its work before other work that waits: for networks that take
            milliseconds.
    """
    return _StreamLock(device, *parts, urgent=urgent) if device.type == "cuda" else ModelLock(*parts)


class _StreamLock(ModelLock):
    def __init__(self, device: torch.device, *parts: object, urgent: bool) -> None:
        super().__init__(*parts)
        self._device = device
        self._stream = torch.cuda.Stream(device, priority=-1 if urgent else 0)  # type: ignore[no-untyped-call]
        self._entered: list[torch.cuda.StreamContext] = []

    def __enter__(self) -> None:
        super().__enter__()
        context = torch.cuda.stream(self._stream)
        try:
            context.__enter__()  # type: ignore[no-untyped-call]
            # Weights, and what a caller has made, may still be on their way.
            self._stream.wait_stream(torch.cuda.default_stream(self._device))
        except BaseException:  # a GPU that has failed
            super().__exit__()
            raise
        self._entered.append(context)

    def __exit__(self, *error: object) -> None:
        try:
            self._stream.synchronize()
        finally:
            self._entered.pop().__exit__(*error)
            super().__exit__(*error)
