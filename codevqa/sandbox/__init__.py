"""Runs programs that a language model wrote: workers, one run, the static check, values across the boundary."""

from .sandbox import Host, Limits, Outcome, Sandbox

__all__ = ["Host", "Limits", "Outcome", "Sandbox"]
