"""What exports to other harnesses share: the run's metric, its mean with standard error, and its names there."""

from __future__ import annotations

from datetime import UTC, datetime

from ...core.errors import UnknownNameError
from ..metrics import Metric
from ..run.run_info import RunInfo
from ..run.store import Store
from ..task import Example
from . import run_metric

__all__ = ["began", "metric_key", "metric_of", "model_name", "target"]


def metric_of(store: Store) -> Metric | None:
    """Returns the run's metric; None for a data set of the user's own, whose rows are written without scores."""
    try:
        return run_metric.metric_of(store.info)
    except UnknownNameError:
        return None


def metric_key(info: RunInfo) -> str:
    """Returns what others call such a metric."""
    return "vqa_score" if info.dataset in ("vqav2", "okvqa") else "exact_match"


def model_name(info: RunInfo) -> str:
    """Returns the name under which other harnesses call such an engine."""
    return f"codevqa/{info.preset or 'own'}"


def began(info: RunInfo) -> datetime:
    """Returns when a run began; 1970 where it does not say."""
    return datetime.fromisoformat(info.started) if info.started else datetime.fromtimestamp(0, UTC)


def target(example: Example) -> str:
    """Returns the one answer that stands for all: the most frequent, the first of equals; empty where it is hidden."""
    return max(example.gold, key=example.gold.count) if example.gold else ""
