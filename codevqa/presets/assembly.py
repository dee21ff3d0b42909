"""From ``back end:id`` to a model, and from a preset to everything an engine needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from logging import ERROR, getLogger
from typing import Any

from .. import plugins
from ..collections.disk_memory import memory_at, user_place
from ..core.errors import ModelNotFoundError, ServerError, SetupError
from ..core.trace import Form
from ..models.domain import Domain
from ..models.protocols import Models, chats
from ..primitives.visual import served_by
from ..prompts import PromptSet
from ..prompts import load_prompt_set as load_prompts
from ..writing.offer import by_form
from ..writing.writer import Writer
from .back_ends import parse_spec
from .checkpoints import display_name, fetch, fetchable, find_checkpoint, hub_id, resolve
from .configuration import Configuration
from .presets import Preset, preset


def load(role: str, spec: str, **options: Any) -> Any:
    """Loads one part.

    Args:
        role: ``matcher``, ``captioner``, ``language_model``, ``retriever``, ``detector`` or ``eyes``.
        spec: ``back end:id``, e.g. ``blip:Salesforce/blip-itm-base-coco`` or ``openai:gpt-4.1-mini``.
        options: arguments of the back end.

    Raises:
        UnknownNameError: no such role or back end.
        ModelNotFoundError: the checkpoint is not here and cannot be fetched.
    """
    back_end, name = parse_spec(role, spec)
    fetch([spec])
    if back_end.runs == "server" and not _server_set(options):
        from ..models.served_model import suggest_models

        raise SetupError(f"No server is set for the model {name}.", hint=suggest_models())
    if back_end.runs == "here" and not fetchable(spec) and not find_checkpoint(spec):
        raise ModelNotFoundError(f"No model folder at {name}.", hint="Check the path.")
    # From where it lies, so that the hub is not asked again.
    with plugins.failures(f"The {role} {spec}") if back_end.runs == "own" else nullcontext():
        part = back_end.load(str(find_checkpoint(spec) or resolve(name)), **options)
    if back_end.runs not in ("server", "own") and "name" not in options:
        part.name = display_name(name)
    return part


def _server_set(options: Mapping[str, Any]) -> bool:
    """Says whether a served model's server is named; a key alone names OpenAI's."""
    names = ("base_url", "api_key")
    return any(options.get(name) or os.environ.get(f"OPENAI_{name.upper()}") for name in names)


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
    for part in loaded.values():
        if hasattr(part, "memory"):  # a client of a server
            part.memory, part.fresh = memory_at(user_place()), here.settings.fresh
    domain = domain_of(here)
    looking = {role: loaded.get(role) for role in ("matcher", "captioner", "detector", "eyes")}
    models = Models(language_model, domain=domain, **looking)
    settings = here.settings
    extra, retriever = plugins.primitives(), loaded.get("retriever")
    writer = Writer(language_model, sets, retriever, settings.writer, extra=extra, seed=settings.seed)
    return writer, models, here


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
    quiet_libraries()
    chat = settings.form == "auto" and _is_chat_model(whole(here))
    spec = here.parts.get("retriever") if settings.selection == "nearest" else None
    retriever = load("retriever", spec, **here.options.get("retriever", {})) if spec else None
    model = ScriptedLM([], chat=chat)
    serves = served_by(
        answers=len(here.methods) > 1,
        compares="matcher" in here.parts,
        points=here.grounds,
        detects="detector" in here.parts,
    )
    extra = plugins.primitives()
    return Writer(model, sets, retriever, settings, extra=extra, serves=serves, seed=here.settings.seed)


def _is_chat_model(configuration: Configuration) -> bool:
    """Says whether the language model is one to talk with, as it says itself once it is loaded."""
    spec, options = configuration.parts["language_model"], configuration.options.get("language_model", {})
    back_end, name = parse_spec("language_model", spec)
    if back_end.runs == "own":
        return chats(load("language_model", spec, **options))
    if back_end.runs == "server":
        return bool({"form": "auto", **options, **back_end.fixed}["form"] != "completion")
    from ..models.chat_template import of_tokenizer

    place = find_checkpoint(spec)
    return of_tokenizer(str(place)) if place else of_tokenizer(*(hub_id(spec) or (name, None)))


def check_server(configuration: Configuration) -> None:
    """Asks each model server whether it is there; one that is not should cost no loading of other models.

    Raises:
        ServerError: one cannot be reached.
        SetupError: no key for OpenAI's own, or an address that cannot be one.
    """
    asked = set()
    for role, spec in configuration.parts.items():
        if parse_spec(role, spec)[0].runs == "server":
            model = load(role, spec, **configuration.options.get(role, {}))
            try:
                if model.address not in asked:
                    model.check()
            except ServerError as error:
                where = f"{role}.base_url" if "base_url" in configuration.options[role] else "OPENAI_BASE_URL"
                raise ServerError(error.message, hint=f"Is it running, and is {where} right?", retryable=True) from None
            finally:
                model.close()
            asked.add(model.address)


def domain_of(configuration: Configuration) -> Domain | None:
    """Returns what the models know that answer about pictures, where the preset tells and one of them is its own."""
    chosen, parts = preset(configuration.preset), configuration.parts
    answering = ("eyes",) if "eyes" in parts else ("matcher", "captioner")
    if chosen.domain is None or not any(parts.get(role) == chosen.parts.get(role) for role in answering):
        return None
    domain = Domain.load(resolve(chosen.domain))
    return domain if parts.get("matcher") == chosen.parts.get("matcher") else replace(domain, seen=None)


def names_of(configuration: Configuration) -> dict[str, str]:
    """Returns the ids of a configuration's models by role, as an engine reports them; loads none."""
    names = {role: display_name(spec.partition(":")[2] or spec) for role, spec in configuration.parts.items()}
    language_model = names.pop("language_model", "")
    return {"writer": language_model, "reader": language_model, **names}


def whole(configuration: Configuration) -> Configuration:
    """Returns a configuration that has all it needs.

    Raises:
        SetupError: it leaves the language model to be chosen.
    """
    if "language_model" not in configuration.parts:
        name = configuration.preset
        hint = "Choose one, such as --language-model transformers:NAME."
        if preset(name).to_choose:
            from ..models.served_model import suggest_models

            hint = f"{preset(name).to_choose} {suggest_models()}".rstrip()
        raise SetupError(f"The preset {name} has no language model of its own.", hint=hint)
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
    # Read when transformers is imported, which few models need.
    for name, value in (("TOKENIZERS_PARALLELISM", "false"), ("TRANSFORMERS_VERBOSITY", "error")):
        os.environ.setdefault(name, value)
    # What is here is not asked for at the hub: not worth a warning.
    getLogger("huggingface_hub").setLevel(ERROR)
