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
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]
from sklearn.model_selection import GroupKFold, cross_val_predict  # type: ignore[import-untyped, unused-ignore]

from codevqa.core.errors import CodeVQAError
from codevqa.core.trace import Draft
from codevqa.engine.answers import votes_of, worlds_of
from codevqa.eval import Store
from codevqa.eval.report.reading import metric_of
from codevqa.eval.statistics import risk

_DRAFTS = TypeAdapter(tuple[Draft, ...])
Array = NDArray[np.float64]


def read_runs(runs: Sequence[Path]) -> tuple[dict[str, Array], Array, list[str]]:
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


def format_figures(share: Array, sure: Array, right: Array) -> str:
    """Returns errors at full and at 80 % coverage, the area under the curve, and the error of calibration."""
    errors = risk(share, 1 - right)
    tenths = np.array_split(np.argsort(share, kind="stable"), 10)
    gap = sum(len(part) * abs(sure[part].mean() - right[part].mean()) for part in tenths) / len(share)
    most = errors[round(0.8 * len(errors)) - 1]
    return (
        f"n={len(share)}, errors {errors[-1]:.3f}, at 80 % {most:.3f}, area {errors.mean():.3f}, calibration {gap:.3f}"
    )


def main() -> None:
    """Parses the arguments, fits and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    try:
        known, right, clusters = read_runs(parser.parse_args().runs)
    except CodeVQAError as error:
        parser.error(str(error))
    if not clusters:
        parser.error("no answer of these runs was chosen from several: make them with --agree 5")
    model = LogisticRegression(C=1000)
    for name, share in known.items():
        fitted = model.fit(share[:, None], right)
        print(f"{name} = ({fitted.intercept_[0]:.2f}, {fitted.coef_[0, 0]:.2f})")
        sure = cross_val_predict(
            model, share[:, None], right, groups=clusters, cv=GroupKFold(5), method="predict_proba"
        )[:, 1]
        for run in dict.fromkeys(cluster.partition("\0")[0] for cluster in clusters):
            here = np.array([cluster.partition("\0")[0] == run for cluster in clusters])
            print(f"  {run}: {format_figures(share[here], sure[here], right[here])}")
        print(f"  all: {format_figures(share, sure, right)}")


if __name__ == "__main__":
    main()
