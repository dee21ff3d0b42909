"""``codevqa``: the commands, and errors as one clear line.

Exit status: 0 answered; 1 something failed (a program, a model); 2 what was asked
cannot be done (a picture, a name, the command line itself); 130 interrupted. Of
``check`` 1 and 2 are verdicts, and 3 is all that cannot be done.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from itertools import chain
from typing import Any

os.environ.setdefault("TYPER_USE_RICH", "0")  # plain help: rich costs more than everything else together
# Threads of numpy and scipy for large matrices spin for up to 0.1 s each; here only torch multiplies such.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import typer
import typer.core

from ..core.errors import CodeVQAError, InputError, SetupError
from .ask import ask, prompt, run
from .check import CANNOT, check
from .demo import demo
from .doctor import doctor
from .evaluate import evaluate, reproduce
from .models import config, convert, download, models
from .options import choosing
from .printing import print_text
from .runs import diff, export, merge, mini_data, report, runs
from .sets import compare, group, index, select
from .tables import table
from .terminal import warn

TASKS: Mapping[str, tuple[Callable[..., None], ...]] = {
    "Ask": (ask, table, check, select, group, compare, index, demo),
    "Look inside": (run, prompt, config),
    "Models and data": (models, doctor, download, convert, mini_data),
    "Evaluate": (evaluate, reproduce, report, diff, runs, merge, export),
}
"""The commands, as the help groups them."""
EXAMPLES: Mapping[Callable[..., None], str] = {
    ask: 'codevqa ask examples/pictures/harbor.png -q "Is the flag red?"',
    table: 'codevqa table photos/ --ask "dogs: How many dogs are there?" --ask "night: Is it night?" --out photos.csv',
    check: "codevqa check rules.toml photos/ --page check.html --junit check.xml",
    select: 'codevqa select photos/ "a red car at night" --copy-to found',
    group: 'codevqa group photos/ -q "What season is it?" --csv seasons.csv',
    compare: 'codevqa compare 2023/ 2024/ -q "How many pictures show snow?"',
    index: "codevqa index photos/ --recursive",
    run: "codevqa run program.py photo.jpg",
    prompt: 'codevqa prompt -q "Is there a dog?"',
    config: "codevqa config --preset base > my.toml",
    doctor: "codevqa doctor --preset api --model NAME --save my.toml",
    download: "codevqa download base --dry-run",
    mini_data: "codevqa mini-data drawn --limit 20 --only gqa",
    evaluate: "codevqa eval gqa --data drawn --split val_balanced --out runs/first",
    report: "codevqa report runs/first --open",
    diff: "codevqa diff runs/first runs/second",
}


def command_name(command: Callable[..., None]) -> str:
    """Returns what a command is called on the command line."""
    return "eval" if command is evaluate else command.__name__.replace("_", "-")


class Grouped(typer.core.TyperGroup):
    """Lists commands by task, each with the whole first line of its help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each task."""
        wide = max(map(len, self.commands))
        for task, commands in TASKS.items():
            with formatter.section(task):
                for command in commands:
                    summary = (command.__doc__ or "").partition("\n")[0]
                    formatter.write(f"  {command_name(command):{wide}}  {summary}\n")


class Logged(logging.Handler):
    """Says what is logged as the commands say anything."""

    def emit(self, record: logging.LogRecord) -> None:
        """Says one record."""
        warn(record.getMessage())


class OneQuestion(typer.core.TyperCommand):
    """Refuses a second question, which would silently take the place of the first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the words after the command's name."""
        *_, order = self.make_parser(ctx).parse_args(args=[*args])
        if sum(option.name == "question" for option in order) > 1:
            ctx.fail("Only one question is asked at a time. For many: codevqa ask --questions FILE.")
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="codevqa",
    cls=Grouped,
    help="Ask about pictures: a language model writes a small program, a sandbox runs it over visual models.",
    epilog=f"Start with: {EXAMPLES[ask]}",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in chain.from_iterable(TASKS.values()):
    example = f"Example: {EXAMPLES[command]}" if command in EXAMPLES else None
    app.command(command_name(command), cls=OneQuestion, epilog=example)(choosing(command))


def version(value: bool) -> None:
    """Prints the version and ends."""
    if value:
        from .. import __version__

        print_text(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Runs the command line; an error we know is one line on standard error, never a traceback.

    Typer itself ends an interrupted command, with status 130.
    """
    # UTF-8 into any file or pipe, as Python itself does from 3.15 on; what is no text is escaped as JSON escapes it.
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        *((output, "backslashreplace") for output in (sys.stdout, sys.stderr)),
    ):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    logging.lastResort = Logged(logging.WARNING)
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="codevqa", standalone_mode=False) or 0)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        warn(f"{error.format_message()} See {context.command_path if context else 'codevqa'} --help.")
        sys.exit(CANNOT if sys.argv[1:2] == ["check"] else 2)
    except CodeVQAError as error:
        warn(str(error))
        sys.exit(CANNOT if sys.argv[1:2] == ["check"] else 2 if isinstance(error, InputError | SetupError) else 1)
    except BrokenPipeError:
        # The reader of our output has gone; the rest of it has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        warn(f"{error.strerror or error}: {error.filename or 'output'}")
        sys.exit(1)
