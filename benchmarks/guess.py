"""How far guessing from the question alone comes on data that ``codevqa mini-data`` wrote.

Two guessers learn from the training split: the most common answer of each kind of question (its words for things,
colors, sizes and numbers masked), and logistic regression over bags of words and pairs of words. Both should stay near
chance: a half where there are two answers, else one over the number of answers.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from codevqa.eval.task import Example
from codevqa.miniworld.export_draw import skeleton

_NUMBER = re.compile(r"\b(\d+|zero|one|two|three|four|five|six|seven|eight|nine|ten)\b")


@dataclass(frozen=True)
class Row:
    """One question with its answer."""

    question: str
    answer: str
    kind: str
    binary: bool


def read(examples: Iterable[Example]) -> list[Row]:
    """Reads the questions of a data set."""
    return [Row(one.question, one.gold[0], *_kind(one)) for one in examples]


def _kind(one: Example) -> tuple[str, bool]:
    """What is asked for, and whether there are two answers; the detailed type of GQA would tell "no" from "yes"."""
    if "semantic" not in one.record:
        return str(one.record.get("pattern_name", "")), one.gold[0] in ("yes", "no")
    last = one.record["semantic"][-1]
    asked = f"query {last['argument']}" if last["operation"] == "query" else last["operation"]
    return asked, one.record["types"]["structural"] != "query"


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
    if not row.binary or " or " not in row.question or row.answer in ("yes", "no"):
        return row.answer
    before = row.question.lower().rpartition(" or ")[0]
    return "first" if re.search(rf"\b{re.escape(row.answer)}\b", before) else "second"


def bag_of_words(train: Sequence[Row], test: Sequence[Row]) -> float:
    """Accuracy of logistic regression over the words."""
    from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-untyped, unused-ignore]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

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


def guessed(learnt: Iterable[Example], asked: Iterable[Example]) -> float:
    """Returns how far the best guesser that sees the question alone comes, the most common answer among them."""
    train, test = read(learnt), read(asked)
    common = Counter(row.answer for row in test).most_common(1)[0][1] / len(test)
    return max(common, majority(train, test), bag_of_words(train, test))
