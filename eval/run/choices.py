"""From the words of a command to an engine for a data set: prompts, settings, record and replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...core.errors import InputError, UnknownNameError
from ...core.settings import Settings
from ...core.trace import Method, methods_of
from ...engine.codevqa import CodeVQA
from ...engine.request import check_method
from ...presets.assembly import check_server, prompt_sets
from ...presets.configuration import Configuration, Layer, configure, flat, of_part
from ...presets.presets import preset as find_preset
from ..datasets import LOADERS
from ..task import METHODS, DataSet
from .record import record_engine, replay_engine
from .store import Store

EVERYTHING = Layer("evaluation", {"strict_domain": False})
"""Every question is put to the models, whatever they know, so that figures stay comparable."""
BLIP = methods_of(eyes=False, reads=True)
"""The two methods that the paper compares."""


def methods_for(asked: str, configuration: Configuration, replay: Path | None = None) -> tuple[Method, ...]:
    """Returns the methods that a command line names. Loads no model.

    Args:
        asked: names with commas between; ``both`` is ``codevqa,pnpvqa``, and ``all`` is every method that the models
            can do, or that the run asked which is replayed.
        configuration: of the models.
        replay: the run that answers in their place; calls that it did not record are told when they are missed.

    Raises:
        UnknownNameError: there is no such method.
        SetupError: the models cannot do it.
        InputError: what is to be replayed is no run.
    """
    every, able = configuration.methods, configuration.methods
    if replay is not None:
        with Store.open(replay) as store:
            every, able = store.info.methods, METHODS
    short: Mapping[str, Sequence[Method]] = {"all": every, "both": BLIP, **{name: (name,) for name in METHODS}}
    wanted: dict[Method, None] = {}
    for word in map(str.strip, asked.split(",")):
        if word not in short:
            raise UnknownNameError.of("method", word, METHODS, "; both, and all")
        wanted |= dict.fromkeys(short[word])
    for method in wanted:
        check_method(method, able)
    return tuple(wanted)


def prompts_for(configuration: Configuration, dataset: DataSet) -> tuple[Layer, ...]:
    """Returns the data set's prompts, as a layer, where none were asked for and the preset has none of its own kind."""
    asked = configuration.settings.prompts is not None
    # A preset that names prompt sets of no data set has models of its own kind, and keeps its prompts.
    own = not set(LOADERS) & set(find_preset(configuration.preset).prompts.values())
    return (
        ()
        if asked or own or not dataset.prompts
        else (Layer(f"data set {dataset.name}", {"prompts": dataset.prompts}),)
    )


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
        replay: run whose calls answer in place of models; the layers' settings are then in place of those recorded.

    Raises:
        UnknownNameError: no such preset or back end.
        InputError: no such field, a value that it cannot have, or options exclude one another.
    """
    if replay is not None:
        # A file, --compat or the environment says more than what is asked for here and now.
        asked_now = [layer for layer in layers if not (layer.file or layer.optional or layer.origin == "environment")]
        if record is not None or any(of_part(field) for layer in asked_now for field in layer.values):
            raise InputError("A replay asks no model.", hint="Leave out --record, --language-model and other parts.")
    plain = configure(preset, layers)
    configuration = configure(preset, (EVERYTHING, *prompts_for(plain, dataset), *layers))

    def live() -> CodeVQA:
        if replay is not None:
            return _open_replay(replay, layers)
        check_server(configuration)
        return CodeVQA.from_configuration(configuration) if record is None else record_engine(record, configuration)

    return live


def _open_replay(run: Path, layers: Sequence[Layer]) -> CodeVQA:
    """Returns the engine of a recorded run without its models, with other settings where layers say so."""
    with Store.open(run) as store:
        info = store.info
    numbers = [
        replace(layer, values={field: value for field, value in layer.values.items() if not of_part(field)})
        for layer in layers
    ]
    # An older version may have had other settings.
    recorded = {name: value for name, value in info.flat_settings.items() if name in flat(Settings())}
    configuration = configure(info.preset or "mini", [Layer(f"the run {run}", recorded), *numbers])
    engine = replay_engine(
        store.folder,
        configuration.settings,
        prompt_sets(find_preset(configuration.preset), configuration.settings.prompts),
    )
    engine.configuration = replace(configuration, parts={}, options={})
    return engine
