"""What the rows of a run cost."""

from __future__ import annotations

from pathlib import Path

from eval_kit import Numbered, fake_engine

from codevqa.eval import evaluate
from codevqa.eval.report.reading import summary_of


def test_every_row_says_what_it_cost_and_reading_is_counted_apart_from_writing(tmp_path: Path) -> None:
    with fake_engine() as vqa, evaluate(vqa, Numbered(tmp_path, 4), tmp_path / "run") as store:
        rows = {method: next(store.rows(method)) for method in ("codevqa", "pnpvqa")}
        summary, pace = summary_of(store), store.pace()
    ours, theirs = rows["codevqa"].cost, rows["pnpvqa"].cost
    assert ours is not None and theirs is not None
    assert ours.calls == {"caption": 2, "match": 1, "read": 1, "write": 1} and "write" not in theirs.calls
    assert ours.prompt_tokens + ours.completion_tokens == rows["codevqa"].tokens
    assert ours.program_seconds > 0 == theirs.program_seconds and ours.model_seconds > 0
    assert ours.seconds < rows["codevqa"].seconds
    cost = summary.methods["codevqa"].cost
    assert cost is not None and cost.rows == 4 and cost.calls == ours.calls
    assert pace is not None and pace.questions == 4 and pace.rate is not None
