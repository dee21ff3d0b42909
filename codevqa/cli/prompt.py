"""``codevqa prompt``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .checks import check_question
from .configured import Compat, Config, Preset, Sets, chosen
from .show import tell_compat


def prompt(
    question: Annotated[str, typer.Option("--question", "-q", help="The question.")],
    dataset: Annotated[
        str | None, typer.Option(help="Prompt set, such as gqa or nlvr2, or a folder.", show_default="gqa")
    ] = None,
    preset: Preset = None,
    config: Config = None,
    compat: Compat = None,
    chat: Annotated[bool, typer.Option("--chat", help="The chat form in place of the completion form.")] = False,
    selection: Annotated[
        str | None, typer.Option(help="Examples: nearest, random or fixed; else the preset's.")
    ] = None,
    as_set: Annotated[
        bool, typer.Option("--as-set", help="For a prompt set that serves both: ask about a set.")
    ] = False,
    sets: Sets = None,
) -> None:
    """Print exactly what the language model would see. No language model is loaded.

    The nearest examples depend on the preset's embedding model.
    """
    from ..models.base import prompt_text
    from ..models.fakes import ScriptedLM
    from ..presets.assembly import load
    from ..presets.configuration import configure
    from ..prompts import load as load_prompts
    from ..writing.writer import Writer, by_form

    choice = chosen(preset, config, compat, sets, dataset=dataset, form="chat" if chat else None, selection=selection)
    check_question(question, choice)
    configuration = configure(choice.preset, choice.layers).here()
    tell_compat(configuration)
    settings, spec = configuration.settings, configuration.parts.get("retriever")
    banks = by_form(load_prompts(settings.prompts or "gqa"))
    nearest = settings.writer.selection == "nearest" and spec is not None
    retriever = load("retriever", spec, **configuration.options["retriever"]) if nearest and spec else None
    writer = Writer(ScriptedLM([]), banks, retriever, settings.writer, seed=settings.seed)
    form = "set" if as_set or "image" not in banks else "image"
    request, _ = writer.request(question, form)  # type: ignore[arg-type]
    # A terminal wants a last line end; the prompt has none.
    sys.stdout.write(prompt_text(request.prompt) + ("\n" if sys.stdout.isatty() else ""))
