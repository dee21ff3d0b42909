"""What answers cost, in words: seconds without waiting, tokens, model calls, money where there is a price, and pace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..run.pace import Pace
from .figures import MethodCost, Summary

__all__ = ["Price", "calls_text", "cost_lines", "pace_text"]


@dataclass(frozen=True)
class Price:
    """What a million tokens cost, in whatever currency."""

    prompt: float
    completion: float

    def of(self, cost: MethodCost) -> float:
        """Returns the price of one question, on average."""
        return (cost.prompt_tokens * self.prompt + cost.completion_tokens * self.completion) / 1e6


def cost_lines(summary: Summary, pace: Pace | None) -> Iterator[str]:
    """Yields what a run cost, for a terminal."""
    for method, found in summary.methods.items():
        if (cost := found.cost) is not None:
            seconds = f"{cost.seconds:.3f} s (models {cost.model_seconds:.3f}, program {cost.program_seconds:.3f})"
            tokens = f"{cost.prompt_tokens:,.0f} + {cost.completion_tokens:,.0f} tokens"
            yield f"{method} cost a question  {seconds}, {tokens}, calls: {calls_text(cost.calls)}"
    if pace is not None:
        yield pace_text(pace)


def calls_text(calls: Mapping[str, float]) -> str:
    """Writes ``caption 11.1, match 1.5``: model calls a question."""
    return ", ".join(f"{kind} {count:,.1f}" for kind, count in calls.items())


def pace_text(pace: Pace) -> str:
    """Writes how fast a run went, and the most memory it took."""
    parts = [f"{pace.rate:.2f} questions a second"] if pace.rate is not None else []
    for name, peak in (("memory", pace.peak_bytes), ("GPU memory", pace.peak_gpu_bytes)):
        if peak is not None:
            parts.append(f"{peak / 2**30:.2f} GiB of {name} at most")
    return ", ".join(parts)
