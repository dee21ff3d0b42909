"""How often texts name one of the pairs of colour and kind that no training picture shows.

    python -m training.named_pairs [RUN ...]

Scenes that training draws never show these pairs; its questions were made for such scenes, but ask for what is *not*
there as well, and nobody kept the pairs out of those. Counted are programs and readings drawn as for training and, of
runs of ``codevqa eval`` over drawn data, the questions that name such a pair, with each method's accuracy on them and
on the rest.
"""

from __future__ import annotations

import argparse
import random
import re
from pathlib import Path

import numpy as np

from codevqa.eval.metrics import metric_for
from codevqa.eval.run.store import Store
from codevqa.eval.statistics import mean
from codevqa.miniworld.world import HELD_OUT, plural

from .language_data import Pool, draw_question, sample_program

_PAIRS = re.compile(
    r"\b(?:" + "|".join(f"{color} (?:{kind}|{plural(kind)})" for color, kind in sorted(HELD_OUT)) + r")\b"
)


def names_pair(text: str) -> bool:
    """Whether a held-out pair is named, its colour right before its kind."""
    return _PAIRS.search(text.lower()) is not None


def in_training(programs: int, readings: int) -> None:
    """Prints how many texts name one, of so many drawn as for training."""
    rng = random.Random(0)
    pool = Pool(rng, 3_000)
    learnt = ["".join(piece.text for piece in sample_program(rng, pool) if piece.learnt) for _ in range(programs)]
    print(f"programs learnt from: {sum(map(names_pair, learnt))} of {programs} name a held-out pair")
    asked = [draw_question(rng) for _ in range(readings)]
    named = [one.answer for one in asked if names_pair(one.text)]
    print(f"questions to be read: {len(named)} of {readings}, {named.count('no')} of them answered no")


def in_run(path: Path) -> None:
    """Prints how many questions of a run name one, and how both kinds are answered."""
    with Store.open(path) as store:
        metric, title = metric_for(store.info.dataset), f"{store.info.dataset} {store.info.split}"
        for method in store.info.methods:
            pairs = [(example, metric.score(example, row.prediction) or 0.0) for example, row in store.pairs(method)]
            named = np.array([names_pair(example.question) for example, _ in pairs])
            scores, clusters = np.array([score for _, score in pairs]), np.array([one.cluster for one, _ in pairs])
            for which, told in ((named, "naming a held-out pair"), (~named, "the rest")):
                found = mean(scores[which], clusters=clusters[which]) if which.any() else "none"
                print(f"{title}, {method}, {told} ({which.mean():.0%}): {found}")


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description="How often texts name a pair that no training picture shows.")
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--texts", type=int, default=3_000)
    told = parser.parse_args()
    in_training(told.texts, told.texts)
    for path in told.runs:
        in_run(path)


if __name__ == "__main__":
    main()
