"""``codevqa``: the subcommands, and errors as one clear line.

Exit status: 0 answered; 1 something failed (a program, a model); 2 what was asked
cannot be done (a picture, a name, the command line itself); 130 interrupted.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TYPER_USE_RICH", "0")  # plain help: rich costs more than everything else together

import typer

from ..core.errors import CodeVQAError, InputError, SetupError
from .ask import ask
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
from .power import power
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
app.command()(ask)
app.command()(run)
app.command()(prompt)
app.command()(config)
app.command()(models)
app.command()(download)
app.command()(convert)
app.command()(lavis)
app.command("mini-data")(mini_data)
app.command()(demo)
app.command("eval")(evaluate)
app.command()(reproduce)
app.command()(merge)
app.command()(export)
app.command()(report)
app.command()(view)
app.command()(diff)
app.command()(power)


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
