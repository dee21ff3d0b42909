"""Finds the in-context examples nearest to a question, by sentence embedding and dot product."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from ..core.errors import ModelNotFoundError
from .library_errors import first_line

__all__ = ["ExampleIndex", "Retriever", "SentenceRetriever"]


class Retriever(Protocol):
    """Embeds sentences."""

    name: str

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns one embedding a sentence, shape (sentences, width)."""
        ...


class SentenceRetriever:
    """A sentence-transformers model, from a folder or the hub (the paper: ``all-mpnet-base-v2``)."""

    def __init__(self, model: Any, name: str) -> None:
        self.name = name
        self._model = model

    @classmethod
    def from_pretrained(cls, name: str | Path) -> SentenceRetriever:
        """Loads a model.

        Raises:
            ModelNotFoundError: no such folder, or not on this machine and no network.
        """
        from sentence_transformers import SentenceTransformer

        try:
            return cls(SentenceTransformer(str(name), device="cpu"), str(name))
        except (OSError, ValueError, KeyError, ImportError, UnpicklingError) as error:
            raise ModelNotFoundError(
                f"Cannot load the sentence embedding model {str(name)!r}: {first_line(error)}.",
                hint="Check the name, the folder, or the network.",
            ) from None

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns embeddings as the model gives them (``all-mpnet-base-v2`` normalises them itself)."""
        return np.asarray(self._model.encode(list(sentences), show_progress_bar=False), dtype=np.float32)


_THREAD = ThreadPoolExecutor(1, "codevqa-retriever")
"""Tokenizers are not for several threads at once."""


class ExampleIndex:
    """The questions of a bank, each embedded once, as are those asked."""

    def __init__(self, retriever: Retriever, questions: Sequence[str]) -> None:
        self._retriever = retriever
        self._questions = list(questions)
        self._embeddings: npt.NDArray[np.float64] | None = None
        self._orders: LRUCache[str, npt.NDArray[np.intp]] = LRUCache(4096)
        self._lock = threading.Lock()

    def nearest(self, question: str, count: int) -> tuple[int, ...]:
        """Returns the places of the ``count`` nearest questions, most similar first; ties keep the bank's order."""
        return tuple(int(place) for place in self._order(question)[:count])

    async def prepare(self, question: str) -> None:
        """Embeds a question in a thread: :meth:`nearest` needs no time for it then.

        A model of the size of mpnet takes tens of milliseconds, which everybody else on the event loop would wait for.
        """
        if question not in self._orders:
            await asyncio.get_running_loop().run_in_executor(_THREAD, self._order, question)

    def _order(self, question: str) -> npt.NDArray[np.intp]:
        with self._lock:
            order = self._orders.get(question)
            if order is None:
                # In double precision the order of near neighbours does not depend on a machine's way of summing.
                if self._embeddings is None:
                    self._embeddings = self._retriever.embed(self._questions).astype(np.float64)
                scores = self._embeddings @ self._retriever.embed([question])[0].astype(np.float64)
                order = self._orders[question] = np.argsort(-scores, kind="stable")
            return order
