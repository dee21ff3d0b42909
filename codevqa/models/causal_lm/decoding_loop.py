"""What our own decoding loops have in common: what they do when memory is short."""

from __future__ import annotations

import torch

from .work import LMStats, Work


class DecodingLoop:
    """Greedy decoding of many texts at once, each of which may join and end on its own.

    Args:
        max_batch: texts decoded together at most.
        stats: counts what is done.
    """

    joins = False
    """Whether requests may join others that it works on."""

    def __init__(self, *, max_batch: int, stats: LMStats) -> None:
        self.max_batch, self.stats = max_batch, stats

    def run(self, work: Work) -> None:
        """Decodes all requests, and those that join them.

        What does not fit into memory is begun again with half as many texts at once; those that were done stay done.

        Raises:
            torch.OutOfMemoryError: not even one request fits.
        """
        while begun := len(work.open):
            try:
                self._run(work)
            except torch.OutOfMemoryError:
                used = self._decoded_together(begun)
                self.release()
                if used == 1:
                    raise
                self.max_batch = used // 2

    def release(self) -> None:
        """Gives back what is kept between calls."""
        raise NotImplementedError

    def _run(self, work: Work) -> None:
        """Decodes what is open, each request until it has ended; may return before all have."""
        raise NotImplementedError

    def _decoded_together(self, requests: int) -> int:
        """Returns how many texts were decoded together when memory ran out."""
        raise NotImplementedError
