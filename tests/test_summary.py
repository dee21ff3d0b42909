import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from codevqa.core.trace import Method
from codevqa.eval.metrics import metric_for
from codevqa.eval.report.summary import summarize
from codevqa.eval.report.tables import certainty
from codevqa.eval.statistics import compare_scores, holm, mean, wilson
from codevqa.eval.task import Example, Row

QUESTION = "Is the dog to the left of the cat?"
GQA = metric_for("gqa")


def example(id: str, gold: str = "yes", cluster: str = "", **groups: str) -> Example:
    return Example(id, QUESTION, (), "image", (gold,) if gold else (), groups, cluster)


def pair(question: Example, ours: str, theirs: str) -> tuple[Example, dict[Method, Row]]:
    return question, {"codevqa": Row(question.id, "codevqa", 0, ours), "pnpvqa": Row(question.id, "pnpvqa", 0, theirs)}


def called(*calls: tuple[str, str | None]) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": {"question": text} if text else {}} for name, text in calls]}


def outcomes(*marks: str) -> Iterator[tuple[Example, dict[Method, Row]]]:
    """Questions whose gold is yes: "10" is one that only the first method gets right."""
    for place, both in enumerate(marks):
        yield pair(example(str(place)), "yes" if both[0] == "1" else "no", "yes" if both[1] == "1" else "no")


def test_figures_are_as_sure_as_their_clusters_not_as_their_questions() -> None:
    rows = []
    for place in range(200):
        question, both = pair(
            example(str(place), cluster=str(place // 10), kind="a"), "yes" if place < 100 else "no", "no"
        )
        trace = called(("query", QUESTION if place < 100 else "Is there a dog?"))
        both["codevqa"] = replace(both["codevqa"], fallback=place < 100, program="answer = 1", trace=trace)
        rows.append((question, both))
    summary = summarize(rows, GQA)
    ours = summary.methods["codevqa"]
    for share in (ours.accuracy, ours.fallback, ours.plain, summary.breakdown["kind"][0].accuracy["codevqa"]):
        assert share is not None and (share.n, share.clusters, share.few) == (200, 20, True)
        assert share.high - share.low > 0.4  # 20 pictures, each all or nothing; of 200 questions alone it were .14
    assert ours.own is not None and (ours.own.n, ours.own.clusters) == (100, 10)
    assert summary.paired is not None and (summary.paired.test, summary.paired.difference.clusters) == ("t", 20)
    assert "only 20 clusters, fewer than 40" in summary.notes[1]


def test_errors_among_the_surest_answers_fall_where_confidence_says_something() -> None:
    marks = [("11", 0.9), ("11", 0.9), ("01", 0.9), ("11", 0.6), ("00", 0.2), ("11", None)]
    rows = list(outcomes(*(both for both, _ in marks)))
    for (_, both), (_, sure) in zip(rows, marks, strict=True):
        both["codevqa"] = replace(both["codevqa"], trace={"confidence": sure})
    summary = summarize(rows, GQA)
    ours, theirs = summary.methods["codevqa"].selective, summary.methods["pnpvqa"].selective
    assert theirs is None and ours is not None
    third = 1 / 3  # three are equally sure, and one of them is wrong
    assert ours.errors == pytest.approx({0.2: third, 0.4: third, 0.6: 1 / 4, 0.8: 2 / 5, 1: 1 / 3})
    assert ours.aurc == pytest.approx((3 * third + 1 / 4 + 2 / 5 + 1 / 3) / 6)
    table = certainty(summary)
    assert table is not None and table.rows[0][1:] == ("33.3 %", "33.3 %", "25.0 %", "40.0 %", "33.3 %", "0.331")


def test_hidden_answers_count_but_do_not_score() -> None:
    rows = [pair(example("a", ""), "yes", "no"), pair(example("b"), "yes", "no")]
    summary = summarize(rows, GQA)
    assert (summary.examples, summary.hidden) == (2, 1)
    assert summary.methods["codevqa"].rows == 2 and summary.methods["codevqa"].accuracy == wilson(1, 1)
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
    figures = summarize(rows, GQA).methods["codevqa"]
    assert figures.fallback == wilson(2, 4) and figures.unanswered == 1 and figures.own == wilson(1, 1)
    assert [(line.type, line.count, line.share, line.fallback, line.accuracy) for line in figures.errors] == [
        ("ProgramTypeError", 2, 0.5, 2, 1.0),
        ("ServerError", 1, 0.25, 0, 0.0),
    ]
    assert (figures.errors[0].id, figures.errors[0].message) == ("0", "line 2: no dogs")
    assert (figures.plain, figures.tokens) == (wilson(2, 3), 22.5)


def test_primitives_are_counted_with_the_answers_that_rest_on_them() -> None:
    rows = list(outcomes("11", "01", "11"))
    for (_, both), names in zip(rows, (["query", "query"], ["query", "get_pos"], ["open_image"]), strict=True):
        both["codevqa"] = replace(both["codevqa"], program="x", trace=called(*((name, "x") for name in names)))
    primitives = summarize(rows, GQA).primitives
    assert list(primitives) == ["query", "get_pos"]
    assert (primitives["query"].calls, primitives["query"].questions, primitives["query"].accuracy) == (
        3,
        2,
        wilson(1, 2),
    )
    assert (primitives["get_pos"].questions, primitives["get_pos"].accuracy) == (1, wilson(0, 1))


def test_breakdown_by_group() -> None:
    rows = [pair(example(str(k), steps=str(k % 3 + 9), structural="query"), "yes", "no") for k in range(9)]
    rows += [pair(example("w", steps="2", structural="verify"), "no", "yes"), pair(example("x"), "no", "yes")]
    rows += [pair(example("h", "", steps="2", structural="compare"), "no", "yes")]
    breakdown = summarize(rows, GQA).breakdown
    assert [(line.value, line.n) for line in breakdown["steps"]] == [("2", 1), ("9", 3), ("10", 3), ("11", 3)]
    query, verify = breakdown["structural"]  # compare has no gold answer
    assert (query.value, query.n, verify.value, verify.n) == ("query", 9, "verify", 1)
    assert query.accuracy == {"codevqa": wilson(9, 9), "pnpvqa": wilson(0, 9)}
    assert query.paired is not None and (query.paired.better, query.paired.worse) == (9, 0)


def test_repetitions_are_averaged_over_the_questions_that_all_of_them_answered() -> None:
    rows = list(outcomes("11", "10", "00", "01", "11"))
    again = [
        (question, {method: replace(row, repeat=repeat, prediction=prediction) for method, row in both.items()})
        for repeat, prediction in [(2, "no"), (1, "yes")]
        for question, both in rows[:4]
    ]
    summary = summarize([*rows, *again], GQA)
    assert summary.examples == 5 and summary.methods["codevqa"].accuracy == wilson(3, 5)
    repeats = summary.methods["codevqa"].repeats
    assert repeats is not None and repeats.values == (0.5, 1.0, 0.0)
    assert (repeats.mean, repeats.spread, repeats.changed, repeats.n) == (0.5, 0.5, wilson(4, 4), 4)
    assert summarize(rows, GQA).methods["codevqa"].repeats is None
    hidden = [(replace(question, gold=()), both) for question, both in (*rows, *again)]
    assert summarize(hidden, GQA).methods["codevqa"].repeats is None


def test_questions_with_few_accepted_answers_are_told() -> None:
    rows = [pair(replace(example(str(k)), gold=("yes",) * (1 if k < 3 else 10)), "yes", "no") for k in range(5)]
    summary = summarize(rows, metric_for("vqav2"))
    assert summary.methods["codevqa"].accuracy == wilson(5, 5) and summary.notes[-1].startswith("3 of 5 questions")
    assert len(summarize(rows, GQA).notes) == 1


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_against_published_values(right: int, n: int, low: float, high: float) -> None:
    """Newcombe (1998), table I."""
    interval = wilson(right, n)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)
    alone = mean([True] * right + [False] * (n - right), clusters=range(n))
    assert alone == interval  # clusters of one question are questions


def test_mcnemar_exact_by_hand() -> None:
    first, second = [True] * 8 + [False] * 2 + [True] * 90, [False] * 8 + [True] * 2 + [True] * 90
    for clusters in (None, range(100)):
        paired = compare_scores(first, second, clusters=clusters)
        assert (paired.better, paired.worse, paired.test) == (8, 2, "McNemar")
        assert paired.p_value == pytest.approx(2 * (1 + 10 + 45) / 1024)
        assert paired.difference.value == pytest.approx(0.06) and paired.difference.low < 0.06 < paired.difference.high


def test_no_change_is_no_evidence_of_none() -> None:
    paired = compare_scores([True, False] * 50, [True, False] * 50)
    assert paired.p_value == 1
    assert paired.difference.low == pytest.approx(-0.0379, abs=1e-3)  # as Wilson's interval goes for 0 of 100
    grouped = compare_scores([True, False] * 50, [True, False] * 50, clusters=[place // 10 for place in range(100)])
    assert grouped.p_value == 1 and grouped.difference.low < -0.25  # ten clusters alike say little of an eleventh


def test_clusters_of_unequal_size_weigh_by_their_size() -> None:
    paired = compare_scores([True] * 9 + [False], [False] * 10, clusters=["big"] * 9 + ["small"])
    assert paired.difference.value == pytest.approx(0.9)
    assert (paired.difference.low, paired.difference.high) == (-1.0, 1.0)  # two clusters, and they differ
    sizes = [60, *[4] * 20]
    first = [place % 3 > 0 for size in sizes for place in range(size)]
    labels = [str(at) for at, size in enumerate(sizes) for _ in range(size)]
    tested = compare_scores(first, [place % 2 > 0 for place in range(len(first))], clusters=labels)
    # One large cluster leaves few degrees of freedom, however many small there are.
    units = 140**2 / (60**2 + 20 * 4**2)
    assert tested.p_value == pytest.approx(2 * stats.t.sf(tested.difference.value / tested.error, units - 1))


def test_scores_between_nought_and_one_have_no_mcnemar() -> None:
    paired = compare_scores([0.3, 0.9, 1.0, 0.0], [0.6, 0.3, 1.0, 0.0])
    assert (paired.better, paired.worse, paired.test) == (1, 1, "t")
    assert paired.difference.value == pytest.approx(0.3 / 4)


def test_the_jackknife_against_the_t_test_of_cluster_means() -> None:
    # Clusters of one size: the variance is that of their means, and the test the ordinary one.
    rng = np.random.default_rng(3)
    gains = rng.integers(-1, 2, (30, 4)).astype(float)
    paired = compare_scores(
        np.maximum(gains, 0).ravel(), np.maximum(-gains, 0).ravel(), clusters=np.repeat(np.arange(30), 4)
    )
    expected = stats.ttest_1samp(gains.mean(1), 0)
    low, high = expected.confidence_interval()
    assert paired.test == "t" and paired.p_value == pytest.approx(expected.pvalue)
    assert (paired.difference.low, paired.difference.high) == pytest.approx((low, high))


def test_rare_errors_are_taken_to_come_in_bunches() -> None:
    """Two errors of 300, each in a cluster of its own, do not show how much errors go together."""
    right = [place not in (0, 8) for place in range(300)]
    alone, together = mean(right), mean(right, clusters=[place // 4 for place in range(300)])
    assert together.low < alone.low - 0.005


@pytest.mark.parametrize("right", [True, False])
def test_a_share_of_all_or_none_has_a_width_by_its_clusters(right: bool) -> None:
    interval = mean([right] * 200, clusters=[place // 20 for place in range(200)])
    assert interval.value == right
    # As sure as ten questions are, in t of nine degrees of freedom.
    assert interval.high - interval.low == pytest.approx(2.2622**2 / (10 + 2.2622**2), abs=1e-4)


def test_few_clusters_say_little() -> None:
    interval, paired = mean([True, True, False], clusters="aaa"), compare_scores([1, 1, 0], [0, 1, 0], clusters="aaa")
    assert (interval.low, interval.high, paired.p_value) == (0.0, 1.0, 1.0)
    # Clusters that all gain alike are coins that all fell alike.
    paired = compare_scores([True] * 12, [True, False, False] * 4, clusters=[place // 3 for place in range(12)])
    assert paired.p_value == 2 / 2**4 and paired.difference.low < 0.2


def test_holm_by_hand() -> None:
    # Holm (1979): the smallest times 4, the next times 3, ...; never less than the one before, never more than 1.
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []


sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
coverage = import_module("benchmarks.coverage")


@pytest.mark.slow
@pytest.mark.parametrize("structure", coverage.structures(), ids=lambda structure: structure.name)
def test_an_interval_holds_the_truth_and_a_true_null_stands(structure: Any) -> None:
    measure_coverage = coverage.measure_coverage(structure)
    usual = structure.right[0] < 0.9
    assert (0.93 if usual else 0.9) <= measure_coverage.difference <= 0.97
    assert measure_coverage.rejected <= 0.07
    # A handful of clusters, or of errors, says so little of a share that more than is promised is held.
    assert 0.93 <= measure_coverage.share <= (0.97 if usual and structure.clusters.max() >= 9 else 0.995)
