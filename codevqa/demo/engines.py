"""The engines behind the page: one for each preset, loaded once, and never downloaded at a visitor's wish."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ..core.errors import CodeVQAError, ModelNotFoundError
from ..presets.assembly import whole
from ..presets.checkpoints import missing
from ..presets.configuration import Configuration, Layer, configure
from ..presets.presets import PRESETS, preset

if TYPE_CHECKING:
    from ..engine.codevqa import CodeVQA

__all__ = ["Engines", "lacking"]

PATIENCE = 20.0
"""Seconds that the end waits for models that are being loaded."""


def lacking(configuration: Configuration) -> dict[str, str]:
    """Says what this machine lacks of a configuration: ``{"back end:id": what}``, empty when nothing. Loads nothing.

    Nor does it ask PyTorch what the processor can, which takes seconds that the page would wait for: a language model
    in eight bits comes from the same files.

    Raises:
        SetupError: it leaves the language model to be chosen.
    """
    told = {spec: missing(spec) for spec in whole(configuration).parts.values()}
    return {spec: what for spec, what in told.items() if what}


class Engines:
    """Engines by preset. Safe to use from many threads.

    Args:
        default: the preset that is loaded first, and whose missing models may be fetched: whoever started the server
            named it. The other presets are served where all their models are here already. A file stands for the
            preset it builds on.
        layers: values in place of every preset's own.

    Raises:
        UnknownNameError: no such preset or back end.
        InputError: no such field, or a value that it cannot have.
    """

    def __init__(self, default: str = "mini", layers: Sequence[Layer] = ()) -> None:
        self._first = configure(default, layers)
        self._layers = layers
        self.default = self._first.preset
        self._lock = threading.Lock()
        self._loading: dict[str, Future[CodeVQA]] = {}
        self._loader: threading.Thread | None = None

    def start(self, report: Callable[[str], None]) -> None:
        """Begins to load the default preset in a thread of its own; a failure is reported, and told to whoever asks."""

        def load() -> None:
            try:
                self.get(self.default)
            except CodeVQAError as error:
                report(str(error))

        self._loader = threading.Thread(target=load, name="codevqa-load", daemon=True)
        self._loader.start()

    def loaded(self, name: str) -> bool:
        """Whether a preset is ready to answer."""
        future = self._loading.get(name)
        return future is not None and future.done()

    def choices(self) -> list[tuple[str, str]]:
        """Returns the presets as (what to show, name), those that cannot be picked marked."""
        return [(f"{name} ({why})" if (why := self._hindrance(name)) else name, name) for name in PRESETS]

    def _hindrance(self, name: str) -> str:
        configuration = self.configuration(name)
        if "language_model" not in configuration.parts:
            return "needs --language-model"
        return "models not on this machine" if name != self.default and lacking(configuration) else ""

    def configuration(self, name: str) -> Configuration:
        """Returns what the engine of a preset is made from.

        Raises:
            UnknownNameError: no such preset.
        """
        return self._first if name == self.default else configure(name, self._layers)

    def get(self, name: str) -> CodeVQA:
        """Returns the engine of a preset; the first call loads it, which may take long.

        Raises:
            UnknownNameError: no such preset.
            SetupError: models are missing; the message names them.
        """
        preset(name)
        with self._lock:
            future = self._loading.get(name)
            mine = future is None
            if future is None:
                future = self._loading[name] = Future()
        if mine:
            self._fulfil(name, future)
        return future.result()

    def close(self) -> None:
        """Ends all engines; one that still loads may finish first, but not if it downloads for long."""
        if self._loader is not None:
            self._loader.join(PATIENCE)  # a process that ends in the middle of importing torch dies of it
        with self._lock:
            loading, self._loading = self._loading, {}
        for future in loading.values():
            if future.done() and future.exception() is None:
                future.result().close()

    def _fulfil(self, name: str, future: Future[CodeVQA]) -> None:
        try:
            engine = self._load(name)
        except Exception as error:
            with self._lock:
                del self._loading[name]  # whatever is missing may be here at the next try
            future.set_exception(error)
            raise
        future.set_result(engine)

    def _load(self, name: str) -> CodeVQA:
        configuration = self.configuration(name)
        if name != self.default:
            lacks = lacking(configuration)
            if lacks:
                raise ModelNotFoundError(_told(name, lacks), hint=HINT)
        from ..engine.codevqa import CodeVQA

        return CodeVQA.from_configuration(configuration)


HINT = "Whoever runs this page can start it with codevqa demo --preset NAME, which fetches what is missing."


def _told(name: str, lacks: dict[str, str]) -> str:
    reasons = {what: [spec.partition(":")[2] for spec, why in lacks.items() if why == what] for what in lacks.values()}
    parts = "; ".join(f"{', '.join(models)} ({what})" for what, models in reasons.items())
    return f"The preset {name} cannot answer here without {parts}."
