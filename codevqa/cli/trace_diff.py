"""``codevqa trace-diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.text import visible

_FILE = "A trace page, or an answer's JSON with its evidence."


def trace_diff(
    first: Annotated[Path, typer.Argument(metavar="A", help=_FILE)],
    second: Annotated[Path, typer.Argument(metavar="B", help=_FILE)],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what changed from one answer to another: question, models, program, calls, evidence, answer, time.

    Both are files that --trace or Answer.save_html() wrote, or --json --evidence. Times are shown and do not count.
    Exit status: 0 where nothing else changed, 1 where something did, 2 where a file cannot be read.
    """
    from ..pages.differences import compare, describe
    from ..pages.reading import read_answer

    found = compare(read_answer(first), read_answer(second))
    if json:
        import json as encoder

        print(encoder.dumps(found.to_dict(), ensure_ascii=False))
    else:
        for line in describe(found):
            print(visible(line))
    raise typer.Exit(0 if found.equal else 1)
