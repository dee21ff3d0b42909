"""``codevqa``: the commands, and errors as one clear line.

Exit status: 0 answered; 1 something failed (a program, a model); 2 what was asked
cannot be done (a picture, a name, the command line itself); 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from io import TextIOWrapper

os.environ.setdefault("TYPER_USE_RICH", "0")  # plain help: rich costs more than everything else together

import typer

from ..core.errors import CodeVQAError, InputError, SetupError
from .ask import ask, prompt, run
from .demo import demo
from .evaluate import evaluate, reproduce
from .models import config, convert, download, models
from .options import choosing
from .runs import diff, export, merge, mini_data, report
from .sets import compare, group, index, select
from .terminal import warn

app = typer.Typer(
    name="codevqa",
    help="Ask about pictures: a language model writes a small program, a sandbox runs it over visual models.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS: tuple[Callable[..., None], ...] = (
    *(ask, select, group, compare, index),
    *(run, prompt, config, models, download, convert, mini_data, demo),
    *(evaluate, reproduce, merge, export, report, diff),
)
for command in COMMANDS:
    app.command("eval" if command is evaluate else None)(choosing(command))


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
    # UTF-8 into any file or pipe, as Python itself does from 3.15 on; what is no text is escaped as JSON escapes it.
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        *((one, "backslashreplace") for one in (sys.stdout, sys.stderr)),
    ):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="codevqa", standalone_mode=False) or 0)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        warn(f"{error.format_message()} See {context.command_path if context else 'codevqa'} --help.")
        sys.exit(2)
    except CodeVQAError as error:
        warn(str(error))
        sys.exit(2 if isinstance(error, InputError | SetupError) else 1)
    except BrokenPipeError:
        # The reader of our output has gone; the rest of it has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        warn(f"{error.strerror or error}: {error.filename or 'output'}")
        sys.exit(1)
