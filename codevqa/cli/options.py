"""The options that several commands share, and what those for models and settings choose together."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from typer import Argument, Option
from typer.models import OptionInfo

from ..core.errors import InputError

if TYPE_CHECKING:
    from ..presets.configuration import Configuration, Layer

Preset = Annotated[
    str | None,
    Option(help="mini, mini-vlm, vlm, api, base, large, paper, or a file. Default: $CODEVQA_PRESET, or mini."),
]
Config = Annotated[Path | None, Option(metavar="FILE.toml", help="Read values that 'codevqa config' printed.")]
Compat = Annotated[str | None, Option(help="release: do what the paper's released code does.")]
LanguageModel = Annotated[
    str | None,
    Option(
        "--language-model",
        "--lm",
        metavar="MODEL",
        help="transformers:ID, transformers-int8:ID, openai:NAME or openai-completion:NAME. Default:"
        " $CODEVQA_LANGUAGE_MODEL, or the preset's. OPENAI_BASE_URL and OPENAI_API_KEY name the server.",
    ),
]
Model = Annotated[
    str | None,
    Option(metavar="NAME", help="A vision-language model on a server: it writes the programs, and looks at pictures."),
]
Prompts = Annotated[
    str | None, Option("--prompts", "--dataset", help="Prompt set: gqa, nlvr2, ..., a folder or a file.")
]
PromptForm = Annotated[str | None, Option(help="Form of prompts: auto, chat, or completion (the paper's).")]
Programs = Annotated[
    int | None,
    Option(
        min=1,
        max=16,
        help="Programs to write for each question; the best of them is run. Default: 3 on a GPU or server, else 1.",
    ),
]
Agree = Annotated[
    int | None, Option(min=1, max=16, help="Programs to run for each question; the answer most of them give is taken.")
]
Sets = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="Set one value that 'codevqa config' lists; repeatable."),
]
Fresh = Annotated[
    bool | None, Option("--fresh", help="Ask model servers anew what they answered before; else it is looked up.")
]
Force = Annotated[
    bool | None,
    Option("--force", help="direct: show more pictures at once than the model's chart (doctor) saw answered."),
]
Include = Annotated[
    list[Path] | None, Option(metavar="FILE.py", help="Import your own primitives, models, data sets; repeatable.")
]
Images = Annotated[
    list[str] | None,
    Argument(metavar="IMAGE...", help="One picture, or several, folders and zip files as a set. - is standard input."),
]
Pictures = Annotated[list[str] | None, Argument(metavar="PICTURES...", help="Folders, zip files and pictures.")]
QuestionOption = Annotated[str, Option("--question", "-q", help="The question.")]
Recursive = Annotated[bool, Option("--recursive", help="Look into folders within folders.")]
From = Annotated[
    str | None,
    Option("--from", metavar="FILE", help="A list of pictures: a path a line, or a .csv, .jsonl or COCO's .json."),
]
All = Annotated[bool, Option("--all", help="List all pictures behind the answer, not the first 20.")]
Yes = Annotated[bool, Option("--yes", help="Go on where it takes more than ten minutes.")]
Trace = Annotated[Path | None, Option(metavar="FILE.html", help="Write a page that shows how the answer came about.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
Evidence = Annotated[bool, Option("--evidence", help="With --json: add captions, maps and prompts of each call.")]
Quiet = Annotated[bool, Option("--quiet", help="Show no progress on standard error.")]
Shots = Annotated[int | None, Option(min=0, help="Number of examples in the prompt.")]
AsSet = Annotated[bool, Option("--as-set", help="Treat even one picture as a set.")]
Where = Annotated[Literal["local", "ray"], Option("--engine", help="ray: one on each GPU or machine.")]
RayAddress = Annotated[str | None, Option(metavar="HOST:PORT", help="A Ray cluster, or auto. Default: here.")]
RayActors = Annotated[int | None, Option(help="Number of engines, up to four a GPU.")]
Method = Literal["codevqa", "direct", "pnpvqa"]
Run = Annotated[Path, Argument(metavar="RUN", help="Folder of a run.")]
Runs = Annotated[list[Path], Argument(metavar="RUN...", help="Folders of runs.")]

_CHOOSING: Mapping[str, Any] = {
    "preset": Preset,
    "config": Config,
    "compat": Compat,
    "model": Model,
    "language_model": LanguageModel,
    "prompts": Prompts,
    "form": PromptForm,
    "programs": Programs,
    "agree": Agree,
    "fresh": Fresh,
    "sets": Sets,
    "include": Include,
}
_SETS: Mapping[str, tuple[str, ...]] = {
    "language_model": ("language_model",),
    "form": ("writer.form", "query.form"),
    "prompts": ("prompts",),
    "programs": ("writer.programs",),
    "agree": ("agree",),
    "selection": ("writer.selection",),
    "seed": ("seed",),
    "workers": ("workers",),
    "fresh": ("fresh",),
    "force": ("query.over_limit",),
    "exact": ("sets.exact",),
    "seconds": ("sets.seconds",),
}
"""Options with a name of their own, and the values they set."""


@dataclass(frozen=True)
class Chosen:
    """The models and settings that a command line chose."""

    preset: str = "mini"
    """A name, or a file."""
    layers: tuple[Layer, ...] = ()

    def configure(self) -> Configuration:
        """Puts the configuration together. Loads no model."""
        from ..presets.configuration import configure

        return configure(self.preset, self.layers)

    def check_question(self, question: str) -> str:
        """Returns a question as it would be asked; one that is empty, too long, or no text is refused."""
        from ..engine.prepared_question import checked_question

        return checked_question(question, self.configure().settings)

    def but(self, **values: object) -> Chosen:
        """Returns the choice with more options; those that are None choose nothing."""
        from ..presets.configuration import Layer, server_parts

        numbers = {name: value for name, value in values.items() if value is not None}
        if unsaid := next((name for name, value in numbers.items() if value == "none"), None):
            raise InputError(f"--{unsaid.replace('_', '-')} does not accept none.", hint="Omit it.")
        more = [
            Layer(
                f"--{name.replace('_', '-')}",
                server_parts(str(value)) if name == "model" else dict.fromkeys(_SETS[name], value),
            )
            for name, value in numbers.items()
        ]
        return Chosen(self.preset, (*self.layers, *more))


def choose_options(
    preset: str | None = None,
    config: Path | None = None,
    compat: str | None = None,
    sets: list[str] | None = None,
    include: list[Path] | None = None,
    **values: object,
) -> Chosen:
    """Returns what the options choose: each over those before it, the environment over ``--config``."""
    from ..presets.compat import compat_layer
    from ..presets.configuration import Layer, Text, read_file

    including(include)
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
    set_layer = Layer("--set", {name: Text(value) for name, value in map(_pair, sets)})
    return Chosen(choice.preset, (*choice.layers, set_layer))


def including(files: list[Path] | None) -> None:
    """Imports the user's own files."""
    from ..plugins import include

    for file in files or ():
        include(file)


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
    for name, hint in [
        *_CHOOSING.items(),
        *((option.name, option.annotation) for option in own.parameters.values()),
    ]:
        _say_value(name, hint)
    if "choice" not in own.parameters:
        return command
    parameters = []
    for parameter in own.parameters.values():
        if parameter.name == "choice":
            parameters += [
                inspect.Parameter(name, parameter.KEYWORD_ONLY, default=None, annotation=hint)
                for name, hint in _CHOOSING.items()
            ]
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))

    def full(**arguments: Any) -> None:
        command(choice=choose_options(**{name: arguments.pop(name) for name in _CHOOSING}), **arguments)

    full.__name__, full.__doc__ = command.__name__, command.__doc__
    full.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    full.__annotations__ = {option.name: option.annotation for option in parameters}
    return full


def _say_value(name: str, hint: Any) -> None:
    """Names the value of an option as people say it: N for a number, else by the option, such as SPLIT."""
    annotation, option = (*get_args(hint), None, None)[:2]
    kind = (*get_args(annotation), annotation)[0]
    if isinstance(option, OptionInfo) and option.metavar is None and kind in (int, float, str, Path):
        option.metavar = "N" if kind in (int, float) else name.upper().replace("_", "-")


def check_ray(where: str, address: str | None, actors: int | None) -> None:
    """Refuses options for Ray where it is not used."""
    needs("--ray-address", address is not None, "--engine ray", where == "ray")
    needs("--ray-actors", actors is not None, "--engine ray", where == "ray")


def needs(option: str, value: object, other: str, present: object) -> None:
    """Refuses an option that would do nothing without another."""
    if value and not present:
        raise InputError(f"{option} does nothing without {other}.", hint="Give both, or neither.")
