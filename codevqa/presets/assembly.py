"""From ``back end:id`` to a model, and from a preset to everything an engine needs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import SetupError, UnknownNameError
from ..core.settings import Settings
from ..core.trace import Form
from ..models.base import Models
from ..prompts import PromptSet
from ..prompts import load as load_prompts
from ..writing.writer import Writer, by_form
from .presets import Preset, preset

__all__ = ["build", "choose", "load", "missing"]

Loader = Callable[..., Any]


def _blip_matcher(name: str, **options: Any) -> Any:
    from ..models.blip import BlipMatcher

    return BlipMatcher.from_pretrained(name, **options)


def _blip_captioner(name: str, **options: Any) -> Any:
    from ..models.blip import BlipCaptioner

    return BlipCaptioner.from_pretrained(name, **options)


def _transformers(name: str, **options: Any) -> Any:
    from ..models.causal_lm import TransformersLM

    return TransformersLM.from_pretrained(name, **options)


def _transformers_int8(name: str, **options: Any) -> Any:
    return _transformers(name, dtype="int8", **options)


def _gguf(name: str, **options: Any) -> Any:
    from ..models.llama_cpp import LlamaCppLM

    return LlamaCppLM.from_pretrained(name, **options)


def _openai(name: str, **options: Any) -> Any:
    from ..models.openai_lm import OpenAILM

    return OpenAILM(name, **options)


def _openai_chat(name: str, **options: Any) -> Any:
    return _openai(name, form="chat", **options)


def _openai_completion(name: str, **options: Any) -> Any:
    return _openai(name, form="completion", **options)


def _sentence(name: str, **options: Any) -> Any:
    from ..models.retrieval import SentenceRetriever

    return SentenceRetriever.from_pretrained(name, **options)


_NOT_HERE = "not downloaded yet: needs the network once"

LOADERS: Mapping[str, Mapping[str, Loader]] = {
    "matcher": {"blip": _blip_matcher},
    "captioner": {"blip": _blip_captioner},
    "language_model": {
        "transformers": _transformers,
        "transformers-int8": _transformers_int8,
        "gguf": _gguf,
        "openai": _openai,
        "openai-chat": _openai_chat,
        "openai-completion": _openai_completion,
    },
    "retriever": {"sentence": _sentence},
}
"""Loader by role and back end."""


def load(role: str, spec: str, **options: Any) -> Any:
    """Loads one part.

    Args:
        role: ``matcher``, ``captioner``, ``language_model`` or ``retriever``.
        spec: ``back end:id``, e.g. ``blip:Salesforce/blip-itm-base-coco`` or ``openai:gpt-4.1-mini``.
        options: arguments of the back end.

    Raises:
        UnknownNameError: no such role or back end.
        ModelNotFoundError: the checkpoint is not here and cannot be fetched.
    """
    back_end, name = parse(role, spec)
    return LOADERS[role][back_end](resolve(name), **options)


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


def resolve(name: str) -> str:
    """Returns the id a back end loads: ``@folder`` becomes the folder inside the package."""
    if name.startswith("@"):
        return str(Path(__file__).resolve().parent.parent / name[1:])
    return name


def build(
    name: str, *, prompts: str | None = None, settings: Settings | None = None, parts: Mapping[str, str | None] = {}
) -> tuple[Writer, Models, Settings]:
    """Loads everything a preset names.

    Args:
        name: the preset.
        prompts: a prompt set in place of the preset's for the forms it has examples of.
        settings: settings in place of the preset's.
        parts: parts in place of the preset's, by role; None keeps the preset's.

    Raises:
        UnknownNameError: no such preset, prompt set, part or back end.
        ModelNotFoundError: a checkpoint is not here and cannot be fetched.
    """
    chosen = preset(name)
    used = settings or chosen.settings
    sets = prompt_sets(chosen, prompts or used.prompts)
    chosen_parts = choose(chosen, parts)
    if chosen_parts["language_model"][0] == chosen.quantised and used.writer.most_shots is None:
        used = replace(used, writer=replace(used.writer, most_shots=chosen.quantised_shots))
    quiet_libraries()
    loaded = {role: load(role, spec, **options) for role, (spec, options) in chosen_parts.items()}
    language_model = loaded["language_model"]
    models = Models(language_model, loaded["matcher"], loaded["captioner"])
    writer = Writer(language_model, sets, loaded.get("retriever"), used.writer, seed=used.seed)
    return writer, models, used


def choose(chosen: Preset, parts: Mapping[str, str | None]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Returns what is loaded for each role, and with which options: the preset's, or another part in its place.

    Where there is no GPU, and PyTorch can, the preset's quantised language model is taken.

    Raises:
        UnknownNameError: no such role or back end.
    """
    picked = {role: (spec, chosen.options.get(role, {})) for role, spec in chosen.parts.items()}
    given = {role: spec for role, spec in parts.items() if spec is not None}
    if "language_model" not in given and chosen.quantised is not None:
        import torch

        from ..models.causal_lm.int8_linear import available

        if not torch.cuda.is_available() and available():
            given["language_model"] = chosen.quantised
    # Options belong to the model they were chosen for.
    picked.update({role: (spec, {}) for role, spec in given.items()})
    for role, (spec, _) in picked.items():
        parse(role, spec)  # a typing error should not cost the seconds of loading the parts before it
    return picked


def prompt_sets(chosen: Preset, prompts: str | None) -> dict[Form, PromptSet]:
    """Returns the prompt set for each form: the preset's, or a named one for the forms it serves."""
    sets: dict[Form, PromptSet] = {form: load_prompts(name) for form, name in chosen.prompts.items()}
    if prompts is not None:
        sets.update(by_form(load_prompts(prompts)))
    return sets


def missing(spec: str) -> str:
    """Says what a part lacks on this machine, without loading or fetching it; empty when nothing."""
    back_end, _, name = spec.partition(":")
    if back_end.startswith("openai"):
        return "" if os.environ.get("OPENAI_API_KEY") else "OPENAI_API_KEY is not set"
    if back_end == "gguf":
        return _missing_gguf(resolve(name))
    folder = Path(resolve(name))
    if name.startswith("@") or folder.is_dir():
        return (
            "" if any(folder.glob("*.safetensors")) or any(folder.glob("*/*.safetensors")) else "folder has no weights"
        )
    return "" if any(_cached(name, file) for file in ("config.json", "modules.json")) else _NOT_HERE


def _missing_gguf(name: str) -> str:
    if importlib.util.find_spec("xllamacpp") is None:
        return "needs pip install 'codevqa[gguf]'"
    if Path(name).expanduser().is_file():
        return ""
    owner, _, rest = name.partition("/")
    repository, _, file = rest.partition("/")
    if not (owner and repository and file):
        return "no such file"
    return "" if _cached(f"{owner}/{repository}", file) else _NOT_HERE


def _cached(repository: str, file: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(repository, file), str)


def quiet_libraries() -> None:
    """Keeps advice and loading bars of the model libraries out of standard error.

    Errors still come through, and so do the bars of downloads, which can take long.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from huggingface_hub.utils.tqdm import enable_progress_bars
        from transformers.utils import logging
    except ImportError as error:
        raise SetupError(f"transformers cannot be imported: {error}.", hint="Run make install.") from None
    logging.set_verbosity_error()
    logging.disable_progress_bar()  # which hides the downloads too
    enable_progress_bars()
