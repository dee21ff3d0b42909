"""``codevqa run``."""

from __future__ import annotations

from typing import Annotated

import typer

from .ask import Evidence, Images, Json, LanguageModel, Preset, Quiet
from .show import open_engine, print_answer, warn
from .trace_file import Trace, check_place, write_trace


def run(
    program: Annotated[str, typer.Argument(metavar="PROGRAM.py", help="A program; - reads standard input.")],
    images: Images,
    question: Annotated[str, typer.Option("--question", "-q", help="The question it answers, for the record.")] = "",
    preset: Preset = "mini",
    language_model: LanguageModel = None,
    trace: Trace = None,
    json: Json = False,
    evidence: Evidence = False,
    quiet: Quiet = False,
) -> None:
    """Run a program you wrote or edited over pictures."""
    from ..core.errors import ProgramError, SetupError
    from ..core.images import load_pictures

    source = _read(program)
    pictures = load_pictures(images)
    check_place(trace, [program, *images])
    with open_engine(preset, None, language_model, quiet) as vqa:
        try:
            answer = vqa.run(source, pictures, question=question)
        except ProgramError as error:
            if error.answer is not None:  # what ran until then is what its writer wants to see
                try:
                    write_trace(error.answer, trace, quiet)
                except SetupError as unwritten:
                    warn(str(unwritten))
            raise
    print_answer(answer, json=json, evidence=evidence, quiet=quiet)
    write_trace(answer, trace, quiet)


def _read(name: str) -> str:
    import sys
    from pathlib import Path

    from ..core.errors import InputError

    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{name} is not a text file.", hint="Give a Python program.") from None
    except OSError as error:
        raise InputError(f"Cannot read the program {name}: {error.strerror}.") from None
