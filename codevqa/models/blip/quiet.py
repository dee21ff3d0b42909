"""Transformers without its reports: what they would tell is checked here, and raises."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from huggingface_hub.utils.tqdm import enable_progress_bars
from transformers.utils import logging as transformers_logging

_guard = threading.RLock()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences transformers' load report and its bars, not those of downloads."""
    with _guard:
        verbosity = transformers_logging.get_verbosity()
        bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()  # which hides downloads too, and those can take long
        enable_progress_bars()
        try:
            yield
        finally:
            transformers_logging.set_verbosity(verbosity)
            if bars:
                transformers_logging.enable_progress_bar()
