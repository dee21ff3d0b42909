"""Writes the pages of docs/ that come from the code; ``--check`` only says which are stale.

``make docs`` runs it; the tests fail while a page is stale.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def primitives() -> str:
    """Returns the vocabulary page."""
    from codevqa.primitives import CONSTANTS
    from codevqa.primitives.visual import BUILT_IN

    intro = (
        "Programs can call these functions, where the models serve them. `find_object`, `count` and `crop` need a "
        "detector.\n`visual_query` and `knowledge_query` need a prompt set that names them. Generated from the "
        "primitives themselves: `make docs`.\n\n"
    )
    rows = [f"| `{one.signature.replace('|', chr(92) + '|')}` | {one.summary} |" for one in BUILT_IN]
    table = "\n".join(["| Primitive | What it does |", "|---|---|", *rows])
    constants = ", ".join(f"`{name} = {value}`" for name, value in CONSTANTS.items())
    sections = "\n\n".join(f"## `{one.name}`\n\n`{one.signature}`\n\n{one.doc}" for one in BUILT_IN)
    return f"# Primitives\n\n{intro}{table}\n\nConstants: {constants}.\n\n{sections}\n"


def command_line() -> str:
    """Returns the help of every subcommand."""
    os.environ["TYPER_USE_RICH"] = "0"  # as the command itself does
    import typer
    from typer.testing import CliRunner

    from codevqa.cli.main import app

    where = "What `--set` and `--config` may hold: [configuration.md](configuration.md)."
    parts = [f"# Command line\n\nGenerated from the commands themselves: `make docs`.\n{where}\n"]
    known: set[str] = set()
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        shown = CliRunner().invoke(app, [name, "--help"], prog_name="codevqa", env={"COLUMNS": "100"}).output
        if not re.search(r"\n\n  \w", shown):
            raise SystemExit(f"codevqa {name} has no help.")
        text = once("\n".join(line.rstrip() for line in shown.strip().splitlines()), known)
        parts.append(f"## codevqa {name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def once(text: str, known: set[str]) -> str:
    """Returns a command's help, with the options that an earlier command explained named in one line."""
    text, gap, example = text.partition("\n\n  Example: ")
    head, found, options = text.partition("Options:\n")
    kept, before = [], []
    for option in re.split(r"\n(?=  -)", options):
        name, said = option.split()[0].rstrip(","), " ".join(option.split())
        if said in known:
            before.append(name)
        elif name != "-h":
            kept.append(option)
        known.add(said)
    return head + found + "\n".join([*kept, *([f"  As above: {' '.join(before)}"] if before else [])]) + gap + example


PAGES = {"primitives.md": primitives, "cli.md": command_line}


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
