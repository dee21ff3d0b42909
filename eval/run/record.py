"""Record and replay: an engine whose every model call is kept in a run's folder, and one that needs nothing else.

The replay derives each answer again, through retrieval, prompts, sandbox and post-processing, so that any of these may
change; a call that the change makes and the run did not is a :class:`~codevqa.core.errors.ReplayMissError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from ...collections.disk_memory import CALLS, DiskMemory
from ...core.errors import InputError, SetupError
from ...core.settings import Settings
from ...core.trace import Form
from ...engine.codevqa import CodeVQA
from ...models.protocols import Models
from ...models.recorded import RecordedModel
from ...plugins import primitives
from ...presets.assembly import build
from ...presets.checkpoints import resolve
from ...presets.configuration import Configuration, public
from ...prompts import PromptSet
from ...writing.writer import Writer


def record_engine(folder: Path, configuration: Configuration) -> CodeVQA:
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
    parts = {role: {"spec": spec, "options": public(here.options.get(role, {}))} for role, spec in here.parts.items()}
    parts["writer"] = parts["reader"] = parts.pop("language_model")
    engine = record_parts(folder, writer, models, here.settings, parts)
    engine.configuration = here
    engine.own_parts += [writer.language_model, writer.retriever, *vars(models).values()]
    return engine


def record_parts(
    folder: Path, writer: Writer, models: Models, settings: Settings, parts: Mapping[str, Mapping[str, Any]] = {}
) -> CodeVQA:
    """Builds such an engine over parts of your own; closing it closes the record, and leaves the models as they are.

    Args:
        folder: the run.
        writer: its language model and retriever are recorded.
        models: recorded too.
        settings: every number of the method.
        parts: by role (``writer``, ``reader``, ``matcher``, ``captioner``, ``detector``, ``eyes``, ``retriever``), what
            besides its name decides what a model answers, such as a temperature: plain JSON-ready data. It is stored,
            so it must hold no secret.

    Raises:
        InputError: the folder holds something else under the record's name.
        SetupError: the folder cannot be written, or was recorded with other models.
    """
    loaded = {"writer": writer.language_model, "retriever": writer.retriever, **vars(models)}
    del loaded["domain"]  # what is recorded is asked, whatever the models know
    recorded: dict[str, dict[str, Any]] = {}
    for role, model in loaded.items():
        if model is not None:
            # A folder inside this package, as presets write it: the package may lie elsewhere when it is replayed.
            name = model.name.replace(f"{resolve('@')}/", "@")
            recorded[role] = {"name": model.name, "model": name, "settings": dict(parts.get(role, {}))}
            if hasattr(model, "grid"):
                recorded[role]["grid"] = int(model.grid)
            recorded[role] |= {name: True for name in ("chat", "chat_only", "cheap") if getattr(model, name, False)}
            if (shots := getattr(model, "reading_shots", None)) is not None:
                recorded[role]["reading_shots"] = shots
    about = json.loads(json.dumps(recorded, default=str))  # as it will be read: keys must come out the same
    with ExitStack() as opened:
        store = opened.enter_context(closing(DiskMemory(folder / CALLS)))
        known = store.models
        if known is None:
            store.models = known = about
        if roles := [role for role in {**known, **about} if _identity(known.get(role)) != _identity(about.get(role))]:
            raise SetupError(
                f"{folder} was recorded with another {' and another '.join(roles)}.",
                hint="Choose the models it was recorded with, or another folder.",
            )
        engine = _engine(store, writer, settings, about, loaded)
        opened.pop_all()
    return engine


def replay_engine(folder: Path, settings: Settings, prompts: PromptSet | Mapping[Form, PromptSet]) -> CodeVQA:
    """Builds an engine that answers from recorded calls alone. Imports no model library.

    Args:
        folder: the run that was recorded.
        settings: those of the run, or others.
        prompts: the prompt sets.

    Raises:
        InputError: the folder has no recorded calls.
    """
    with ExitStack() as opened:
        store = opened.enter_context(closing(DiskMemory(folder / CALLS, read_only=True)))
        about = store.models
        if about is None:
            raise InputError(f"{store.path} was begun but records no models.", hint="Record the run again.")
        with store.intact():
            model, extra = RecordedModel(store, about["writer"]), primitives()
            writer = Writer(model, prompts, None, settings.writer, extra=extra, seed=settings.seed)
            engine = _engine(store, writer, settings, about, {})
        opened.pop_all()
    return engine


def _identity(about: Mapping[str, Any] | None) -> object:
    """Returns what decides a model's results; the name that it reports may be a path on its machine."""
    return about and {key: value for key, value in about.items() if key != "name"}


def _engine(
    store: DiskMemory,
    writer: Writer,
    settings: Settings,
    about: Mapping[str, Mapping[str, Any]],
    models: Mapping[str, Any],
) -> CodeVQA:
    """Returns an engine behind the record, which it closes; a role without a model in ``models`` replays."""
    roles: dict[str, Any] = {role: RecordedModel(store, about[role], models.get(role)) for role in about}
    if about["reader"] == about["writer"]:  # one object: it is asked from one thread, and its batches are shared
        roles["reader"] = roles["writer"]
    recorded = writer.with_extra(())
    recorded.language_model, recorded.retriever = roles["writer"], roles.get("retriever")
    looking = {role: roles.get(role) for role in ("matcher", "captioner", "detector", "eyes")}
    engine = CodeVQA(recorded, Models(roles["reader"], **looking), settings)
    engine.own_parts.append(store)
    return engine
