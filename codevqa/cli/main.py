"""``codevqa``: the subcommands, and errors as one clear line.

Exit status: 0 answered; 1 something failed (a program, a model); 2 what was asked
cannot be done (a picture, a name, the command line itself); 130 interrupted.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from io import TextIOWrapper

os.environ.setdefault("TYPER_USE_RICH", "0")  # plain help: rich costs more than everything else together

import typer

from ..core.errors import CodeVQAError, InputError, SetupError
from .ask import ask
from .checks import Command
from .config import config
from .convert import convert
from .demo import demo
from .download import download
from .eval import evaluate
from .export import export
from .lavis import lavis
from .merge import merge
from .mini_data import mini_data
from .models import models
from .prompt import prompt
from .report import diff, report
from .reproduce import reproduce
from .run import run
from .show import warn
from .view import view

app = typer.Typer(
    name="codevqa",
    help="Ask about pictures: a language model writes a small program, a sandbox runs it over visual models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command(cls=Command)(ask)
app.command(cls=Command)(run)
app.command(cls=Command)(prompt)
app.command(cls=Command)(config)
app.command(cls=Command)(models)
app.command(cls=Command)(download)
app.command(cls=Command)(convert)
app.command(cls=Command)(lavis)
app.command("mini-data", cls=Command)(mini_data)
app.command(cls=Command)(demo)
app.command("eval", cls=Command)(evaluate)
app.command(cls=Command)(reproduce)
app.command(cls=Command)(merge)
app.command(cls=Command)(export)
app.command(cls=Command)(report)
app.command(cls=Command)(view)
app.command(cls=Command)(diff)


def version(value: bool) -> None:
    """Prints the version and ends."""
    if value:
        from .. import __version__

        print(__version__)
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
    # What a terminal's encoding lacks is written as JSON escapes it, which leaves JSON what it is.
    codecs.register_error("codevqa.escaped", _escaped)
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "codevqa.escaped"),
        (sys.stderr, "codevqa.escaped"),
    ):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=errors)
    try:
        app()
    except CodeVQAError as error:
        warn(str(error))
        sys.exit(2 if isinstance(error, InputError | SetupError) else 1)
    except BrokenPipeError:
        # Whoever read our output has gone; what is left of it has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        warn(f"{error.strerror or error}: {error.filename or 'output'}")
        sys.exit(1)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
