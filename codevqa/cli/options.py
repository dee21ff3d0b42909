"""The options that several commands share, and what those for models and settings choose together."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..core.errors import InputError

if TYPE_CHECKING:
    from ..presets.configuration import Configuration, Layer

Preset = Annotated[
    str | None,
    typer.Option(help="mini, base, large, paper, or a file such as my.toml. Without it: $CODEVQA_PRESET, or mini."),
]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE.toml", help="Read values from a file, as 'codevqa config' prints them.")
]
Compat = Annotated[str | None, typer.Option(help="release: do what the paper's released code does.")]
LanguageModel = Annotated[
    str | None,
    typer.Option(
        "--language-model",
        "--lm",
        help="Use another language model: transformers:ID, transformers-int8:ID, openai:NAME or"
        " openai-completion:NAME. Without it: $CODEVQA_LANGUAGE_MODEL. OPENAI_BASE_URL and OPENAI_API_KEY name the"
        " server.",
    ),
]
Prompts = Annotated[
    str | None, typer.Option("--prompts", "--dataset", help="Prompt set: gqa, nlvr2, ..., a folder or a file.")
]
PromptForm = Annotated[
    str | None,
    typer.Option(help="Form of prompts: chat, completion (the paper's), or auto, which suits the language model."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set one value, such as query.captions=3; repeatable. 'codevqa config' lists all names.",
    ),
]
Images = Annotated[
    list[str], typer.Argument(metavar="IMAGE...", help="One picture, or several as a set. - reads standard input.")
]
Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html",
        help="Write a self-contained page too: the pictures, the program with the value at each line, and the evidence"
        " behind each call.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Evidence = Annotated[bool, typer.Option("--evidence", help="With --json: add captions, maps and prompts of each call.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress on standard error.")]
Shots = Annotated[int | None, typer.Option(min=0, help="Number of examples in the prompt.")]
AsSet = Annotated[bool, typer.Option("--as-set", help="Treat even one picture as a set.")]
Method = Literal["codevqa", "pnpvqa"]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")]

_SETS: Mapping[str, tuple[str, ...]] = {
    "language_model": ("language_model",),
    "form": ("writer.form", "query.form"),
    "prompts": ("prompts",),
    "selection": ("writer.selection",),
    "seed": ("seed",),
    "workers": ("workers",),
}
"""Options with a name of their own, and the values they set."""


@dataclass(frozen=True)
class Chosen:
    """The models and settings that a command line chose."""

    preset: str = "mini"
    """A name, or a file."""
    layers: tuple[Layer, ...] = ()

    def configure(self) -> Configuration:
        """Puts the configuration together. Loads no model.

        Raises:
            InputError: no such name, or a value that it cannot have.
        """
        from ..presets.configuration import configure

        return configure(self.preset, self.layers)

    def but(self, **values: object) -> Chosen:
        """Returns the choice with more options; those that are None choose nothing."""
        from ..presets.configuration import Layer

        given = {name: value for name, value in values.items() if value is not None}
        if unsaid := next((name for name, value in given.items() if value == "none"), None):
            raise InputError(f"--{unsaid.replace('_', '-')} does not accept none.", hint="Omit it.")
        more = [
            Layer(f"--{name.replace('_', '-')}", dict.fromkeys(_SETS[name], value)) for name, value in given.items()
        ]
        return Chosen(self.preset, (*self.layers, *more))


def chosen(
    preset: str | None = None,
    config: Path | None = None,
    compat: str | None = None,
    sets: list[str] | None = None,
    **values: object,
) -> Chosen:
    """Returns what the options choose: each over those before it, the environment over ``--config``.

    Raises:
        InputError: the file cannot be read, or ``--set`` has no name and value.
        UnknownNameError: nothing to be compatible with has that name.
    """
    from ..presets.compat import compat_layer
    from ..presets.configuration import Layer, read_file
    from ..presets.fields import Text

    layers = [] if compat is None else [compat_layer(compat)]
    if config is not None:
        base, layer = read_file(config)
        layers.append(layer)
        preset = preset or base  # what the file was written for
    if language_model := os.environ.get("CODEVQA_LANGUAGE_MODEL"):
        layers.append(Layer("environment", {"language_model": language_model}))
    choice = Chosen(preset or os.environ.get("CODEVQA_PRESET") or "mini", tuple(layers)).but(**values)
    if not sets:
        return choice
    told = Layer("--set", {name: Text(value) for name, value in map(_pair, sets)})
    return Chosen(choice.preset, (*choice.layers, told))


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name.strip():
        raise InputError(
            f"--set {word!r} must be NAME=VALUE, such as query.captions=3.",
            hint="To ask about one picture as a set, give --as-set.",
        )
    return name.strip(), value.strip()


def choosing(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command, in place of its parameter ``choice``, the options that choose models and settings."""
    own = inspect.signature(command, eval_str=True)
    if "choice" not in own.parameters:
        return command
    options = {
        "preset": Preset,
        "config": Config,
        "compat": Compat,
        "language_model": LanguageModel,
        "prompts": Prompts,
        "form": PromptForm,
        "sets": Sets,
    }
    parameters = []
    for parameter in own.parameters.values():
        if parameter.name == "choice":
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters += [
                inspect.Parameter(name, kind, default=None, annotation=hint) for name, hint in options.items()
            ]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def full(**given: Any) -> None:
        choice = chosen(**{name: given.pop(name) for name in options})
        command(choice=choice, **given)

    full.__name__, full.__doc__ = command.__name__, command.__doc__
    full.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    full.__annotations__ = {one.name: one.annotation for one in parameters}
    return full


def needs(option: str, given: object, other: str, present: object) -> None:
    """Refuses an option that would do nothing.

    Raises:
        InputError: it is given without the other.
    """
    if given and not present:
        raise InputError(f"{option} does nothing without {other}.", hint="Give both, or neither.")
