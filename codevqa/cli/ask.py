"""``codevqa ask``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .configured import Compat, Config, LanguageModel, Preset, PromptForm, Sets, chosen
from .pictures import read_pictures
from .show import open_engine, print_answer
from .trace_file import Trace, check_place, write_trace

if TYPE_CHECKING:
    from ..engine.request import AskOptions

_IMAGE = typer.Argument(metavar="IMAGE...", help="One picture, or several as a set. - reads standard input.")
Images = Annotated[list[str], _IMAGE]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Evidence = Annotated[bool, typer.Option(help="With --json: add captions, maps and prompts of each call.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress on standard error.")]


def ask(
    images: Annotated[list[str] | None, _IMAGE] = None,
    question: Annotated[
        str | None,
        typer.Option(
            "--question",
            "-q",
            help="The question, or a statement to judge. Without -q, type questions one after another.",
        ),
    ] = None,
    questions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.jsonl",
            help='A file with one question a line: {"images": ["a.png"], "question": "..."}. Paths start at the file.'
            " Prints one JSON line for each. - reads standard input.",
        ),
    ] = None,
    preset: Preset = None,
    config: Config = None,
    compat: Compat = None,
    dataset: Annotated[str | None, typer.Option(help="Prompt set: gqa, nlvr2, ... or a folder.")] = None,
    language_model: LanguageModel = None,
    form: PromptForm = None,
    method: Annotated[str, typer.Option(help="codevqa, or pnpvqa: the baseline without a program.")] = "codevqa",
    shots: Annotated[int | None, typer.Option(min=0, help="Number of examples in the prompt.")] = None,
    as_set: Annotated[bool, typer.Option("--as-set", help="Treat even one picture as a set.")] = False,
    sets: Sets = None,
    trace: Trace = None,
    json: Json = False,
    evidence: Evidence = False,
    quiet: Quiet = False,
) -> None:
    """Answer questions about one picture or several.

    Give one question with -q, a file of questions with --questions, or type them one after another.
    """
    from .checks import check_command, check_question, declined_at_once

    check_command(images, question, questions, trace, method, shots)
    check_place(trace)
    choice = chosen(preset, config, compat, sets, dataset=dataset, language_model=language_model, form=form)
    options: AskOptions = {"form": "set" if as_set else None, "method": method, "shots": shots}  # type: ignore[typeddict-item]
    if questions is not None:
        from .questions_file import answer_file, read_questions

        file = read_questions(questions)
        with open_engine(choice, quiet) as vqa:
            failed = answer_file(vqa, file, options, evidence=evidence, quiet=quiet)
        raise typer.Exit(1 if failed else 0)
    pictures = read_pictures(images or ())
    if question is None:
        from .conversation import Conversation

        with open_engine(choice, quiet) as vqa:
            status = Conversation(vqa, pictures, options, trace, json, evidence, quiet).hold()
        raise typer.Exit(status)
    check_question(question, choice)
    answer = declined_at_once(pictures, question, options, choice)
    if answer is None:
        with open_engine(choice, quiet) as vqa:
            answer = vqa.ask(pictures, question, **options)
    print_answer(answer, json=json, evidence=evidence, quiet=quiet)
    write_trace(answer, trace, quiet)  # last: a full disk should not cost the answer
