"""From ``back end:id`` to a model, and from a preset to everything an engine needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from logging import ERROR, getLogger
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError, SetupError, UnknownNameError
from ..core.trace import Form
from ..models import options
from ..models.base import LanguageModel, Models
from ..models.retrieval import Retriever
from ..primitives.visual import find_object
from ..prompts import PromptSet
from ..prompts import load as load_prompts
from ..writing.writer import Writer, by_form
from .checkpoints import hub_id, lies, missing, offline, resolve, shown
from .fetching import fetch
from .fields import hints
from .presets import Preset, preset

if TYPE_CHECKING:
    from ..models.domain import Domain
    from .configuration import Configuration

__all__ = ["build", "check_server", "load", "missing", "options_of", "prompt_writer", "resolve", "whole"]


@dataclass(frozen=True)
class BackEnd:
    """What loads a part. Its module is imported when it is needed: ``codevqa --help`` waits for none."""

    target: str
    """``module:name`` among :mod:`codevqa.models`, called with an id; the part's options are its keyword arguments."""
    takes: type
    """A typed dictionary of those arguments."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the back end chooses itself."""
    template: str = ""
    """``module:name`` of what says whether a language model has a chat template; empty where its option ``form``
    says whether it is talked with."""

    @property
    def maker(self) -> Callable[..., Any]:
        """What is called."""
        return _named(self.target)

    def __call__(self, name: str, **options: Any) -> Any:
        """Loads a part."""
        return self.maker(name, **self.fixed, **options)


def _named(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    return attrgetter(name)(import_module(f"..models.{module}", __package__))  # type: ignore[no-any-return]


LOADERS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "matcher": {
        "blip": BackEnd("blip:BlipMatcher.from_pretrained", options.BlipMatcherLoad),
        "lavis": BackEnd("lavis.parts:LavisMatcher.from_pretrained", options.LavisMatcherLoad),
    },
    "captioner": {
        "blip": BackEnd("blip:BlipCaptioner.from_pretrained", options.BlipCaptionerLoad),
        "lavis": BackEnd("lavis.parts:LavisCaptioner.from_pretrained", options.LavisCaptionerLoad),
    },
    "language_model": {
        "transformers": BackEnd(
            "causal_lm:TransformersLM.from_pretrained",
            options.TransformersLoad,
            template="chat_template:of_tokenizer",
        ),
        "transformers-int8": BackEnd(
            "causal_lm:TransformersLM.from_pretrained",
            options.TransformersLoad,
            {"dtype": "int8"},
            "chat_template:of_tokenizer",
        ),
        "openai": BackEnd("openai_lm:OpenAILM", options.OpenAILoad),
        "openai-chat": BackEnd("openai_lm:OpenAILM", options.OpenAILoad, {"form": "chat"}),
        "openai-completion": BackEnd("openai_lm:OpenAILM", options.OpenAILoad, {"form": "completion"}),
    },
    "retriever": {"sentence": BackEnd("retrieval:SentenceRetriever.from_pretrained", options.RetrieverLoad)},
    "detector": {"zero-shot": BackEnd("detector:ZeroShotDetector.from_pretrained", options.DetectorLoad)},
}
"""Loader by role and back end."""


def load(role: str, spec: str, **options: Any) -> Any:
    """Loads one part.

    Args:
        role: ``matcher``, ``captioner``, ``language_model``, ``retriever`` or ``detector``.
        spec: ``back end:id``, e.g. ``blip:Salesforce/blip-itm-base-coco`` or ``openai:gpt-4.1-mini``.
        options: arguments of the back end.

    Raises:
        UnknownNameError: no such role or back end.
        ModelNotFoundError: the checkpoint is not here and cannot be fetched.
    """
    back_end, name = parse(role, spec)
    fetch([spec])
    try:
        with offline():
            part = LOADERS[role][back_end](_source(spec), **options)
    except TypeError as error:
        if "keyword argument" not in str(error):
            raise
        raise InputError(f"{back_end} takes other options: {error}.") from None  # a loader that doesn't say which
    if not back_end.startswith("openai") and "name" not in options:
        part.name = shown(name)
    return part


def _source(spec: str) -> str:
    """Returns what a back end is called with: an id, a folder, or where the revision lies that an id names."""
    back_end, _, name = spec.partition(":")
    identity = hub_id(spec)
    # BLIP splits a revision off itself: what it reads of Salesforce's files depends on whose they are.
    place = lies(spec) if identity and identity[1] and back_end != "blip" else None
    return str(place or resolve(name))


def parse(role: str, spec: str) -> tuple[str, str]:
    """Splits ``back end:id``, loading nothing.

    Raises:
        UnknownNameError: no such role or back end.
    """
    if role not in LOADERS:
        raise UnknownNameError(f"No part {role!r}.", hint=f"There are: {', '.join(LOADERS)}.")
    back_end, colon, name = spec.partition(":")
    if not colon or not name or back_end not in LOADERS[role]:
        shown = ", ".join(f"{one}:ID" for one in LOADERS[role])
        raise UnknownNameError(f"{spec!r} is no {role.replace('_', ' ')}.", hint=f"Write one of: {shown}.")
    return back_end, name


def options_of(role: str, spec: str) -> Mapping[str, Any] | None:
    """Returns the options that a part takes, with their annotations; None where its loader doesn't say.

    Imports no back end.

    Raises:
        UnknownNameError: no such role or back end.
    """
    loader = LOADERS[role][parse(role, spec)[0]]
    if not isinstance(loader, BackEnd):
        return None
    return {option: hint for option, hint in hints(loader.takes).items() if option not in loader.fixed}


def build(configuration: Configuration) -> tuple[Writer, Models, Configuration]:
    """Loads everything a configuration names, as this machine can run it.

    Returns:
        Writer and models, and the configuration as it came to be here.

    Raises:
        UnknownNameError: no such prompt set.
        SetupError: it leaves the language model to be chosen.
        ModelNotFoundError: a checkpoint is not here and cannot be fetched.
    """
    # Before torch is imported: who is offline is told at once.
    fetch(whole(configuration).parts.values(), preset=configuration.preset)
    here = configuration.here()
    sets = prompt_sets(preset(here.preset), here.settings.prompts)
    quiet_libraries()
    loaded = {role: load(role, spec, **here.options.get(role, {})) for role, spec in here.parts.items()}
    language_model = loaded["language_model"]
    domain = domain_of(here)
    models = Models(language_model, loaded["matcher"], loaded["captioner"], loaded.get("detector"), domain)
    return _writer(here, language_model, sets, loaded.get("retriever")), models, here


def prompt_writer(configuration: Configuration) -> Writer:
    """Returns a writer that makes the prompts :func:`build`'s would, without its language model, which it never asks.

    Raises:
        UnknownNameError: no such prompt set.
        SetupError: the form of the prompts depends on a language model that is left to be chosen.
        ModelNotFoundError: a checkpoint is not here and cannot be fetched.
    """
    from ..models.fakes import ScriptedLM

    here = configuration.here()
    sets = prompt_sets(preset(here.preset), here.settings.prompts)
    settings = here.settings.writer
    if settings.form == "auto" or settings.selection == "nearest":
        quiet_libraries()
    chat = settings.form == "auto" and _chats(whole(here))
    spec = here.parts.get("retriever") if settings.selection == "nearest" else None
    retriever = load("retriever", spec, **here.options.get("retriever", {})) if spec else None
    own = [find_object] if "detector" in here.parts else []
    return _writer(here, ScriptedLM([], chat=chat), sets, retriever).with_extra(own)


def _writer(
    here: Configuration, language_model: LanguageModel, sets: Mapping[Form, PromptSet], retriever: Retriever | None
) -> Writer:
    return Writer(language_model, sets, retriever, here.settings.writer, seed=here.settings.seed)


def _chats(configuration: Configuration) -> bool:
    """Says whether the language model is one to talk with, as it says itself once it is loaded."""
    spec, given = configuration.parts["language_model"], configuration.options.get("language_model", {})
    back_end = LOADERS["language_model"][parse("language_model", spec)[0]]
    template, fixed = (back_end.template, back_end.fixed) if isinstance(back_end, BackEnd) else ("", {})
    if not template:
        return bool({"form": "auto", **given, **fixed}["form"] != "completion")
    identity = None if lies(spec) else hub_id(spec)
    if identity is not None:
        return bool(_named(template)(*identity))
    return bool(_named(template)(_source(spec)))


def check_server(configuration: Configuration) -> None:
    """Asks a language model's server whether it is there; one that is not should cost no loading of other models.

    Raises:
        ServerError: it cannot be reached.
        SetupError: no key for OpenAI's own, or an address that cannot be one.
    """
    spec = configuration.parts.get("language_model", "")
    if spec.startswith("openai"):
        model = load("language_model", spec, **configuration.options.get("language_model", {}))
        model.check()
        model.close()


def domain_of(configuration: Configuration) -> Domain | None:
    """Returns what the models know that look at pictures, where the preset tells and one of them is its own."""
    chosen = preset(configuration.preset)
    if chosen.domain is None or not any(
        configuration.parts.get(role) == chosen.parts[role] for role in ("matcher", "captioner")
    ):
        return None
    from ..models.domain import Domain

    return Domain.load(resolve(chosen.domain))


def names_of(configuration: Configuration) -> dict[str, str]:
    """Returns the ids of a configuration's models by role, as an engine reports them; loads none."""
    names = {role: shown(spec.partition(":")[2]) for role, spec in configuration.parts.items()}
    language_model = names.pop("language_model", "")
    return {"writer": language_model, "reader": language_model, **names}


def whole(configuration: Configuration) -> Configuration:
    """Returns a configuration that has all it needs.

    Raises:
        SetupError: it leaves the language model to be chosen.
    """
    if "language_model" not in configuration.parts:
        raise SetupError(
            f"The preset {configuration.preset} has no language model of its own: the paper's can no longer be had.",
            hint="Choose one, such as --language-model openai-completion:NAME or transformers:NAME.",
        )
    return configuration


def prompt_sets(chosen: Preset, prompts: str | None) -> dict[Form, PromptSet]:
    """Returns the prompt set for each form: the preset's, or a named one for the forms it serves."""
    sets: dict[Form, PromptSet] = {form: load_prompts(name) for form, name in chosen.prompts.items()}
    if prompts is not None:
        sets.update(by_form(load_prompts(prompts)))
    return sets


def quiet_libraries() -> None:
    """Keeps advice and loading bars of the model libraries out of standard error.

    Errors still come through, and so do the bars of downloads, which can take long.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
        from transformers.utils import logging
    except ImportError as error:
        raise SetupError(f"transformers cannot be imported: {error}.", hint="Run make install.") from None
    logging.set_verbosity_error()
    # transformers sets it anew when it is imported. What is here is not asked for at the hub: not worth a warning.
    getLogger("huggingface_hub").setLevel(ERROR)
    hidden = are_progress_bars_disabled()
    logging.disable_progress_bar()  # which hides the downloads too
    if not hidden:
        enable_progress_bars()
