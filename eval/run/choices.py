"""From the words of a command to an engine for a data set: prompts, settings, record and replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ...core.errors import InputError
from ...core.settings import Settings, with_form
from ...engine.codevqa import CodeVQA
from ...presets.presets import Preset
from ...presets.presets import preset as find_preset
from ...prompts import load
from ...writing.writer import by_form
from ..task import DataSet, Method
from .record import record_engine, recorded_settings, replay_engine
from .store import Store

__all__ = ["engine_for", "methods_of", "preset_of", "prompts_for", "settings_for"]

PAPER = frozenset(("gqa", "covr", "nlvr2"))
"""Prompt sets made for data sets; a preset that names others has models of its own kind, and keeps its prompts."""


def methods_of(word: str) -> tuple[Method, ...]:
    """Returns the methods a word names: ``codevqa``, ``pnpvqa`` or ``both``.

    Raises:
        InputError: it names none.
    """
    known: Mapping[str, tuple[Method, ...]] = {
        "both": ("codevqa", "pnpvqa"),
        "codevqa": ("codevqa",),
        "pnpvqa": ("pnpvqa",),
    }
    if word not in known:
        raise InputError(f"No method {word!r}.", hint=f"There are: {', '.join(known)}.")
    return known[word]


def preset_of(preset: str, replay: Path | None) -> str:
    """Returns the preset that a run is recorded under: the asked one, or that of the run that is replayed."""
    if replay is None or not Store.exists(replay):
        return preset
    with Store.open(replay) as store:
        return store.info.preset


def prompts_for(preset: Preset, dataset: DataSet, asked: str | None = None) -> str | None:
    """Returns the prompt set in place of the preset's, or None: what was asked for, else the data set's."""
    if asked is not None or not PAPER & set(preset.prompts.values()):
        return asked
    return dataset.prompts


def settings_for(
    preset: Preset, *, seed: int | None = None, workers: int | None = None, form: str | None = None
) -> Settings:
    """Returns the preset's settings with some numbers replaced.

    Raises:
        InputError: fewer than one worker, or no such form.
    """
    used = preset.settings if form is None else with_form(preset.settings, form)
    if workers is not None:
        if workers < 1:
            raise InputError(f"{workers} workers cannot work.", hint="Give at least one.")
        used = replace(used, workers=workers)
    return used if seed is None else replace(used, seed=seed)


def engine_for(
    dataset: DataSet,
    *,
    preset: str = "mini",
    prompts: str | None = None,
    language_model: str | None = None,
    seed: int | None = None,
    workers: int | None = None,
    form: str | None = None,
    record: Path | None = None,
    replay: Path | None = None,
) -> Callable[[], CodeVQA]:
    """Returns what makes the engine for a data set; names are checked now, models are loaded when it is called.

    Args:
        dataset: its prompt set is used where the preset has none of its own kind.
        preset: name of the preset.
        prompts: prompt set in place of both.
        language_model: in place of the preset's, as ``back end:id``.
        seed: in place of the preset's.
        workers: in place of the preset's.
        form: of prompts: ``auto``, ``completion`` or ``chat``; None takes the preset's.
        record: folder that keeps every model call.
        replay: folder whose calls answer in place of models; settings and prompts are then those recorded.

    Raises:
        UnknownNameError: no such preset.
        InputError: the numbers make no sense, or options exclude one another.
    """
    chosen = find_preset(preset)
    settings = settings_for(chosen, seed=seed, workers=workers, form=form)
    named = prompts_for(chosen, dataset, prompts)

    def recorded() -> CodeVQA:
        assert record is not None
        return record_engine(record, preset, prompts=named, settings=settings, language_model=language_model)

    def replayed() -> CodeVQA:
        assert replay is not None
        used = recorded_settings(replay)
        used = replace(used, seed=used.seed if seed is None else seed, workers=workers or used.workers)
        return replay_engine(replay, settings=used, prompts=None if prompts is None else by_form(load(prompts)))

    def live() -> CodeVQA:
        return CodeVQA.from_preset(preset, prompts=named, settings=settings, language_model=language_model)

    if replay is not None and (record is not None or language_model is not None):
        raise InputError("A replay asks no model.", hint="Leave out --record and --language-model.")
    return replayed if replay is not None else recorded if record is not None else live
