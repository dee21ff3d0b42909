"""Record and replay: an engine whose every model call is kept in a run's folder, and one that needs nothing else.

The replay derives each answer again, through retrieval, prompts, sandbox and post-processing, so that any of these may
change; a call that the change makes and the run did not is a :class:`~codevqa.core.errors.ReplayMissError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import InputError, SetupError
from ...core.settings import Settings
from ...core.trace import Form
from ...engine.codevqa import CodeVQA
from ...models.base import Models
from ...presets.assembly import build
from ...presets.checkpoints import resolve
from ...presets.configuration import Configuration, public
from ...prompts import PromptSet
from ...writing.writer import Writer
from .calls import CallStore
from .database import DAMAGE
from .recorded_model import RecordedModel


class RecordedCodeVQA(CodeVQA):
    """An engine over recorded models. Closing it closes the record."""

    def __init__(self, writer: Writer, models: Models, settings: Settings, calls: CallStore) -> None:
        super().__init__(writer, models, settings)
        self.calls = calls

    def close(self) -> None:
        """Ends worker processes and threads, and closes the record. Safe to call twice."""
        super().close()
        self.calls.close()


def record_engine(folder: Path, configuration: Configuration) -> RecordedCodeVQA:
    """Builds an engine that keeps every model call in a folder, and asks no model twice for what is there.

    Args:
        folder: the run; made where it is absent. One that has calls already goes on with them.
        configuration: what the engine is made from.

    Raises:
        UnknownNameError: no such prompt set.
        ModelNotFoundError: a checkpoint is not here and cannot be fetched.
        InputError: the folder holds something else under the record's name.
        SetupError: the folder cannot be written, or was recorded with other models.
    """
    writer, models, here = build(configuration)
    about = {role: {"spec": spec, "options": public(here.options.get(role, {}))} for role, spec in here.parts.items()}
    about["writer"] = about["reader"] = about.pop("language_model")
    store = CallStore(folder)
    try:
        engine = RecordedCodeVQA(*record_parts(store, writer, models, about), here.settings, store)
    except BaseException:
        store.close()
        raise
    engine.configuration = here
    return engine


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
    known = store.models
    if known is None:
        store.models = known = about
    if roles := [role for role in {**known, **about} if _identity(known.get(role)) != _identity(about.get(role))]:
        raise SetupError(
            f"{store.path.parent} was recorded with another {' and another '.join(roles)}.",
            hint="Choose the models it was recorded with, or another folder.",
        )
    return _behind(store, writer, about, loaded)


def replay_engine(folder: Path, settings: Settings, prompts: PromptSet | Mapping[Form, PromptSet]) -> RecordedCodeVQA:
    """Builds an engine that answers from recorded calls alone. Imports no model library.

    Args:
        folder: the run that was recorded.
        settings: those of the run, or others.
        prompts: the prompt sets.

    Raises:
        InputError: the folder has no recorded calls.
    """
    store = CallStore(folder, read_only=True)
    try:
        about = store.models
        if about is None:
            raise InputError(f"{store.path} was begun but records no models.", hint="Record the run again.")
        try:
            writer = Writer(RecordedModel(store, about["writer"]), prompts, None, settings.writer, seed=settings.seed)
            return RecordedCodeVQA(*_behind(store, writer, about, {}), settings, store)
        except DAMAGE as error:
            raise store.damaged(error) from None
    except BaseException:
        store.close()
        raise


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


def _portable(name: str) -> str:
    """Returns a model's name with a folder inside this package as presets write it, wherever the package lies."""
    package = f"{resolve('@')}/"
    return f"@{name.removeprefix(package)}" if name.startswith(package) else name
