"""How far guessing from the question alone comes on data that ``codevqa mini-data`` wrote.

Two guessers learn from the training split: the most common answer of each kind of question (its words for things,
colors, sizes and numbers masked), and logistic regression over bags of words and pairs of words. Both should stay near
chance: a half where there are two answers, else one over the number of answers.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-untyped, unused-ignore]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

from codevqa.miniworld.export_draw import skeleton

_NUMBER = re.compile(r"\b(\d+|zero|one|two|three|four|five|six|seven|eight|nine|ten)\b")
FILES = {
    "gqa": "questions1.2/{}_questions.json",
    "covr": "{}.jsonl",
    "nlvr2": "data/{}.json",
}
TRAIN = {"gqa": "train_balanced", "covr": "train", "nlvr2": "train"}


@dataclass(frozen=True)
class Row:
    """One question with its answer."""

    question: str
    answer: str
    kind: str
    binary: bool


def read(data: Path, name: str, split: str) -> list[Row]:
    """Reads the questions of one file."""
    text = (data / name / FILES[name].format(split)).read_text(encoding="utf-8")
    if name == "gqa":
        records = json.loads(text).values()
        return [
            Row(one["question"], one["answer"], _last(one["semantic"]), one["types"]["structural"] != "query")
            for one in records
        ]
    lines = [json.loads(line) for line in text.splitlines()]
    if name == "nlvr2":
        return [Row(one["sentence"], one["label"], "", True) for one in lines]
    return [
        Row(one["utterance"], str(one["answer"]), one["pattern_name"], isinstance(one["answer"], bool)) for one in lines
    ]


def _last(program: list[dict[str, str]]) -> str:
    """The last operation; the detailed type of GQA would tell "no" from "yes"."""
    last = program[-1]
    return f"query {last['argument']}" if last["operation"] == "query" else last["operation"]


def majority(train: Sequence[Row], test: Sequence[Row]) -> float:
    """Accuracy of the most common answer of the masked question, else of its kind, else of all.

    In a choice between two options the guess is whichever place the right one had more often in training.
    """
    by_key: dict[str, Counter[str]] = defaultdict(Counter)
    for row in train:
        for key in _keys(row):
            by_key[key][_said(row)] += 1
    hits = 0
    for row in test:
        key = next(one for one in _keys(row) if one in by_key)
        hits += by_key[key].most_common(1)[0][0] == _said(row)
    return hits / len(test)


def _keys(row: Row) -> tuple[str, str, str]:
    return _NUMBER.sub("NUMBER", skeleton(row.question.lower())), f"kind {row.kind}", ""


def _said(row: Row) -> str:
    """The answer, or its place where it is one of two options that the question names."""
    if not row.binary or " or " not in row.question or row.answer.lower() in ("yes", "no", "true", "false"):
        return row.answer
    before = row.question.lower().rpartition(" or ")[0]
    return "first" if re.search(rf"\b{re.escape(row.answer)}\b", before) else "second"


def bag_of_words(train: Sequence[Row], test: Sequence[Row]) -> float:
    """Accuracy of logistic regression over the words."""
    words = CountVectorizer(ngram_range=(1, 2), token_pattern=r"[\w']+")
    seen = words.fit_transform([f"{row.question} kind{row.kind}" for row in train])
    model = LogisticRegression(max_iter=300, C=0.3).fit(seen, [row.answer for row in train])
    asked = words.transform([f"{row.question} kind{row.kind}" for row in test])
    return float(model.score(asked, [row.answer for row in test]))


def chance(train: Sequence[Row], test: Sequence[Row]) -> float:
    """Accuracy of a guess that knows only which answers a kind of question has."""
    answers: dict[str, set[str]] = defaultdict(set)
    for row in train:
        answers[row.kind].add(row.answer)
    return sum(0.5 if row.binary else 1 / max(1, len(answers[row.kind])) for row in test) / len(test)


def guessed(data: Path, name: str, split: str) -> float:
    """Returns how far the best guesser that sees the question alone comes, the most common answer among them."""
    train, test = read(data, name, TRAIN[name]), read(data, name, split)
    common = Counter(row.answer for row in test).most_common(1)[0][1] / len(test)
    return max(common, majority(train, test), bag_of_words(train, test))
