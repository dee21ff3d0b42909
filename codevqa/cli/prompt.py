"""``codevqa prompt``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .ask import Preset


def prompt(
    question: Annotated[str, typer.Option("--question", "-q", help="The question.")],
    dataset: Annotated[str, typer.Option(help="Prompt set: gqa, covr, nlvr2, mini, or a folder.")] = "gqa",
    preset: Preset = "mini",
    chat: Annotated[bool, typer.Option("--chat", help="The chat form in place of the completion form.")] = False,
    selection: Annotated[str, typer.Option(help="Examples: nearest, random or fixed.")] = "nearest",
    as_set: Annotated[bool, typer.Option("--set", help="For a prompt set that serves both: ask about a set.")] = False,
) -> None:
    """Print exactly what the language model would see. No language model is loaded.

    The nearest examples depend on the preset's embedding model.
    """
    from ..core.errors import InputError, QuestionError
    from ..core.settings import WriterSettings
    from ..models.base import prompt_text
    from ..models.fakes import ScriptedLM
    from ..presets.assembly import load
    from ..presets.presets import preset as find
    from ..prompts import load as load_prompts
    from ..writing.writer import Writer, by_form

    if not question.strip():
        raise QuestionError("The question is empty.", hint="Ask something about the picture.")
    if selection not in ("nearest", "random", "fixed"):
        raise InputError(f"No selection {selection!r}.", hint="There are: nearest, random, fixed.")
    chosen = find(preset)
    sets = by_form(load_prompts(dataset))
    retriever = load("retriever", chosen.retriever) if selection == "nearest" and chosen.retriever else None
    settings = WriterSettings(form="chat" if chat else "completion", selection=selection)  # type: ignore[arg-type]
    writer = Writer(ScriptedLM([]), sets, retriever, settings)
    form = "set" if as_set or "image" not in sets else "image"
    request, _ = writer.request(question, form)  # type: ignore[arg-type]
    # A terminal wants a last line end; the prompt has none.
    sys.stdout.write(prompt_text(request.prompt) + ("\n" if sys.stdout.isatty() else ""))
