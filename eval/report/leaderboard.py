"""Several runs as one table, a line a run: what was asked of which models, how well it went, and what it took.

The file's ending says what it becomes: ``.json`` (all columns), ``.csv`` (all columns), ``.md`` (those one compares).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from ..run.store import Store
from ..statistics import Interval
from .exports import written
from .table import summary_of

__all__ = ["leaderboard"]

SHOWN = ("run", "models", "dataset", "split", "n", "accuracy", "baseline", "difference", "seconds", "tokens")
"""Columns of the Markdown table."""


def leaderboard(stores: Sequence[Store], out: Path) -> int:
    """Writes a table of runs, those of one data set, split and metric together, the best first.

    Returns:
        How many runs it has.

    Raises:
        InputError: the file's ending is none of the three, or a run has no rows yet.
        SetupError: the file cannot be written.
    """
    forms = {".json": _json, ".csv": _csv, ".md": _markdown}
    if out.suffix not in forms:
        raise InputError(f"A leaderboard cannot be {out.name!r}.", hint=f"Give a name that ends in {', '.join(forms)}.")
    lines = sorted(
        map(_line, stores), key=lambda one: (one["dataset"], one["split"], one["metric"], -(one["accuracy"] or 0))
    )

    def write(path: Path) -> int:
        path.write_text(forms[out.suffix](lines), encoding="utf-8")
        return len(lines)

    return written(out, write)


def _line(store: Store) -> dict[str, Any]:
    info = store.info
    if not store.counts():
        raise InputError(f"The run {store.folder} has no rows yet.")
    summary = summary_of(store)
    ours, baseline = summary.methods.get("codevqa"), summary.methods.get("pnpvqa")
    taken = ours or baseline
    assert taken is not None
    return {
        "run": store.folder.resolve().name,
        "preset": info.preset,
        "models": dict(info.models),
        "prompts": info.prompts,
        "dataset": info.data_name,
        "split": info.split,
        "metric": summary.metric,
        "n": taken.rows,
        **_interval("accuracy", ours.accuracy if ours else None),
        **_interval("baseline", baseline.accuracy if baseline else None),
        **_interval("difference", summary.paired.difference if summary.paired else None),
        "fallback": ours.fallback.value if ours else None,
        "seconds": taken.cost.seconds if taken.cost else taken.seconds["mean"],
        "prompt_tokens": taken.cost.prompt_tokens if taken.cost else None,
        "completion_tokens": taken.cost.completion_tokens if taken.cost else None,
        "tokens": taken.tokens,
        "seeds": len(info.seeds),
        "machine": info.machine,
        "version": info.version,
        "begun": info.started,
        "data_hash": info.data_hash,
        "prompt_hash": info.prompt_hash,
    }


def _interval(name: str, found: Interval | None) -> dict[str, float | None]:
    values = (None, None, None) if found is None else (found.value, found.low, found.high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _json(lines: Sequence[dict[str, Any]]) -> str:
    return json.dumps(lines, indent=2, ensure_ascii=False) + "\n"


def _csv(lines: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    table.writeheader()
    table.writerows({**line, "models": _models(line)} for line in lines)
    return text.getvalue()


def _markdown(lines: Sequence[dict[str, Any]]) -> str:
    rows = [SHOWN, ("---",) * len(SHOWN), *([_cell(line, name) for name in SHOWN] for line in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _models(line: dict[str, Any]) -> str:
    return ", ".join(f"{role} {model}" for role, model in line["models"].items())


def _cell(line: dict[str, Any], name: str) -> str:
    value = _models(line) if name == "models" else line[name]
    if value is None:
        return "–"
    if f"{name}_low" in line:
        return f"{100 * value:.1f} [{100 * line[f'{name}_low']:.1f}, {100 * line[f'{name}_high']:.1f}]"
    if name == "seconds":
        return f"{value:.2f}"
    return str(value).replace("|", "\\|") if isinstance(value, str) else f"{value:,.0f}"
