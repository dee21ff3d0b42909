import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest

from codevqa.core.trace import Method
from codevqa.eval.metrics import metric_for
from codevqa.eval.report.summary import summarize
from codevqa.eval.report.tables import certainty
from codevqa.eval.statistics import wilson
from codevqa.eval.task import Example, Row

QUESTION = "Is the dog to the left of the cat?"
GQA = metric_for("gqa")


def example(id: str, gold: str = "yes", cluster: str = "", **groups: str) -> Example:
    return Example(id, QUESTION, (), "image", (gold,) if gold else (), groups, cluster)


def pair(one: Example, ours: str, theirs: str) -> tuple[Example, dict[Method, Row]]:
    return one, {"codevqa": Row(one.id, "codevqa", 0, ours), "pnpvqa": Row(one.id, "pnpvqa", 0, theirs)}


def called(*calls: tuple[str, str | None]) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": {"question": text} if text else {}} for name, text in calls]}


def outcomes(*said: str) -> Iterator[tuple[Example, dict[Method, Row]]]:
    """Questions whose gold is yes: "10" is one that only the first method gets right."""
    for place, both in enumerate(said):
        yield pair(example(str(place)), "yes" if both[0] == "1" else "no", "yes" if both[1] == "1" else "no")


def test_figures_are_as_sure_as_their_clusters_not_as_their_questions() -> None:
    rows = []
    for place in range(200):
        one, both = pair(example(str(place), cluster=str(place // 10), kind="a"), "yes" if place < 100 else "no", "no")
        trace = called(("query", QUESTION if place < 100 else "Is there a dog?"))
        both["codevqa"] = replace(both["codevqa"], fallback=place < 100, program="answer = 1", trace=trace)
        rows.append((one, both))
    found = summarize(rows, GQA)
    ours = found.methods["codevqa"]
    for share in (ours.accuracy, ours.fallback, ours.plain, found.breakdown["kind"][0].accuracy["codevqa"]):
        assert share is not None and (share.n, share.clusters, share.few) == (200, 20, True)
        assert share.high - share.low > 0.4  # 20 pictures, each all or nothing; of 200 questions alone it were .14
    assert ours.own is not None and (ours.own.n, ours.own.clusters) == (100, 10)
    assert found.paired is not None and (found.paired.test, found.paired.difference.clusters) == ("t", 20)
    assert "only 20 clusters, fewer than 40" in found.notes[1]


def test_errors_among_the_surest_answers_fall_where_confidence_says_something() -> None:
    said = [("11", 0.9), ("11", 0.9), ("01", 0.9), ("11", 0.6), ("00", 0.2), ("11", None)]
    rows = list(outcomes(*(both for both, _ in said)))
    for (_, both), (_, sure) in zip(rows, said, strict=True):
        both["codevqa"] = replace(both["codevqa"], trace={"confidence": sure})
    found = summarize(rows, GQA)
    ours, theirs = found.methods["codevqa"].selective, found.methods["pnpvqa"].selective
    assert theirs is None and ours is not None
    third = 1 / 3  # three are equally sure, and one of them is wrong
    assert ours.errors == pytest.approx({0.2: third, 0.4: third, 0.6: 1 / 4, 0.8: 2 / 5, 1: 1 / 3})
    assert ours.aurc == pytest.approx((3 * third + 1 / 4 + 2 / 5 + 1 / 3) / 6)
    table = certainty(found)
    assert table is not None and table.rows[0][1:] == ("33.3 %", "33.3 %", "25.0 %", "40.0 %", "33.3 %", "0.331")


def test_hidden_answers_count_but_do_not_score() -> None:
    rows = [pair(example("a", ""), "yes", "no"), pair(example("b"), "yes", "no")]
    found = summarize(rows, GQA)
    assert (found.examples, found.hidden) == (2, 1)
    assert found.methods["codevqa"].rows == 2 and found.methods["codevqa"].accuracy == wilson(1, 1)
    blind = summarize(rows[:1], GQA)
    assert blind.methods["codevqa"].accuracy is None and blind.paired is None
    json.dumps(asdict(blind), allow_nan=False)
    empty = summarize([], GQA)
    assert (empty.examples, empty.clusters, dict(empty.methods), empty.paired) == (0, 0, {}, None)


def test_fallbacks_errors_and_cost() -> None:
    rows = list(outcomes("11", "11", "00", "11"))
    passed = called(("query", QUESTION))
    ours: list[dict[str, Any]] = [
        {"fallback": True, "error": "ProgramTypeError", "message": "line 2: no dogs", "program": "dogs"},
        {"fallback": True, "error": "ProgramTypeError", "message": "line 9: other"},
        {"prediction": "", "error": "ServerError", "message": "down", "program": "a", "trace": passed},
        {"program": "a", "trace": passed, "seconds": 3.0, "tokens": 90},
    ]
    for (_, pair_rows), changes in zip(rows, ours, strict=True):
        pair_rows["codevqa"] = replace(pair_rows["codevqa"], **changes)
    found = summarize(rows, GQA).methods["codevqa"]
    assert found.fallback == wilson(2, 4) and found.unanswered == 1 and found.own == wilson(1, 1)
    assert [(line.type, line.count, line.share, line.fallback, line.accuracy) for line in found.errors] == [
        ("ProgramTypeError", 2, 0.5, 2, 1.0),
        ("ServerError", 1, 0.25, 0, 0.0),
    ]
    assert (found.errors[0].id, found.errors[0].message) == ("0", "line 2: no dogs")
    assert (found.plain, found.seconds["mean"], found.tokens) == (wilson(2, 3), 0.75, 22.5)


def test_breakdown_by_group() -> None:
    rows = [pair(example(str(k), steps=str(k % 3 + 9), structural="query"), "yes", "no") for k in range(9)]
    rows += [pair(example("w", steps="2", structural="verify"), "no", "yes"), pair(example("x"), "no", "yes")]
    rows += [pair(example("h", "", steps="2", structural="compare"), "no", "yes")]
    found = summarize(rows, GQA).breakdown
    assert [(line.value, line.n) for line in found["steps"]] == [("2", 1), ("9", 3), ("10", 3), ("11", 3)]
    query, verify = found["structural"]  # compare has no gold answer
    assert (query.value, query.n, verify.value, verify.n) == ("query", 9, "verify", 1)
    assert query.accuracy == {"codevqa": wilson(9, 9), "pnpvqa": wilson(0, 9)}
    assert query.paired is not None and (query.paired.better, query.paired.worse) == (9, 0)


def test_repetitions_are_averaged_over_the_questions_that_all_of_them_answered() -> None:
    rows = list(outcomes("11", "10", "00", "01", "11"))
    again = [
        (one, {method: replace(row, repeat=repeat, prediction=said) for method, row in both.items()})
        for repeat, said in [(2, "no"), (1, "yes")]
        for one, both in rows[:4]
    ]
    found = summarize([*rows, *again], GQA)
    assert found.examples == 5 and found.methods["codevqa"].accuracy == wilson(3, 5)
    repeats = found.methods["codevqa"].repeats
    assert repeats is not None and repeats.values == (0.5, 1.0, 0.0)
    assert (repeats.mean, repeats.spread, repeats.changed, repeats.n) == (0.5, 0.5, wilson(4, 4), 4)
    assert summarize(rows, GQA).methods["codevqa"].repeats is None
    hidden = [(replace(one, gold=()), both) for one, both in (*rows, *again)]
    assert summarize(hidden, GQA).methods["codevqa"].repeats is None


def test_questions_with_few_accepted_answers_are_told() -> None:
    rows = [pair(replace(example(str(k)), gold=("yes",) * (1 if k < 3 else 10)), "yes", "no") for k in range(5)]
    found = summarize(rows, metric_for("vqav2"))
    assert found.methods["codevqa"].accuracy == wilson(5, 5) and found.notes[-1].startswith("3 of 5 questions")
    assert len(summarize(rows, GQA).notes) == 1
