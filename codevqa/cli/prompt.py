"""``codevqa prompt``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .checks import check_question
from .configured import Compat, Config, LanguageModel, Preset, PromptForm, Sets, chosen
from .show import tell_compat


def prompt(
    question: Annotated[str, typer.Option("--question", "-q", help="The question.")],
    preset: Preset = None,
    config: Config = None,
    compat: Compat = None,
    dataset: Annotated[str | None, typer.Option(help="Prompt set: gqa, nlvr2, ... or a folder.")] = None,
    language_model: LanguageModel = None,
    form: PromptForm = None,
    selection: Annotated[str | None, typer.Option(help="How to pick examples: nearest, random or fixed.")] = None,
    shots: Annotated[int | None, typer.Option(min=0, help="Number of examples in the prompt.")] = None,
    as_set: Annotated[bool, typer.Option("--as-set", help="Ask about a set of pictures.")] = False,
    sets: Sets = None,
) -> None:
    """Print the exact prompt of the language model.

    Loads the preset's embedding model, to pick examples, and no other model.
    """
    from ..models.base import prompt_text
    from ..presets.assembly import prompt_writer
    from ..presets.configuration import configure
    from ..prompts import load as load_prompts
    from ..writing.writer import by_form

    choice = chosen(
        preset, config, compat, sets, dataset=dataset, language_model=language_model, form=form, selection=selection
    )
    question = check_question(question, choice)
    configuration = configure(choice.preset, choice.layers)
    tell_compat(configuration)
    writer = prompt_writer(configuration)
    named = configuration.settings.prompts
    served = writer.prompts if named is None else by_form(load_prompts(named))
    request, _ = writer.request(question, "set" if as_set or "image" not in served else "image", shots)
    # A terminal wants a last line end; the prompt has none.
    sys.stdout.write(prompt_text(request.prompt) + ("\n" if sys.stdout.isatty() else ""))
