"""Runs programs that a language model wrote, in workers that can open, start and reach nothing.

In: a program and a host that answers its calls. Out: what it left in ``answer``, or a typed error with its line.
"""

from ..core.settings import Limits
from .run import Host, Outcome
from .sandbox import Sandbox

__all__ = ["Host", "Limits", "Outcome", "Sandbox"]
