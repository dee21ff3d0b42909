"""How often a 95 % interval holds the truth, and how often a test finds a difference where there is none.

``python benchmarks/coverage.py`` draws runs of two methods on data sets of a known structure and prints
a table for docs/reports/metrics.md.

An answer is right where a normal number passes a threshold. Questions of one cluster share a part of that number, and
the two methods half of every part, so that the truth is known exactly. How much is shared makes right answers as much
alike within clusters as was measured: .31 of the variance of right and wrong in NLVR, a tenth on drawn pictures.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codevqa.eval.statistics import compare_scores, mean

ROUNDS = 500
"""Runs that are drawn; four times as many of data sets of up to ``SMALL`` questions, where they cost little."""
SMALL = 1_000
TRUE, OTHER = 0.78, 0.68
"""Accuracy of the two methods."""
HIGH = (0.97, 0.94)
"""The same where errors are rare."""

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Structure:
    """Which questions of a data set go together."""

    name: str
    levels: tuple[tuple[Labels, float], ...]
    """What questions may share, with the part of the variance that comes with it."""
    clusters: Labels
    """As reports take them."""
    right: tuple[float, float] = (TRUE, OTHER)
    """Accuracy of the two methods."""

    def numbers(self, rounds: int) -> NDArray[np.float32]:
        """Draws the normal number behind each answer, by round, method and question."""
        random = np.random.default_rng(7)
        n = len(self.clusters)
        draws = np.zeros((rounds, 2, n), dtype=np.float32)
        for labels, part in (*self.levels, (np.arange(n), 1 - sum(part for _, part in self.levels))):
            for methods in (1, 2):  # shared by both, and each method's own
                drawn = random.standard_normal((rounds, methods, labels.max() + 1), dtype=np.float32)
                draws += np.float32((part / 2) ** 0.5) * drawn[:, :, labels]
        return draws


def _flat_structure(
    name: str, sizes: NDArray[Any], part: float, right: tuple[float, float] = (TRUE, OTHER)
) -> Structure:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return Structure(name, ((labels, part),), labels, right)


def structures() -> list[Structure]:
    """Returns the structures of the data sets."""
    random = np.random.default_rng(0)
    # 1,000 sets of four pairs and two sentences, an eighth of whose rows were not kept, as in test1.
    kept = np.flatnonzero(random.random(8000) < 0.87)
    sets, pairs, sentences = kept // 8, kept // 2, kept // 8 * 2 + kept % 2
    numbered = [np.unique(labels, return_inverse=True)[1] for labels in (sets, pairs, sentences)]
    nlvr2 = Structure(
        "NLVR2: 1,000 sets of 4 pairs x 2 sentences",
        tuple(zip(numbered, (0.1, 0.1, 0.25), strict=True)),
        numbered[0],
    )
    nlvr = 6 * random.choice([2, 3, 4, 5], 267, p=[0.05, 0.3, 0.55, 0.1])
    most = np.concatenate([np.tile([2, 3, 4, 5, 6], 12), np.repeat([12, 20, 30, 40, 60], 3)])
    return [
        _flat_structure("GQA, testdev-like: 398 pictures x 31", np.full(398, 31), 0.1),
        _flat_structure("NLVR: 267 statements x 12 to 30 pictures", nlvr, 0.5),
        nlvr2,
        _flat_structure("mini-GQA: 120 pictures x 5", np.full(120, 5), 0.15),
        Structure("mini-COVR: 120 sets x 1", (), np.arange(120)),
        _flat_structure("mini-NLVR2: 30 statements x 4 pairs", np.full(30, 4), 0.3),
        _flat_structure("5 pictures x 5", np.full(5, 5), 0.15),
        # What is right that often correlates within clusters by some .3.
        _flat_structure("75 pictures x 2 to 60, 97 % right in bunches", most, 0.65, HIGH),
        _flat_structure("NLVR, 99.5 % right in bunches", nlvr, 0.75, (0.995, 0.985)),
    ]


@dataclass(frozen=True)
class CoverageRates:
    """Shares of the rounds."""

    share: float
    """The interval of an accuracy holds the truth."""
    difference: float
    """The interval of a difference does."""
    rejected: float
    """The test finds a difference where there is none."""


def measure_coverage(structure: Structure) -> CoverageRates:
    """Returns how often intervals hold the truth, and tests do not."""
    true, other = structure.right
    high, low = (NormalDist().inv_cdf(rate) for rate in structure.right)
    rows = []
    for numbers in structure.numbers(ROUNDS if len(structure.clusters) > SMALL else 4 * ROUNDS):
        ours, theirs = numbers < high
        share = mean(ours, clusters=structure.clusters)
        difference = compare_scores(ours, numbers[1] < low, clusters=structure.clusters).difference
        null = compare_scores(ours, theirs, clusters=structure.clusters)
        held = (share.low <= true <= share.high, difference.low <= true - other <= difference.high)
        rows.append((*held, null.p_value < 0.05))
    return CoverageRates(*np.mean(rows, axis=0).tolist())


def main() -> None:
    """Prints the table."""
    print("| structure | accuracy | difference | true null rejected |\n|---|---|---|---|")
    for structure in structures():
        coverage = measure_coverage(structure)
        print(
            f"| {structure.name} | {coverage.share:.3f} | {coverage.difference:.3f} | {coverage.rejected:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
