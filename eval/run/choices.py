"""From the words of a command to an engine for a data set: prompts, settings, record and replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ...core.errors import InputError
from ...engine.codevqa import CodeVQA
from ...presets.assembly import check_server
from ...presets.configuration import Configuration, Layer, configure, of_part
from ...presets.presets import preset as find_preset
from ...prompts import load
from ...writing.writer import by_form
from ..datasets import NAMES
from ..task import DataSet
from .record import record_engine, recorded_settings, replay_engine
from .store import Store

__all__ = ["engine_for", "preset_of", "prompts_for"]

EVERYTHING = Layer("evaluation", {"strict_domain": False})
"""Every question is put to the models, whatever they know, so that figures stay comparable."""


def preset_of(preset: str, replay: Path | None) -> str:
    """Returns the preset that a run is recorded under: the asked one, or that of the run that is replayed."""
    if replay is None or not Store.exists(replay):
        return preset
    with Store.open(replay) as store:
        return store.info.preset


def prompts_for(configuration: Configuration, dataset: DataSet) -> tuple[Layer, ...]:
    """Returns the data set's prompts, as a layer, where none were asked for and the preset has none of its own kind."""
    asked = configuration.settings.prompts is not None
    # A preset that names prompt sets of no data set has models of its own kind, and keeps its prompts.
    own = not set(NAMES) & set(find_preset(configuration.preset).prompts.values())
    return () if asked or own else (Layer(f"data set {dataset.name}", {"prompts": dataset.prompts}),)


def engine_for(
    dataset: DataSet,
    preset: str = "mini",
    layers: Sequence[Layer] = (),
    *,
    record: Path | None = None,
    replay: Path | None = None,
) -> Callable[[], CodeVQA]:
    """Returns what makes the engine for a data set; values are checked now, models are loaded when it is called.

    Args:
        dataset: its prompt set is used where no other was asked for and the preset has none of its own kind.
        preset: name of the preset, or a file.
        layers: values in place of the preset's.
        record: folder that keeps every model call.
        replay: folder whose calls answer in place of models; the layers' settings are then in place of those recorded.

    Raises:
        UnknownNameError: no such preset or back end.
        InputError: no such field, a value that it cannot have, or options exclude one another.
    """
    plain = configure(preset, layers)
    configuration = configure(preset, (EVERYTHING, *prompts_for(plain, dataset), *layers))

    def recorded() -> CodeVQA:
        assert record is not None
        check_server(configuration)
        return record_engine(record, configuration)

    def replayed() -> CodeVQA:
        assert replay is not None
        numbers = [
            replace(one, values={field: value for field, value in one.values.items() if not of_part(field)})
            for one in layers
        ]
        used = configure(preset, numbers, settings=recorded_settings(replay)).settings
        asked = used.prompts if any("prompts" in one.values for one in numbers) else None
        return replay_engine(replay, settings=used, prompts=None if asked is None else by_form(load(asked)))

    def live() -> CodeVQA:
        check_server(configuration)
        return CodeVQA.from_configuration(configuration)

    # A file, --compat or the environment says more than what is asked for here and now.
    asked_now = [one for one in layers if not (one.file or one.optional or one.origin == "environment")]
    models = [field for one in asked_now for field in one.values if of_part(field)]
    if replay is not None and (record is not None or models):
        raise InputError("A replay asks no model.", hint="Leave out --record, --language-model and other parts.")
    return replayed if replay is not None else recorded if record is not None else live
