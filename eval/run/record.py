"""Record and replay: an engine whose every model call is kept in a run's folder, and one that needs nothing else.

    with record_engine("RUN", configure("mini")) as vqa: ...     # asks the models, keeps what they say
    with replay_engine("RUN") as vqa: ...             # asks what was kept: no model, no torch

The replay derives each answer again, through retrieval, prompts, sandbox and post-processing, so that any of these may
change; a call that the change makes and the run did not is a :class:`~codevqa.core.errors.ReplayMissError`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from PIL import Image as PILImage

from ...core.errors import ImageError, InputError, ReplayMissError, SetupError
from ...core.images import ImageSource, Picture, load_picture
from ...core.settings import Limits, QuerySettings, Settings, WriterSettings
from ...core.trace import Form
from ...engine.codevqa import CodeVQA
from ...models.base import LanguageModel, Models
from ...presets.assembly import build, prompt_sets, resolve
from ...presets.configuration import Configuration, configure, public
from ...presets.presets import preset as find_preset
from ...primitives.signature import Primitive
from ...prompts import PromptSet
from ...writing.writer import Writer
from ..task import Example
from .calls import DAMAGE, FILE, CallStore, damaged, identities
from .recorded_models import RecordedCaptioner, RecordedDetector, RecordedLM, RecordedMatcher, RecordedRetriever

__all__ = [
    "RecordedCodeVQA",
    "record_engine",
    "record_parts",
    "recorded_settings",
    "replay_engine",
    "replay_parts",
]


class RecordedCodeVQA(CodeVQA):
    """An engine over recorded models. Closing it closes the record."""

    def __init__(
        self,
        writer: Writer,
        models: Models,
        settings: Settings,
        calls: CallStore,
        *,
        primitives: Iterable[Primitive] = (),
    ) -> None:
        super().__init__(writer, models, settings, primitives=primitives)
        self.calls = calls

    def __enter__(self) -> Self:
        return self

    def load(self, example: Example) -> list[ImageSource]:
        """Reads the pictures of an example, for :meth:`ask`.

        While recording, notes which they are. A replay takes that where a picture is gone: its size is known, so that
        programs run, and its key, so that calls are found; only its pixels cannot be looked at.

        Raises:
            ImageError: a picture cannot be read, and was not recorded.
        """
        pictures = []
        for position, image in enumerate(example.images):
            try:
                pictures.append(load_picture(image.load()))
            except ImageError:
                known = self.calls.picture(example.id, position) if self.calls.read_only else None
                if known is None:
                    raise
                key, size, name = known
                pictures.append(Picture(_Gone(size, name), key, name))
        if not self.calls.read_only:
            for position, picture in enumerate(pictures):
                self.calls.put_picture(example.id, position, picture.key, picture.pixels.size, picture.name)
        return list(pictures)

    def close(self) -> None:
        """Ends worker processes and threads, and closes the record. Safe to call twice."""
        super().close()
        self.calls.close()


def record_engine(
    folder: Path | str, configuration: Configuration | None = None, *, primitives: Iterable[Primitive] = ()
) -> RecordedCodeVQA:
    """Builds an engine that keeps every model call in a folder, and asks no model twice for what is there.

    Args:
        folder: the run; made where it is absent. One that has calls already goes on with them.
        configuration: what the engine is made from; None takes the preset ``mini``.
        primitives: primitives of your own. What they ask of models of their own is not recorded.

    Raises:
        UnknownNameError: no such prompt set.
        ModelNotFoundError: a checkpoint is not here and cannot be fetched.
        InputError: the folder holds something else under the record's name.
        SetupError: the folder cannot be written, or was recorded with other models.
    """
    writer, models, here = build(configuration or configure())
    about = {role: {"spec": spec, "options": public(here.options.get(role, {}))} for role, spec in here.parts.items()}
    about["writer"] = about["reader"] = about.pop("language_model")
    store = CallStore(Path(folder) / FILE)
    try:
        if store.about("engine") is None:
            shown = here.settings.prompts
            if shown is not None and Path(shown).is_dir():
                shown = str(Path(shown).absolute())
            known = {"preset": here.preset, "prompts": shown, "settings": dataclasses.asdict(here.settings)}
            store.set_about("engine", known)
        writer, models = record_parts(store, writer, models, about)
        engine = RecordedCodeVQA(writer, models, here.settings, store, primitives=primitives)
        engine.configuration = here
        return engine
    except BaseException:
        store.close()
        raise


def record_parts(
    store: CallStore, writer: Writer, models: Models, settings: Mapping[str, Mapping[str, Any]] = {}
) -> tuple[Writer, Models]:
    """Puts the record before every model of an engine.

    Args:
        store: where the calls go.
        writer: its language model and retriever are recorded.
        models: recorded too.
        settings: by role (``writer``, ``reader``, ``matcher``, ``captioner``, ``detector``, ``retriever``), what
            besides its name decides what a model answers, such as a temperature: plain JSON-ready data. It is stored,
            so it must hold no secret.

    Raises:
        SetupError: the store was recorded with other models.
    """
    loaded = {"writer": writer.language_model, "retriever": writer.retriever, **vars(models)}
    del loaded["domain"]  # what is recorded is asked, whatever the models know
    about: dict[str, dict[str, Any]] = {}
    for role, model in loaded.items():
        if model is not None:
            about[role] = {"name": model.name, "model": _portable(model.name), "settings": dict(settings.get(role, {}))}
            if hasattr(model, "grid"):
                about[role]["grid"] = int(model.grid)
            about[role] |= {name: True for name in ("chat", "chat_only") if getattr(model, name, False)}
    about = json.loads(json.dumps(about, default=str))  # as it will be read: keys must come out the same
    known = store.about("models")
    if known is None:
        store.set_about("models", about)
        known = about
    before, now = identities(known), identities(about)
    if roles := [role for role in {**before, **now} if before.get(role) != now.get(role)]:
        raise SetupError(
            f"{store.path.parent} was recorded with another {' and another '.join(roles)}.",
            hint="Choose the models it was recorded with, or another folder.",
        )
    return _wrap(store, writer, about, loaded)


def replay_engine(
    folder: Path | str,
    *,
    settings: Settings | None = None,
    prompts: PromptSet | Mapping[Form, PromptSet] | None = None,
    primitives: Iterable[Primitive] = (),
) -> RecordedCodeVQA:
    """Builds an engine that answers from recorded calls alone. Imports no model library.

    Args:
        folder: the run that was recorded, or a file in it.
        settings: in place of those it was recorded with (:func:`recorded_settings`).
        prompts: the prompt sets; None loads those it was recorded with.
        primitives: primitives of your own; needed where the run had any.

    Raises:
        InputError: the folder has no recorded calls.
        UnknownNameError: its preset or prompt set is no longer there.
    """
    store = CallStore(_file(folder), read_only=True)
    try:
        used = settings or _settings(store)
        if prompts is None:
            engine = _about_engine(store)
            try:
                prompts = prompt_sets(find_preset(engine["preset"]), engine["prompts"])
            except DAMAGE as error:
                raise damaged(store.path, error) from None
        writer, models = replay_parts(store, prompts, used)
        return RecordedCodeVQA(writer, models, used, store, primitives=primitives)
    except BaseException:
        store.close()
        raise


def replay_parts(
    store: CallStore, prompts: PromptSet | Mapping[Form, PromptSet], settings: Settings
) -> tuple[Writer, Models]:
    """Returns writer and models that answer from a store alone.

    Raises:
        InputError: the store says of no models.
    """
    about = store.about("models")
    if about is None:
        raise InputError(f"{store.path} was begun but records no models.", hint="Record the run again.")
    try:
        writer = Writer(RecordedLM(store, about["writer"]), prompts, None, settings.writer, seed=settings.seed)
        return _wrap(store, writer, about, {})
    except DAMAGE as error:
        raise damaged(store.path, error) from None


def recorded_settings(folder: Path | str) -> Settings:
    """Returns the settings a run was recorded with, to change some of them for a replay.

    Raises:
        InputError: the folder has no recorded calls.
    """
    store = CallStore(_file(folder), read_only=True)
    try:
        return _settings(store)
    finally:
        store.close()


# -- parts -----------------------------------------------------------------------------------------------------------


def _file(folder: Path | str) -> Path:
    """Returns where a run's calls are; a file in the run stands for the run."""
    place = Path(folder)
    return (place.parent if place.is_file() else place) / FILE


def _wrap(
    store: CallStore, writer: Writer, about: Mapping[str, Mapping[str, Any]], models: Mapping[str, Any]
) -> tuple[Writer, Models]:
    """Returns writer and models behind the record; a role without a model in ``models`` replays."""
    one: LanguageModel = RecordedLM(store, about["writer"], models.get("writer"))
    # One object where there was one before: it is asked from one thread, and its batches are shared.
    shared = models["reader"] is models["writer"] if models else about["reader"] == about["writer"]
    reader = one if shared else RecordedLM(store, about["reader"], models.get("reader"))
    recorded = writer.with_extra(())
    recorded.language_model = one
    if "retriever" in about:
        recorded.retriever = RecordedRetriever(store, about["retriever"], models.get("retriever"))
    return recorded, Models(
        reader,
        RecordedMatcher(store, about["matcher"], models.get("matcher")),
        RecordedCaptioner(store, about["captioner"], models.get("captioner")),
        RecordedDetector(store, about["detector"], models.get("detector")) if "detector" in about else None,
    )


def _about_engine(store: CallStore) -> dict[str, Any]:
    about: dict[str, Any] | None = store.about("engine")
    if about is None:
        raise InputError(
            f"{store.path} does not say which preset it was recorded with.", hint="Give prompts and settings."
        )
    return about


def _settings(store: CallStore) -> Settings:
    try:
        data = dict(_about_engine(store)["settings"])
        nested = {"writer": WriterSettings, "query": QuerySettings, "limits": Limits}
        parts = {name: kind(**data[name]) for name, kind in nested.items()}
        return Settings(**{**data, **parts})
    except DAMAGE as error:
        raise InputError(f"The settings in {store.path} are of another version: {error}.") from None


def _portable(name: str) -> str:
    """Returns a model's name with a folder inside this package as presets write it, wherever the package lies."""
    package = f"{resolve('@')}/"
    return f"@{name.removeprefix(package)}" if name.startswith(package) else name


class _Gone(PILImage.Image):
    """A picture of known size whose pixels are gone."""

    def __init__(self, size: tuple[int, int], name: str) -> None:
        super().__init__()
        self._mode = "RGB"
        self._size = size
        self._name = name

    def load(self) -> Any:
        """Fails always: the pixels are what is missing.

        Raises:
            ReplayMissError: always.
        """
        raise ReplayMissError(
            f"The pixels of {self._name or 'a picture'} were not recorded.", hint="Give the folder with the pictures."
        )
