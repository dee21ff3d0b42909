"""What one session of a run took of its machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

__all__ = ["Pace", "peaks"]


@dataclass(frozen=True)
class Pace:
    """One session: how much was asked in what time, and the most memory that this process took."""

    questions: int
    seconds: float
    peak_bytes: int | None = None
    """None where the system does not tell, or engines ran in other processes."""
    peak_gpu_bytes: int | None = None
    """None where there was no GPU."""

    def to_json(self) -> str:
        """Returns it as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Pace:
        """Reads what :meth:`to_json` wrote.

        Raises:
            ValueError: it is no such thing.
        """
        return TypeAdapter(cls).validate_json(text, strict=True)

    @classmethod
    def of(cls, sessions: Sequence[Pace]) -> Pace:
        """Returns several sessions as one; the larger peak of each kind, as far as it is known of all."""

        def largest(values: list[int | None]) -> int | None:
            known = [value for value in values if value is not None]
            return max(known) if len(known) == len(values) else None

        return cls(
            sum(one.questions for one in sessions),
            sum(one.seconds for one in sessions),
            largest([one.peak_bytes for one in sessions]),
            largest([one.peak_gpu_bytes for one in sessions]),
        )

    @property
    def rate(self) -> float | None:
        """Questions a second; None where nothing was asked."""
        return self.questions / self.seconds if self.questions and self.seconds else None


def peaks() -> tuple[int | None, int | None]:
    """Returns the most bytes that this process took so far, of memory and of GPUs' memory."""
    try:
        import resource
    except ImportError:  # pragma: no cover - Windows
        memory = None
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return memory, None
    return memory, sum(torch.cuda.max_memory_allocated(number) for number in range(torch.cuda.device_count()))
