"""Record and replay: an engine whose every model call is kept in a run's folder, and one that needs nothing else.

    with record_engine("RUN", configure("mini")) as vqa: ...     # asks the models, keeps what they say
    with replay_engine("RUN") as vqa: ...             # asks what was kept: no model, no torch

The replay derives each answer again, through retrieval, prompts, sandbox and post-processing, so that any of these may
change; a call that the change makes and the run did not is a :class:`~codevqa.core.errors.ReplayMissError`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import InputError, SetupError
from ...core.settings import Limits, QuerySettings, Settings, WriterSettings
from ...core.trace import Form
from ...engine.codevqa import CodeVQA
from ...models.base import Models
from ...presets.assembly import build, prompt_sets
from ...presets.checkpoints import resolve
from ...presets.configuration import Configuration, configure, public
from ...presets.presets import preset as find_preset
from ...prompts import PromptSet
from ...writing.writer import Writer
from .calls import FILE, CallStore, damaged
from .database import DAMAGE
from .recorded_model import RecordedModel

__all__ = ["RecordedCodeVQA", "record_engine", "record_parts", "recorded_settings", "replay_engine"]


class RecordedCodeVQA(CodeVQA):
    """An engine over recorded models. Closing it closes the record."""

    def __init__(self, writer: Writer, models: Models, settings: Settings, calls: CallStore) -> None:
        super().__init__(writer, models, settings)
        self.calls = calls

    def close(self) -> None:
        """Ends worker processes and threads, and closes the record. Safe to call twice."""
        super().close()
        self.calls.close()


def record_engine(folder: Path | str, configuration: Configuration | None = None) -> RecordedCodeVQA:
    """Builds an engine that keeps every model call in a folder, and asks no model twice for what is there.

    Args:
        folder: the run; made where it is absent. One that has calls already goes on with them.
        configuration: what the engine is made from; None takes the preset ``mini``.

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
        engine = RecordedCodeVQA(*record_parts(store, writer, models, about), here.settings, store)
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
    if roles := [role for role in {**known, **about} if _identity(known.get(role)) != _identity(about.get(role))]:
        raise SetupError(
            f"{store.path.parent} was recorded with another {' and another '.join(roles)}.",
            hint="Choose the models it was recorded with, or another folder.",
        )
    return _behind(store, writer, about, loaded)


def replay_engine(
    folder: Path | str, *, settings: Settings | None = None, prompts: PromptSet | Mapping[Form, PromptSet] | None = None
) -> RecordedCodeVQA:
    """Builds an engine that answers from recorded calls alone. Imports no model library.

    Args:
        folder: the run that was recorded, or a file in it.
        settings: in place of those it was recorded with (:func:`recorded_settings`).
        prompts: the prompt sets; None loads those it was recorded with.

    Raises:
        InputError: the folder has no recorded calls.
        UnknownNameError: its preset or prompt set is no longer there.
    """
    store = _opened(folder)
    try:
        used = settings or _settings(store)
        about = store.about("models")
        if about is None:
            raise InputError(f"{store.path} was begun but records no models.", hint="Record the run again.")
        try:
            if prompts is None:
                engine = _about_engine(store)
                prompts = prompt_sets(find_preset(engine["preset"]), engine["prompts"])
            writer = Writer(RecordedModel(store, about["writer"]), prompts, None, used.writer, seed=used.seed)
            return RecordedCodeVQA(*_behind(store, writer, about, {}), used, store)
        except DAMAGE as error:
            raise damaged(store.path, error) from None
    except BaseException:
        store.close()
        raise


def recorded_settings(folder: Path | str) -> Settings:
    """Returns the settings a run was recorded with, to change some of them for a replay.

    Raises:
        InputError: the folder has no recorded calls.
    """
    store = _opened(folder)
    try:
        return _settings(store)
    finally:
        store.close()


def _opened(folder: Path | str) -> CallStore:
    """Opens a run's calls to be read; a file in the run stands for the run."""
    place = Path(folder)
    return CallStore((place.parent if place.is_file() else place) / FILE, read_only=True)


def _identity(about: Mapping[str, Any] | None) -> object:
    """Returns what decides a model's results; the name that it reports may be a path on its machine."""
    return about and {key: value for key, value in about.items() if key != "name"}


def _behind(
    store: CallStore, writer: Writer, about: Mapping[str, Mapping[str, Any]], models: Mapping[str, Any]
) -> tuple[Writer, Models]:
    """Returns writer and models behind the record; a role without a model in ``models`` replays."""
    roles = {role: RecordedModel(store, about[role], models.get(role)) for role in about}
    # One object where there was one before: it is asked from one thread, and its batches are shared.
    if models["reader"] is models["writer"] if models else about["reader"] == about["writer"]:
        roles["reader"] = roles["writer"]
    recorded = writer.with_extra(())
    recorded.language_model, recorded.retriever = roles["writer"], roles.get("retriever")
    return recorded, Models(roles["reader"], roles["matcher"], roles["captioner"], roles.get("detector"))


def _about_engine(store: CallStore) -> dict[str, Any]:
    about: dict[str, Any] | None = store.about("engine")
    if about is None:
        raise InputError(
            f"{store.path} does not say which preset it was recorded with.", hint="Give prompts and settings."
        )
    return about


def _settings(store: CallStore) -> Settings:
    try:
        data = _about_engine(store)["settings"]
        nested = {"writer": WriterSettings, "query": QuerySettings, "limits": Limits}
        parts = {name: kind(**_known(kind, data[name])) for name, kind in nested.items()}
        return Settings(**{**_known(Settings, data), **parts})
    except DAMAGE as error:
        raise InputError(f"The settings in {store.path} are of another version: {error}.") from None


def _known(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that there still are: an older version may have had others."""
    return {one.name: data[one.name] for one in dataclasses.fields(kind) if one.name in data}


def _portable(name: str) -> str:
    """Returns a model's name with a folder inside this package as presets write it, wherever the package lies."""
    package = f"{resolve('@')}/"
    return f"@{name.removeprefix(package)}" if name.startswith(package) else name
