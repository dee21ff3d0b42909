"""How often the interval of a few labels and many predictions holds the truth, and how wide it is.

``python benchmarks/label_coverage.py [--collections 1000] [--labels 40] [--seed 0]`` draws collections of 200 to 2,000
pictures for each kind of model. The true share of yes lies between .02 and .98, or each picture holds 0 to 5 things.
Beside it stands the interval that uses labels alone: Wilson's for shares, Student's t for numbers, both narrowed
because the pictures are all there are.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from codevqa.core.prediction_powered import estimate_mean
from codevqa.eval.statistics import wilson

Values = NDArray[np.int64]
Guesser = Callable[[np.random.Generator, Values], NDArray[Any]]


def guess_rightly(right: float) -> Guesser:
    """Returns a model that answers yes/no questions rightly in a share of cases."""

    def guess(rng: np.random.Generator, truth: Values) -> NDArray[Any]:
        return np.asarray(np.where(rng.random(len(truth)) < right, truth, 1 - truth))

    return guess


def guess_beside(share: float, steps: tuple[int, ...]) -> Guesser:
    """Returns a model that counts wrongly in a share of cases, by one of some steps."""

    def guess(rng: np.random.Generator, truth: Values) -> NDArray[Any]:
        wrong = rng.random(len(truth)) < share
        return np.asarray(np.maximum(truth + wrong * rng.choice(steps, len(truth)), 0))

    return guess


SHARE_MODELS: dict[str, Guesser] = {
    "right 99 %": guess_rightly(0.99),
    "right 95 %": guess_rightly(0.95),
    "right 85 %": guess_rightly(0.85),
    "right 50 %": guess_rightly(0.5),
    "always yes": lambda rng, truth: np.ones(len(truth)),
    "misses 20 % of yes": lambda rng, truth: truth * (rng.random(len(truth)) >= 0.2),
}
COUNT_MODELS: dict[str, Guesser] = {
    "counts, 3 % off by 1": guess_beside(0.03, (-1, 1)),
    "counts, 20 % off by 1": guess_beside(0.2, (-1, 1)),
    "counts, 60 % off by 1 or 2": guess_beside(0.6, (-2, -1, 1, 2)),
    "counts, 10 % 1 too many": guess_beside(0.1, (1,)),
    "counts, 5 % 3 too many": guess_beside(0.05, (3,)),
    "counts, misses each of 5": lambda rng, truth: rng.binomial(truth, 0.8),
    "counts, useless": lambda rng, truth: rng.permutation(truth),
}


def interval_of_labels(truths: NDArray[Any], pictures: int, share: bool) -> tuple[float, float]:
    """Returns the 95 % interval that uses labels alone."""
    labels, narrower = len(truths), math.sqrt(1 - len(truths) / pictures)
    mean = float(truths.mean())
    if share:
        interval = wilson(int(truths.sum()), labels)
        return mean - (mean - interval.low) * narrower, mean + (interval.high - mean) * narrower
    half = float(stdtrit(labels - 1, 0.975)) * float(truths.std(ddof=1)) / math.sqrt(labels) * narrower
    return mean - half, mean + half


def measure(guess: Guesser, share: bool, collections: int, labels: int, seed: int) -> NDArray[Any]:
    """Returns coverage and mean width of the interval, then the same of labels alone."""
    rng, results = np.random.default_rng(seed), []
    for _ in range(collections):
        pictures = int(rng.integers(200, 2_001))
        if share:
            truth = (np.arange(pictures) < round(rng.uniform(0.02, 0.98) * pictures)).astype(np.int64)
        else:
            truth = rng.choice(6, pictures, p=rng.dirichlet(np.ones(6)))
        guesses, order = guess(rng, truth), rng.permutation(pictures)
        asked, rest = order[:labels], order[labels:]
        estimate = estimate_mean(truth[asked].tolist(), guesses[asked].tolist(), guesses[rest].tolist())
        low, high = interval_of_labels(truth[asked], pictures, share)
        goal, hair = truth.mean(), 1e-9
        held = (estimate.low - hair <= goal <= estimate.high + hair, low - hair <= goal <= high + hair)
        results.append((held[0], estimate.high - estimate.low, held[1], high - low))
    return np.asarray(np.mean(results, axis=0))


def main() -> None:
    """Prints a row for each kind of model, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, default in (("collections", 1_000), ("labels", 40), ("seed", 0)):
        parser.add_argument(f"--{option}", type=int, default=default)
    options = parser.parse_args()
    print("| models | coverage | mean width | coverage, labels alone | mean width, labels alone |")
    print("|---|---|---|---|---|")
    rows = []
    for place, (name, guess) in enumerate((SHARE_MODELS | COUNT_MODELS).items()):
        row = measure(guess, name in SHARE_MODELS, options.collections, options.labels, options.seed + 1_000 * place)
        rows.append(row)
        print(f"| {name} | {row[0]:.3f} | {row[1]:.3f} | {row[2]:.3f} | {row[3]:.3f} |")
    for name, part in (
        ("all yes/no", rows[: len(SHARE_MODELS)]),
        ("all counts", rows[len(SHARE_MODELS) :]),
        ("all", rows),
    ):
        held, width, held_alone, width_alone = np.mean(part, axis=0)
        print(f"| **{name}** | {held:.3f} | {width:.3f} | {held_alone:.3f} | {width_alone:.3f} |")


if __name__ == "__main__":
    main()
