"""``codevqa ask``."""

from __future__ import annotations

from typing import Annotated

import typer

from .show import open_engine, print_answer, warn
from .trace_file import Trace, check_place, write_trace

Images = Annotated[list[str], typer.Argument(metavar="IMAGE...", help="One picture, or several for a set.")]
Preset = Annotated[str, typer.Option(help="mini, base or large; see 'codevqa models'.", envvar="CODEVQA_PRESET")]
LanguageModel = Annotated[
    str | None,
    typer.Option(
        "--language-model",
        "--lm",
        envvar="CODEVQA_LANGUAGE_MODEL",
        help="Another language model: transformers:ID, transformers-int8:ID, gguf:FILE, openai:NAME,"
        " openai-completion:NAME; a server is told by OPENAI_BASE_URL and OPENAI_API_KEY.",
    ),
]
PromptForm = Annotated[
    str | None,
    typer.Option(
        help="Form of the prompts: chat, completion (the paper's text), or auto: what suits the language model.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Evidence = Annotated[bool, typer.Option(help="With --json: captions, maps and prompts of each call too.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]


def ask(
    images: Images,
    question: Annotated[str, typer.Option("--question", "-q", help="The question, or a statement to judge.")],
    preset: Preset = "mini",
    dataset: Annotated[str | None, typer.Option(help="Prompt set: gqa, covr, nlvr2, mini, or a folder.")] = None,
    language_model: LanguageModel = None,
    form: PromptForm = None,
    method: Annotated[str, typer.Option(help="codevqa, or pnpvqa: the baseline without a program.")] = "codevqa",
    as_set: Annotated[bool, typer.Option("--set", help="Treat even one picture as a set.")] = False,
    trace: Trace = None,
    json: Json = False,
    evidence: Evidence = False,
    quiet: Quiet = False,
) -> None:
    """Answer a question about one picture or several."""
    from ..core.errors import InputError
    from ..core.images import load_pictures

    if method not in ("codevqa", "pnpvqa"):
        raise InputError(f"No method {method!r}.", hint="There are: codevqa, pnpvqa.")
    pictures = load_pictures(images)  # before any model is loaded: a wrong path should not cost seconds
    if not question.strip():
        from ..core.errors import QuestionError

        raise QuestionError("The question is empty.", hint="Ask something about the picture.")
    check_place(trace, images)
    with open_engine(preset, dataset, language_model, quiet, form) as vqa:
        answer = vqa.ask(pictures, question, form="set" if as_set else None, method=method)  # type: ignore[arg-type]
    if answer.fallback and answer.error is not None and not quiet:
        warn(f"the program failed ({answer.error.message}); plain PnP-VQA answered instead")
    print_answer(answer, json=json, evidence=evidence, quiet=quiet)
    write_trace(answer, trace, quiet)  # last: a full disk should not cost the answer
