"""``codevqa run``."""

from __future__ import annotations

from typing import Annotated

import typer

from .ask import Evidence, Images, Json, Quiet
from .checks import check_question
from .configured import Compat, Config, LanguageModel, Preset, Sets, chosen
from .pictures import STDIN, read_pictures
from .show import open_engine, print_answer, print_printed, warn
from .trace_file import Trace, check_place, write_trace


def run(
    program: Annotated[str, typer.Argument(metavar="PROGRAM.py", help="A program; - reads standard input.")],
    images: Images,
    question: Annotated[
        str, typer.Option("--question", "-q", help="The question that the program answers, to be shown.")
    ] = "",
    preset: Preset = None,
    config: Config = None,
    compat: Compat = None,
    language_model: LanguageModel = None,
    sets: Sets = None,
    trace: Trace = None,
    json: Json = False,
    evidence: Evidence = False,
    quiet: Quiet = False,
) -> None:
    """Run your own program over pictures."""
    from ..core.errors import InputError, ProgramError, SetupError

    if program == STDIN and STDIN in images:
        raise InputError("Standard input cannot be the program and a picture.", hint="Put one of them in a file.")
    source = _read(program)
    pictures = read_pictures(images)
    check_place(trace)
    choice = chosen(preset, config, compat, sets, language_model=language_model)
    if question:
        check_question(question, choice)
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
    print_answer(answer, json=json, evidence=evidence, quiet=quiet)
    write_trace(answer, trace, quiet)


def _read(name: str) -> str:
    from pathlib import Path

    from ..core.given_files import read_stdin, read_text

    return read_stdin() if name == STDIN else read_text(Path(name))
