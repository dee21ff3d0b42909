"""``codevqa ask``, ``run`` and ``prompt``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from ..core.errors import InputError, ProgramError, SetupError
from ..core.input_files import read_text
from .options import (
    All,
    AsSet,
    Chosen,
    Evidence,
    Force,
    From,
    Images,
    Json,
    Method,
    QuestionOption,
    Quiet,
    Recursive,
    Shots,
    Trace,
    Yes,
    needs,
)
from .printing import print_text
from .terminal import (
    STDIN,
    Bar,
    check_choice,
    check_place,
    import_ahead,
    open_engine,
    print_answer,
    print_printed,
    read_pictures,
    warn,
    write_trace,
)

if TYPE_CHECKING:
    from ..batching.call_cache import Memory
    from ..collections.collection import Pictures
    from ..core.answer import Answer
    from ..engine.codevqa import CodeVQA
    from ..engine.request import AskOptions


def ask(
    images: Images = None,
    question: Annotated[str | None, Option("--question", "-q", help="The question, or a statement to judge.")] = None,
    questions: Annotated[
        str | None,
        Option(metavar="FILE.jsonl", help='One {"images": ["a.png"], "question": "..."} a line; prints JSON lines.'),
    ] = None,
    *,
    choice: Chosen,
    method: Annotated[
        Method,
        Option(help="Baselines: pnpvqa reads captions, direct asks a vision-language model once."),
    ] = "codevqa",
    shots: Shots = None,
    force: Force = None,
    as_set: AsSet = False,
    recursive: Recursive = False,
    listed: From = None,
    trace: Trace = None,
    json: Json = False,
    evidence: Evidence = False,
    full: All = False,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """Answer questions about one picture, several, or folders of them.

    Give one question with -q, a file of questions with --questions, or type them one after another.
    """
    needs("--evidence", evidence, "--json or --questions", json or questions)
    choice = choice.but(force=force)
    if method != "codevqa":
        _check_baseline(method, shots, choice)
    options: AskOptions = {"form": "set" if as_set else None, "method": method, "shots": shots}
    if questions is not None:
        arguments = {"IMAGE": images, "--question": question, "--trace": trace, "--from": listed}
        raise Exit(_from_file(questions, arguments, choice, options, evidence=evidence, quiet=quiet))
    images, question = _split_question(images or [], question, listed is not None)
    if question is None and STDIN in (*(images or ()), listed):
        raise InputError("Standard input holds the picture, so you cannot type questions.", hint="Give -q QUESTION.")
    check_place(trace)
    from ..collections.collection import Collection
    from .collections import carry_out, gather_pictures
    from .set_answers import SHOWN, SetAnswer

    if question is not None:
        choice.check_question(question)
    pictures = gather_pictures(images or (), recursive, listed, quiet)

    def ask_once(vqa: CodeVQA, about: Pictures, words: str) -> Answer:
        if not isinstance(about, Collection):
            with Bar(quiet):  # of one question, it shows what a busy server asks
                return vqa.ask(about, words, **options)

        def do(memory: Memory) -> Answer:
            set_options: AskOptions = {**options, "form": "set", "memory": memory}
            return vqa.ask(about, words, **set_options)

        return carry_out(vqa, [about], do, yes=yes, quiet=quiet)

    def show_answer(answer: Answer, about: Pictures) -> Answer:
        several = SetAnswer(answer, about, answer.selections) if isinstance(about, Collection) else None
        print_answer(answer, json=(several or answer).to_dict(evidence=evidence) if json else None, quiet=quiet)
        if several and not json:
            print_text(*several.lines(None if full else SHOWN))
        write_trace(answer, trace, quiet)  # last: a full disk should not cost the answer
        return answer

    if question is None:
        from .conversation import Conversation

        configuration = check_choice(choice, quiet)
        import_ahead()
        with ExitStack() as stack:
            # Opened for the first question: who types it waits for no import.
            engine = cache(lambda: stack.enter_context(open_engine(choice, quiet, configuration)))
            talk = Conversation(
                pictures, lambda about, words: show_answer(ask_once(engine(), about, words), about), quiet
            )
            raise Exit(talk.run())
    from ..engine.prepared_question import answer_without_models
    from ..engine.request import ask_request

    # What the models cannot know anything about is answered before they are loaded.
    answer = answer_without_models(choice.configure(), ask_request(pictures, question, options))
    if answer is None:
        with open_engine(choice, quiet) as vqa:
            answer = ask_once(vqa, pictures, question)
    show_answer(answer, pictures)


def _split_question(images: list[str], question: str | None, listed: bool) -> tuple[list[str], str | None]:
    """Returns pictures and question; where -q was forgotten, the last of several words that names no file is one."""
    if question is None and len(images) + listed > 1 and images:
        last = images[-1]
        if len(last.split()) > 1 and not Path(last).suffix[1:] and not os.path.lexists(last):
            return images[:-1], last
    return images, question


def _check_baseline(method: Method, shots: int | None, choice: Chosen) -> None:
    """Refuses a baseline that the models cannot do, before anything is read or loaded."""
    if shots is not None:
        hint = "Use --set query.shots=NUMBER." if method == "pnpvqa" else "Leave it out."
        raise InputError(f"--shots does nothing with --method {method}.", hint=hint)
    from ..engine.request import check_method

    check_method(method, choice.configure().methods)


def _from_file(
    questions: str, arguments: Mapping[str, object], choice: Chosen, options: AskOptions, *, evidence: bool, quiet: bool
) -> int:
    """Answers a file of questions; returns the exit status.

    Raises:
        InputError: options were given that the file makes needless.
    """
    if extra := next((name for name, value in arguments.items() if value), None):
        raise InputError(f"{extra} does not go with --questions.", hint="The file names pictures and questions.")
    from .questions_file import answer_lines, read_questions

    lines = read_questions(questions)
    with open_engine(choice, quiet) as vqa:
        return int(bool(answer_lines(vqa, questions, lines, options, evidence=evidence, quiet=quiet)))


def run(
    program: Annotated[str, Argument(metavar="PROGRAM.py", help="A program; - reads standard input.")],
    images: Images = None,
    question: Annotated[str, Option("--question", "-q", help="The question that it answers, to be shown.")] = "",
    *,
    choice: Chosen,
    trace: Trace = None,
    json: Json = False,
    evidence: Evidence = False,
    quiet: Quiet = False,
) -> None:
    """Run your own program over pictures."""
    needs("--evidence", evidence, "--json", json)
    if program == STDIN and STDIN in (images or ()):
        raise InputError("Standard input cannot be the program and a picture.", hint="Put one of them in a file.")
    source = read_text(None if program == STDIN else Path(program))
    pictures = read_pictures(images or ())
    check_place(trace)
    if question:
        choice.check_question(question)
    with open_engine(choice, quiet) as vqa:
        try:
            answer = vqa.run(pictures, source, question=question)
        except ProgramError as error:
            if error.answer is not None:  # what ran until then is what its writer wants to see
                print_printed(error.answer)
                try:
                    write_trace(error.answer, trace, quiet)
                except SetupError as unwritten:
                    warn(str(unwritten))
            raise
    print_answer(answer, json=answer.to_dict(evidence=evidence) if json else None, quiet=quiet)
    write_trace(answer, trace, quiet)


def prompt(
    question: QuestionOption,
    *,
    choice: Chosen,
    selection: Annotated[str | None, Option(help="How to pick examples: nearest, random or fixed.")] = None,
    shots: Shots = None,
    as_set: AsSet = False,
) -> None:
    """Print the exact prompt of the language model.

    Loads the preset's embedding model, to pick examples, and no other model.
    """
    from ..models.protocols import prompt_text
    from ..presets.assembly import prompt_writer
    from ..prompts import load_prompt_set as load_prompts
    from ..writing.offer import by_form

    choice = choice.but(selection=selection)
    question = choice.check_question(question)
    configuration = choice.configure()
    writer = prompt_writer(configuration)
    named = configuration.settings.prompts
    served = writer.prompts if named is None else by_form(load_prompts(named))
    request, _ = writer.request(question, "set" if as_set or "image" not in served else "image", shots)
    # A terminal wants a last line end; the prompt has none.
    print_text(prompt_text(request.prompt), end="\n" if sys.stdout.isatty() else "", exact=True)
