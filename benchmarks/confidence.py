"""Fits the confidence of answers on runs that were made with --agree, and says how good it is.

    python benchmarks/confidence.py RUN [RUN ...]

Prints what codevqa/engine/confidence.py holds. Figures are of questions whose pictures (clusters) were left out of the
fit, a fifth at a time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from codevqa.core.errors import CodeVQAError
from codevqa.core.trace import Draft
from codevqa.engine.confidence import votes_of, worlds_of
from codevqa.eval import Store
from codevqa.eval.report.reading import metric_of

FOLDS = 5
PENALTY = 1e-3
_DRAFTS = TypeAdapter(tuple[Draft, ...])
Array = NDArray[np.float64]


def read(runs: Sequence[Path]) -> tuple[dict[str, Array], Array, list[str]]:
    """Returns what is known of the answers of several programs, their scores and their clusters."""
    known: dict[str, list[float]] = {"WORLDS": [], "VOTES": []}
    right, clusters = [], []
    for run in runs:
        with Store.open(run) as store:
            metric = metric_of(store.info)
            for example, row in store.pairs("codevqa"):
                drafts = _DRAFTS.validate_python(row.trace.get("drafts", ()))
                score = metric.score(example, row.prediction)
                votes = votes_of(drafts) if any(draft.chosen for draft in drafts) else None
                if votes is not None and score is not None:
                    known["WORLDS"].append(worlds_of(drafts))
                    known["VOTES"].append(votes)
                    right.append(score)
                    clusters.append(f"{run}\0{example.cluster or example.id}")
    return {name: np.array(values) for name, values in known.items()}, np.array(right), clusters


def fitted(share: Array, right: Array) -> Array:
    """Returns intercept and weight of a logistic regression, by Newton's method."""
    given = np.column_stack([np.ones(len(share)), share])
    weights = np.zeros(2)
    for _ in range(50):
        sure = probability(share, weights)
        slope = given.T @ (right - sure) - PENALTY * weights
        bend = (given * (sure * (1 - sure))[:, None]).T @ given + PENALTY * np.eye(2)
        weights += np.linalg.solve(bend, slope)
    return weights


def probability(share: Array, weights: Array) -> Array:
    """Returns what a regression says of shares."""
    return np.asarray(1 / (1 + np.exp(-weights[0] - weights[1] * share)))


def left_out(share: Array, right: Array, clusters: Sequence[str]) -> Array:
    """Returns the confidence of each answer by a fit without its cluster's fold."""
    names, number = np.unique(clusters, return_inverse=True)
    fold = np.random.default_rng(0).integers(FOLDS, size=len(names))[number]
    found = np.zeros(len(share))
    for one in range(FOLDS):
        found[fold == one] = probability(share[fold == one], fitted(share[fold != one], right[fold != one]))
    return found


def figures(share: Array, sure: Array, right: Array) -> str:
    """Returns errors at full and at 80 % coverage, the area under the curve, and the error of calibration."""
    means = {value: 1 - right[share == value].mean() for value in share.tolist()}
    order = np.argsort(-share, kind="stable")
    risk = np.cumsum([means[value] for value in share[order].tolist()]) / np.arange(1, len(share) + 1)
    gap = sum(len(part) * abs(sure[part].mean() - right[part].mean()) for part in np.array_split(order, 10)) / len(
        share
    )
    most = risk[round(0.8 * len(risk)) - 1]
    return f"n={len(share)}, errors {risk[-1]:.3f}, at 80 % {most:.3f}, area {risk.mean():.3f}, calibration {gap:.3f}"


def main() -> None:
    """Parses the arguments, fits and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    try:
        known, right, clusters = read(parser.parse_args().runs)
    except CodeVQAError as error:
        parser.error(str(error))
    if not clusters:
        parser.error("no answer of these runs was chosen from several: make them with --agree 5")
    for name, share in known.items():
        print(f"{name} = ({', '.join(f'{one:.2f}' for one in fitted(share, right))})")
        sure = left_out(share, right, clusters)
        for run in dict.fromkeys(one.partition("\0")[0] for one in clusters):
            here = np.array([one.partition("\0")[0] == run for one in clusters])
            print(f"  {run}: {figures(share[here], sure[here], right[here])}")
        print(f"  all: {figures(share, sure, right)}")


if __name__ == "__main__":
    main()
