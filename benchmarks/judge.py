"""Has programs of two ways judged by reading, without the reader knowing the way.

    python benchmarks/programs.py LM RETRIEVER --nlvr2 dev.json --arms words both+12 --out programs.jsonl
    python benchmarks/judge.py sheet programs.jsonl words both+12 --out sheet.md
    python benchmarks/judge.py score sheet.md

``sheet`` writes each program under its question, in random order. The reader puts "right" or "wrong" behind each
"verdict:". Which program is of which way stands in ``sheet.key.json``: do not open it before. Equal programs of a
question are shown once. ``score`` prints the share that is right for each way, and a sign test of the pairs.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codevqa.eval.statistics import mcnemar, wilson

ProgramRow = Mapping[str, Any]
VERDICTS = ("right", "wrong")


class JudgeError(Exception):
    """The sheet cannot be made or scored; the message is one line for the user."""


@dataclass(frozen=True)
class ProgramToJudge:
    """A program to be judged."""

    question: str
    source: str
    id: str
    ways: tuple[str, ...]
    """The ways that wrote it: one, or both."""


def items_of(rows: Sequence[ProgramRow], ways: Sequence[str], seed: int) -> list[ProgramToJudge]:
    """Returns the programs of two ways in random order.

    Args:
        rows: each with ``arm``, ``id``, ``question`` and ``source``.
        ways: names of two arms.
        seed: of the order.

    Raises:
        JudgeError: a way has no programs, or other questions than the other.
    """
    written = {way: {row["id"]: row for row in rows if row["arm"] == way} for way in ways}
    first, second = written.values()
    if not first or first.keys() != second.keys():
        arms = ", ".join(sorted({row["arm"] for row in rows}))
        raise JudgeError(f"{ways[0]} has {len(first)} programs and {ways[1]} {len(second)}. There are: {arms}.")
    items = []
    for id, row in first.items():
        sources = {row["source"]: [ways[0]]}
        sources.setdefault(second[id]["source"], []).append(ways[1])
        items += [ProgramToJudge(row["question"], source, id, tuple(wrote)) for source, wrote in sources.items()]
    random.Random(seed).shuffle(items)
    return items


def sheet_of(items: Sequence[ProgramToJudge]) -> str:
    """Returns the sheet to be filled in."""
    parts = ["# Programs to judge\n\nPut right or wrong behind each verdict.\n"]
    for number, item in enumerate(items, 1):
        parts.append(f"## {number}\n\n{item.question}\n\n```python\n{item.source}\n```\n\nverdict:\n")
    return "\n".join(parts)


def verdicts_of(sheet: str, count: int) -> list[bool]:
    """Returns for each program whether it is right.

    Raises:
        JudgeError: a verdict is missing, or is another word.
    """
    verdicts = [word.strip().lower() for word in re.findall(r"(?m)^verdict:(.*)$", sheet)]
    if len(verdicts) != count:
        raise JudgeError(f"The sheet has {len(verdicts)} verdicts; it was made with {count}.")
    for number, word in enumerate(verdicts, 1):
        if word not in VERDICTS:
            raise JudgeError(f"Verdict {number} is {word!r}. Write right or wrong.")
    return [word == "right" for word in verdicts]


def score(items: Sequence[ProgramToJudge], verdicts: Sequence[bool], ways: Sequence[str]) -> list[str]:
    """Returns the lines of the result: a line a way, and the sign test."""
    right: dict[str, dict[str, bool]] = {way: {} for way in ways}
    for item, verdict in zip(items, verdicts, strict=True):
        for way in item.ways:
            right[way][item.id] = verdict
    first, second = right.values()
    better = sum(second[id] and not first[id] for id in first)
    worse = sum(first[id] and not second[id] for id in first)
    lines = [
        f"{way}: {sum(those.values())} right, {wilson(sum(those.values()), len(those))}" for way, those in right.items()
    ]
    p_value = mcnemar(better, worse) if better + worse else 1.0
    return [*lines, f"{ways[1]} against {ways[0]}: {better} better, {worse} worse, sign test p = {p_value:.2g}"]


def main() -> int:
    """Makes or scores a sheet; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    sheet = tasks.add_parser("sheet", help="write the programs of two arms to be judged")
    sheet.add_argument("programs", type=Path, help="what benchmarks/programs.py --out wrote")
    sheet.add_argument("ways", nargs=2, metavar="ARM")
    sheet.add_argument("--out", type=Path, required=True)
    sheet.add_argument("--seed", type=int, default=0)
    tasks.add_parser("score", help="count a sheet that is filled in").add_argument("sheet", type=Path)
    options = parser.parse_args()
    try:
        if options.task == "sheet":
            rows = [json.loads(line) for line in options.programs.read_text(encoding="utf-8").splitlines()]
            items = items_of(rows, options.ways, options.seed)
            if options.out.exists():
                raise JudgeError(f"{options.out} exists, perhaps with verdicts. Name another file.")
            key = {"ways": options.ways, "items": [vars(item) for item in items]}
            options.out.with_suffix(".key.json").write_text(json.dumps(key), encoding="utf-8")
            options.out.write_text(sheet_of(items), encoding="utf-8")
            print(f"{len(items)} programs to judge in {options.out}.")
        else:
            key = json.loads(options.sheet.with_suffix(".key.json").read_text(encoding="utf-8"))
            items = [ProgramToJudge(**{**item, "ways": tuple(item["ways"])}) for item in key["items"]]
            verdicts = verdicts_of(options.sheet.read_text(encoding="utf-8"), len(items))
            print("\n".join(score(items, verdicts, key["ways"])))
    except (JudgeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
