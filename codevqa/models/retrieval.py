"""Finds the in-context examples nearest to a question, by sentence embedding and dot product."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..core.errors import CodeVQAError, ModelError, ModelNotFoundError
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


class ExampleIndex:
    """The questions of a bank, embedded once."""

    def __init__(self, retriever: Retriever, questions: Sequence[str]) -> None:
        self._retriever = retriever
        # In double precision the order of near neighbours does not depend on a machine's way of summing.
        self._embeddings = self._embed(questions)
        self._nearest = lru_cache(maxsize=4096)(self._search)

    def nearest(self, question: str, count: int) -> tuple[int, ...]:
        """Returns the places of the ``count`` nearest questions, most similar first; ties keep the bank's order.

        Raises:
            ModelError: the retriever failed.
        """
        return self._nearest(question, count)

    def _search(self, question: str, count: int) -> tuple[int, ...]:
        scores = self._embeddings @ self._embed([question])[0]
        return tuple(int(place) for place in np.argsort(-scores, kind="stable")[:count])

    def _embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float64]:
        try:
            return self._retriever.embed(sentences).astype(np.float64)
        except CodeVQAError:
            raise
        except Exception as error:  # whatever a retriever raises belongs to its callers
            name = self._retriever.name
            raise ModelError(f"The retriever {name} failed: {type(error).__name__}: {first_line(error)}.") from error
