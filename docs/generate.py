"""Writes the pages of docs/ that come from the code; ``--check`` only says which are stale.

``make docs`` runs it; the tests fail while a page is stale.
"""

from __future__ import annotations

import re
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def primitives_page() -> str:
    """Returns the vocabulary page."""
    from codevqa.primitives import CONSTANTS
    from codevqa.primitives.visual import BUILT_IN

    intro = (
        "Programs can call these functions if the models serve them. `find_object`, `count` and `crop` need a "
        "detector.\n`visual_query` and `knowledge_query` need a prompt set that names them.\n\n"
    )
    constants = ", ".join(f"`{name} = {value}`" for name, value in CONSTANTS.items())
    sections = "\n\n".join(
        f"## `{primitive.name}`\n\n`{primitive.signature}`\n\n{primitive.doc}" for primitive in BUILT_IN
    )
    return f"# Primitives\n\n{intro}Constants: {constants}.\n\n{sections}\n"


def command_line_page() -> str:
    """Returns the help of every subcommand."""
    import typer

    from codevqa.cli.main import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    chosen = option_records(commands["config"])
    known = set(chosen)
    parts = [
        "# Commands\n\nMODELS stands for the options that choose models and [settings](configuration.md):\n",
        "\n".join(map(option_line, chosen)) + "\n",
    ]
    for name, command in commands.items():
        if not command.help:
            raise SystemExit(f"codevqa {name} has no help.")
        entries = option_records(command)
        whole = set(chosen) <= set(entries)
        names = [
            f"`{entry[0].split()[0].rstrip(',')}`"
            for entry in entries
            if entry in known and not (whole and entry in chosen)
        ]
        above = ["MODELS", *names] if whole else names
        lines = [option_line(entry) for entry in entries if entry not in known]
        lines += [f"- As above: {', '.join(above)}."] if above else []
        known.update(entry for entry in entries if entry[0].startswith("-"))
        parts += [f"## codevqa {name}\n", f"{cleandoc(command.help)}\n", "\n".join(lines) + "\n"]
        parts += [re.sub("^Example: (.*)", r"```sh\n\1\n```\n", command.epilog)] if command.epilog else []
    return "\n".join(parts)


def option_records(command: Any) -> list[tuple[str, str]]:
    """Returns what a command's help says of each argument and option: its names, and its text."""
    context = command.make_context("codevqa", [], resilient_parsing=True)
    records = [
        parameter.get_help_record(context) for parameter in command.get_params(context) if parameter.name != "help"
    ]
    return [(re.sub(r" <[a-z ]+(\[\w+\])?>$", "", record[0].strip()), record[1]) for record in records if record]


def option_line(record: tuple[str, str]) -> str:
    """Returns an option as an item of a list."""
    return f"- `{record[0]}`: {' '.join(record[1].split())}"


PAGES = {"primitives.md": primitives_page, "cli.md": command_line_page}


def main() -> int:
    """Writes or checks every page; returns the exit status."""
    stale = []
    for name, make in PAGES.items():
        path, text = HERE / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"stale: {', '.join(stale)}. Run make docs.", file=sys.stderr)
        return 1
    print(f"wrote {', '.join(stale)}" if stale else "every page is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
