"""What libraries say when something fails, as a part of one line of ours."""

from __future__ import annotations

from pickle import UnpicklingError

__all__ = ["first_line"]


def first_line(error: BaseException) -> str:
    """Returns the first line of a message, without the advice that often follows it, and without its full stop."""
    if isinstance(error, UnpicklingError):  # PyTorch's message advises to load it unsafely
        return "it is damaged, or holds more than weights"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0].rstrip(".:!")[:300] if lines else ""
    return f"{type(error).__name__} {first}".strip() if isinstance(error, KeyError) or not first else first
