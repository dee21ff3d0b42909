"""What libraries raise when something fails, as one line of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pickle import UnpicklingError

from safetensors import SafetensorError

from ..core.errors import CodeVQAError

_DAMAGED = (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ImportError)


def first_line(error: BaseException) -> str:
    """Returns the first line of a message, without the advice that often follows it, and without its full stop."""
    if isinstance(error, UnpicklingError):  # PyTorch's message advises to load it unsafely
        return "it is damaged, or holds more than weights"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0].rstrip(".:!")[:300] if lines else ""
    return f"{type(error).__name__} {first}".strip() if isinstance(error, KeyError) or not first else first


@contextlib.contextmanager
def while_loading(make_error: Callable[[str], CodeVQAError]) -> Iterator[None]:
    """Turns whatever libraries raise over files that are missing, damaged or of another kind into an error of ours.

    Args:
        make_error: makes the error of the first line of what they say.
    """
    try:
        yield
    except CodeVQAError:
        raise
    except Exception as error:
        # tokenizers raises a plain Exception.
        known = isinstance(error, (*_DAMAGED, UnpicklingError, SafetensorError)) or type(error) is Exception
        if not known:
            raise
        raise make_error(first_line(error)) from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the advice and the bars of transformers off the terminal."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
