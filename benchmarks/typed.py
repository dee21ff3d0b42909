"""Asks `mini` what people type: 720 questions about drawn pictures, written without a look at its grammar.

    python benchmarks/typed.py eighth

Each of the lists ``typed/sixth.jsonl``, ``seventh.jsonl`` and ``eighth.jsonl`` holds 100 questions about one picture,
100 about sets and 40 that such drawings cannot answer, each with all answers that count as right. We read a list after
its first figures (mini/training/README.md). Prints what both methods answer right, and "I don't know"s to questions
that have an answer.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from codevqa import CodeVQA, Question
from codevqa.core.answer_words import DONT_KNOW

HERE = Path(__file__).with_name("typed")
KINDS = ("one picture", "sets", "cannot be answered")


def kind_of(row: dict[str, Any]) -> str:
    """Returns which of the kinds a question is of."""
    if row["answers"] == [DONT_KNOW]:
        return KINDS[2]
    return KINDS[len(row["images"]) > 1]


def simplify_answer(text: str) -> str:
    """Returns an answer without what does not matter: articles, spelling, the order of pictures."""
    text = re.sub(r"^(?:the|an?) ", "", text.lower().strip().rstrip("."))
    text = text.replace("picture ", "image ").replace("colour", "color").replace("grey", "gray").replace(" and ", ", ")
    return ", ".join(sorted(part.strip() for part in text.split(",")))


def main() -> None:
    """Asks, and prints a line a method; the wrong answers with --wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", choices=("sixth", "seventh", "eighth"))
    parser.add_argument("--wrong", action="store_true", help="print what CodeVQA answered wrongly")
    options = parser.parse_args()
    rows = [json.loads(line) for line in (HERE / f"{options.list}.jsonl").read_text(encoding="utf-8").splitlines()]
    questions = [Question([HERE / name for name in row["images"]], row["question"]) for row in rows]
    with CodeVQA.from_preset("mini") as vqa:
        answers = {method: vqa.ask_many(questions, method=method) for method in ("codevqa", "pnpvqa")}
    for method, replies in answers.items():
        right: dict[str, list[bool]] = defaultdict(list)
        declined: dict[str, int] = defaultdict(int)
        for row, answer in zip(rows, replies, strict=True):
            right[kind_of(row)].append(simplify_answer(answer.text) in map(simplify_answer, row["answers"]))
            declined[kind_of(row)] += answer.text == DONT_KNOW
            if options.wrong and method == "codevqa" and not right[kind_of(row)][-1]:
                print(f"{row['question']!r}: {answer.text!r}, not {row['answers'][0]!r}")
        shown = [f"{kind} {sum(right[kind])} of {len(right[kind])} ({declined[kind]} declined)" for kind in KINDS]
        print(f"{method}: {', '.join(shown)}")


if __name__ == "__main__":
    main()
