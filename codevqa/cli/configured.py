"""``--preset``, ``--config``, ``--compat``, ``--set``: the options that say what answers, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..presets.configuration import Layer


class Ambient(str):
    """A value that the environment gave, and no option."""

    __slots__ = ()


def _ambient(context: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    source = context.get_parameter_source(str(param.name))
    return Ambient(value) if value is not None and source is not None and source.name == "ENVIRONMENT" else value


Preset = Annotated[
    str | None,
    typer.Option(
        help="mini, base, large or paper (see 'codevqa models'), or a file such as my.toml.",
        envvar="CODEVQA_PRESET",
        callback=_ambient,
        show_default="mini",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE.toml", help="Read values from a file, as 'codevqa config' prints them."),
]
Compat = Annotated[
    str | None,
    typer.Option("--compat", help="release: do what the paper's released code does."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set one value, such as query.captions=3; repeatable. 'codevqa config' lists all names.",
    ),
]
LanguageModel = Annotated[
    str | None,
    typer.Option(
        "--language-model",
        "--lm",
        envvar="CODEVQA_LANGUAGE_MODEL",
        callback=_ambient,
        help="Use another language model: transformers:ID, transformers-int8:ID, openai:NAME or"
        " openai-completion:NAME. OPENAI_BASE_URL and OPENAI_API_KEY name the server.",
    ),
]
PromptForm = Annotated[
    str | None,
    typer.Option(
        help="Form of prompts: chat, completion (the paper's), or auto, which suits the language model.",
    ),
]
_FLAGS: Mapping[str, tuple[str, ...]] = {
    "language_model": ("language_model",),
    "form": ("writer.form", "query.form"),
    "dataset": ("prompts",),
    "prompts": ("prompts",),
    "selection": ("writer.selection",),
    "seed": ("seed",),
    "workers": ("workers",),
}
"""Flags with a name of their own, and what they set."""


@dataclass(frozen=True)
class Chosen:
    """What a command line chose."""

    preset: str = "mini"
    layers: tuple[Layer, ...] = field(default=())


def chosen(
    preset: str | None, config: Path | None, compat: str | None, sets: list[str] | None, **flags: object
) -> Chosen:
    """Returns what the options choose.

    Raises:
        InputError: the file cannot be read, or ``--set`` has no name and value.
        UnknownNameError: nothing to be compatible with has that name.
    """
    from ..core.errors import InputError
    from ..presets.compat import compat_layer
    from ..presets.configuration import Layer, read_file
    from ..presets.fields import Text

    layers = [] if compat is None else [compat_layer(compat)]
    if config is not None:
        base, layer = read_file(config)
        layers.append(layer)
        if base is not None and (preset is None or isinstance(preset, Ambient)):
            preset = base  # what the file was written for
    given = [(name, value) for name, value in flags.items() if value is not None]
    given.sort(key=lambda one: not isinstance(one[1], Ambient))
    if unsaid := next((name for name, value in given if value == "none"), None):
        raise InputError(f"--{unsaid.replace('_', '-')} does not accept none.", hint="Omit it.")
    for name, value in given:
        origin = "environment" if isinstance(value, Ambient) else f"--{name.replace('_', '-')}"
        layers.append(Layer(origin, dict.fromkeys(_FLAGS[name], value)))
    if sets:
        layers.append(Layer("--set", {name: Text(value) for name, value in map(_pair, sets)}))
    return Chosen(preset or "mini", tuple(layers))


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name.strip():
        from ..core.errors import InputError

        raise InputError(
            f"--set {word!r} must be NAME=VALUE, such as query.captions=3.",
            hint="To ask about one picture as a set, give --as-set.",
        )
    return name.strip(), value.strip()
