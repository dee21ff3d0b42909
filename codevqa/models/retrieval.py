"""Finds the in-context examples nearest to a question, by sentence embedding and dot product."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..core.errors import CodeVQAError, ModelError, ModelNotFoundError
from .library_errors import first_line, while_loading
from .request_queue import ModelLock, lock_of

Embedding = npt.NDArray[np.float32]
"""What a sentence is compared by, shape (width,)."""
Embed = Callable[[Sequence[str]], Awaitable[Sequence[Embedding]]]
"""Embeds sentences in a batch with those of others."""


class Retriever(Protocol):
    """Embeds sentences."""

    name: str

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns one embedding a sentence, shape (sentences, width)."""
        ...


_KEPT = 4096
"""Questions asked whose nearest are remembered."""
BATCH = 256
"""Sentences that a GPU embeds at once."""
_STATIC = ("StaticEmbedding", "Normalize")
"""What a folder's modules may be for :class:`StaticEmbedding`: the second is left out where nothing is normalised."""


class StaticEmbedding:
    """The mean of a vector for each token, perhaps normalised: a sentence-transformers model without a network.

    Args:
        folder: holds ``tokenizer.json`` and ``model.safetensors``.
        normalise: whether embeddings get length 1.

    Raises:
        OSError, ValueError, SafetensorError: a file is missing or damaged.
    """

    device = "cpu"

    def __init__(self, folder: Path, *, normalise: bool) -> None:
        from tokenizers import Tokenizer

        from .weights import read_weights

        weights = read_weights(folder)
        if set(weights) != {"embedding.weight"} or weights["embedding.weight"].ndim != 2:
            raise ValueError(f"its weights are not embedding.weight alone, but {', '.join(sorted(weights)) or 'none'}")
        self._vectors = weights["embedding.weight"]
        self.dtype = str(self._vectors.dtype)
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        rows, tokens = len(self._vectors), self._tokenizer.get_vocab_size()
        if tokens > rows:
            raise ValueError(f"tokenizer.json has {tokens} tokens, and embedding.weight {rows} rows")
        self._tokenizer.no_padding()
        self._normalise = normalise

    def encode(self, sentences: Sequence[str], **_: object) -> npt.NDArray[np.float32]:
        """Returns one embedding a sentence, shape (sentences, width)."""
        import torch
        from torch.nn import functional

        rows = [encoding.ids for encoding in self._tokenizer.encode_batch(list(sentences), add_special_tokens=False)]
        tokens = torch.tensor([token for row in rows for token in row], dtype=torch.long)
        offsets = torch.from_numpy(np.cumsum([0, *map(len, rows)])[:-1])
        embeddings = functional.embedding_bag(tokens, self._vectors, offsets)
        return np.asarray((functional.normalize(embeddings, dim=-1) if self._normalise else embeddings).float())

    @classmethod
    def of(cls, folder: Path) -> StaticEmbedding | None:
        """Returns the model in a folder; None where its modules are others."""
        from .weights import read_json

        try:
            modules = json.loads((folder / "modules.json").read_bytes())
            kinds = tuple(module["type"].rpartition(".")[2] for module in modules)
            known = all(module["type"].startswith("sentence_transformers.") for module in modules)
            known &= not read_json(folder / "config_sentence_transformers.json").get("default_prompt_name")
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None
        if not known or kinds not in (_STATIC[:1], _STATIC) or modules[0].get("path"):
            return None
        return cls(folder, normalise=len(kinds) == 2)


class SentenceRetriever:
    """A sentence-transformers model, from a folder or the hub (the paper: ``all-mpnet-base-v2``), on a GPU if there is
    one.

    Args:
        model: a :class:`StaticEmbedding`, or any ``SentenceTransformer``.
        name: id it reports.
        weights: what tells its weights from others; with it, embeddings of banks are kept in :func:`cache_folder`.
    """

    def __init__(self, model: Any, name: str, weights: str = "") -> None:
        self.name = name
        self._model = model
        self.turn = ModelLock(model)
        if str(model.device) != "cpu":
            from .gpu_lock import lock_on

            self.turn = lock_on(model.device, model)
        self.computes = f"{str(model.dtype).removeprefix('torch.')} on {model.device}"
        """Precision and device."""
        self.kept = f"{weights} {self.computes} {metadata.version('sentence-transformers')}" if weights else ""
        """What embeddings that are kept depend on; empty where none are."""

    @classmethod
    def from_pretrained(cls, name: str | Path) -> SentenceRetriever:
        """Loads a model.

        Raises:
            ModelNotFoundError: no such folder, or not on this machine and no network.
        """

        def load_error(why: str) -> ModelNotFoundError:
            return ModelNotFoundError(
                f"Cannot load the sentence embedding model {str(name)!r}: {why}.",
                hint="Check the name, the folder, or the network.",
            )

        folder = Path(name).expanduser()
        with while_loading(load_error):
            if static := StaticEmbedding.of(folder):
                return cls(static, str(name))
            import torch
            from sentence_transformers import SentenceTransformer

            gpu = torch.cuda.is_available()
            model = SentenceTransformer(str(name), device="cuda" if gpu else "cpu")
            return cls(model.double() if gpu else model, str(name), _told_apart(folder))

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns embeddings as the model gives them (``all-mpnet-base-v2`` normalises them itself)."""
        # An embedding must not depend on what else is in its batch: the order of near neighbours would, too. A GPU
        # takes many at once, in double precision; a processor takes them one by one.
        size = 1 if str(self._model.device) == "cpu" else BATCH
        with self.turn:
            rows = self._model.encode(list(sentences), batch_size=size, show_progress_bar=False)
        return np.asarray(rows, dtype=np.float32)


def embed(retriever: Retriever, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
    """Returns one embedding a sentence, shape (sentences, width).

    Raises:
        ModelError: the retriever failed.
    """
    try:
        with lock_of(retriever):
            return retriever.embed(sentences)
    except CodeVQAError:
        raise
    except BaseException as error:  # in a thread: whatever a retriever raises belongs to its callers
        why = f"{type(error).__name__}: {first_line(error)}"
        raise ModelError(f"The retriever {retriever.name} failed: {why}.") from error


def cache_folder() -> Path:
    """Returns the folder of kept embeddings. It may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "codevqa" / "embeddings"


def _told_apart(folder: Path) -> str:
    """Returns name, size and time of a folder's weights; empty where there are none."""
    files = [file.resolve() for file in sorted(folder.rglob("*.safetensors"))]
    stamps = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return json.dumps(stamps) if stamps else ""


def _read_embeddings(file: Path, sentences: int) -> npt.NDArray[np.float64] | None:
    """Returns kept embeddings; None where there are none, or others."""
    try:
        array = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return array if array.dtype == np.float64 and array.ndim == 2 and len(array) == sentences else None


def _keep(file: Path, embeddings: npt.NDArray[np.float64]) -> None:
    """Keeps embeddings for the next start, if the disk takes them."""
    mine = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with mine.open("wb") as out:
            np.save(out, embeddings)
        mine.replace(file)


class ExampleIndex:
    """The questions of a bank, each embedded once, as are those asked.

    Args:
        retriever: embeds the bank.
        questions: of the bank.
        views: what is embedded of a question; the similarities of several are added up.
    """

    def __init__(
        self, retriever: Retriever, questions: Sequence[str], views: Sequence[Callable[[str], str]] = (str,)
    ) -> None:
        self._retriever = retriever
        self._questions = list(questions)
        self._views = views
        self._banks: list[npt.NDArray[np.float64]] = []
        self._orders: dict[str, npt.NDArray[np.intp]] = {}
        self._opening = threading.Lock()

    def nearest(self, question: str, count: int) -> tuple[int, ...]:
        """Returns the places of the ``count`` nearest questions, most similar first; ties keep the bank's order.

        Raises:
            ModelError: the retriever failed.
        """
        order = self._orders.get(question)
        if order is None:
            self._open()
            order = self._learn(question, list(embed(self._retriever, self.sentences(question))))
        return tuple(int(place) for place in order[:count])

    async def prepare(self, question: str, embed: Embed) -> None:
        """Embeds a question together with others: :meth:`nearest` needs no model for it then.

        Raises:
            ModelError: the retriever failed.
        """
        if question not in self._orders:
            if not self._banks:
                await asyncio.to_thread(self._open)
            self._learn(question, await embed(self.sentences(question)))

    def sentences(self, question: str) -> list[str]:
        """Returns what is embedded of a question."""
        return [view(question) for view in self._views]

    def _learn(self, question: str, embeddings: Sequence[Embedding]) -> npt.NDArray[np.intp]:
        # Double precision: the order of near neighbours must not depend on how a machine sums.
        likeness = sum(bank @ row.astype(np.float64) for bank, row in zip(self._banks, embeddings, strict=True))
        order = self._orders[question] = np.argsort(-likeness, kind="stable")
        if len(self._orders) > _KEPT:
            self._orders.pop(next(iter(self._orders)), None)
        return order

    def _open(self) -> None:
        """Embeds the bank, or reads its embeddings of an earlier start: mpnet takes 5 to 40 s for them."""
        with self._opening:
            if not self._banks:
                self._banks = [self._bank(list(map(view, self._questions))) for view in self._views]

    def _bank(self, sentences: Sequence[str]) -> npt.NDArray[np.float64]:
        depends = getattr(self._retriever, "kept", "")
        if not depends:
            return embed(self._retriever, sentences).astype(np.float64)
        name = hashlib.sha256(json.dumps([depends, *sentences]).encode()).hexdigest()
        file = cache_folder() / f"{name}.npy"
        embeddings = _read_embeddings(file, len(sentences))
        if embeddings is None:
            embeddings = embed(self._retriever, sentences).astype(np.float64)
            _keep(file, embeddings)
        return embeddings
