"""Runs programs that a language model wrote: workers, one run, the static check, values across the boundary."""

from ..core.settings import Limits
from .run import Host, Outcome
from .sandbox import Sandbox

__all__ = ["Host", "Limits", "Outcome", "Sandbox"]
