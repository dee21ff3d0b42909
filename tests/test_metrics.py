from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from codevqa.eval.datasets import open_dataset
from codevqa.eval.metrics import VARIANTS, metric_for
from codevqa.eval.metrics import text as rewriting
from codevqa.eval.metrics.base import Figure
from codevqa.eval.statistics import Interval, wilson
from codevqa.eval.task import Example

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def example(id: str, *gold: str, **record: Any) -> Example:
    return Example(id, "What is it?", (), "image", gold, record=record)


def value(figure: Figure) -> float | None:
    return figure.value if isinstance(figure, Interval) else figure


def score(dataset: str, variant: str, prediction: str, *gold: str) -> float | None:
    return metric_for(dataset, variant).score(example("1", *gold), prediction)


@pytest.mark.parametrize(("dataset", "variant"), [(name, variant) for name, all in VARIANTS.items() for variant in all])
def test_every_variant_has_a_name_scores_and_takes_an_empty_prediction_for_wrong(dataset: str, variant: str) -> None:
    metric = metric_for(dataset, variant)
    assert metric.name and metric.score(example("1"), "yes") is None
    assert [metric.score(example("1", *["the"] * 10), prediction) for prediction in ("", " \n")] == [0, 0]
    assert metric.score(example("1", *["yes"] * 10), "yes") == 1
    assert metric.score(example("1", *["yes"] * 10), "cat") == 0
    figures = metric.corpus([(example("dev-1-0-0"), "yes")])
    assert set(figures.values()) <= {None} and set(figures) <= set(metric.reasons)


EXACT = {  # by default, officially, in lmms-eval, in the release
    ("Suit. ", "suit"): [1, 0, 0, 1],
    ("Suit.", "suit"): [1, 0, 1, 1],
    ("a suit", "suit"): [0, 0, 0, 1],
    ("t-shirt", "t-shirt"): [1, 1, 1, 0],
    ("tshirt", "t-shirt"): [0, 0, 1, 0],
    ("two", "2"): [0, 0, 0, 1],
    ("True", "yes"): [0, 0, 0, 0],
    ("yes.", "Yes"): [1, 0, 1, 0],
}


def test_gqa_exact_match() -> None:
    for (prediction, gold), wanted in EXACT.items():
        assert [score("gqa", variant, prediction, gold) for variant in ("", "official", "lmms", "release")] == wanted, (
            prediction
        )


def question(id: str, answer: str, entailed: Iterable[str] = (), balanced: bool = True, **more: Any) -> Example:
    group = more.pop("group", None)
    return example(
        id, answer, isBalanced=balanced, entailed=list(entailed), groups={"global": group, "local": "l"}, **more
    )


def test_gqa_consistency_by_hand() -> None:
    # a is right and entails b (right) and c (wrong): 1/2. d is right and entails e (right), not balanced: 1.
    # f is wrong, so what it entails is not looked at. g entails only itself. e is not balanced, so it adds nothing.
    pairs = [
        (question("a", "yes", ["a", "b", "c"]), "yes"),
        (question("b", "no"), "no"),
        (question("c", "no"), "yes"),
        (question("d", "red", ["e"]), "red"),
        (question("e", "yes", ["c"], balanced=False), "yes"),
        (question("f", "cat", ["zzz"]), "dog"),
        (question("g", "cat", ["g"]), "cat"),
    ]
    figures = metric_for("gqa").corpus(pairs)
    assert value(figures["consistency"]) == pytest.approx((1 / 2 + 1) / 2)
    assert value(figures["balanced"]) == pytest.approx(4 / 6)
    assert metric_for("gqa").corpus(reversed(pairs)) == figures  # entailed questions may come first or last
    for some in ([(question("a", "yes", ["b"]), "yes")], [(question("a", "yes"), "yes")]):  # not all are there, or any
        assert metric_for("gqa").corpus(some)["consistency"] is None


def test_gqa_distribution_by_hand() -> None:
    # furniture: gold 3 chair, 1 bed; said 1 chair, 2 table, 1 bed -> (1-3)^2/3 + 0 = 4/3, weight 4.
    # color: gold 2 red; said 2 blue -> (0-2)^2/2 = 2, weight 2. Not balanced and without group: left out.
    predictions = ["chair", "table", "table", "bed"]
    gold = ["chair", "chair", "chair", "bed"]
    pairs = [(question(str(i), gold[i], group="furniture"), predictions[i]) for i in range(4)]
    pairs += [(question(f"c{i}", "red", group="color"), "Blue.") for i in range(2)]
    pairs += [(question("n", "yes"), "no"), (question("u", "red", balanced=False, group="color"), "red")]
    distribution = metric_for("gqa").corpus(pairs)["distribution"]
    assert distribution == pytest.approx((4 / 3 * 4 + 2 * 2) / 6 / 100)


def test_gqa_validity_and_plausibility() -> None:
    choices: dict[str, dict[str, list[str]]] = {
        "a": {"valid": ["red", "blue"], "plausible": ["red"]},
        "b": {"valid": ["yes"], "plausible": ["yes"]},
        "c": {"valid": ["cat"], "plausible": ["cat"]},
        "other": {"valid": [], "plausible": []},
    }
    metric = metric_for("gqa", choices=choices.items)
    pairs = [
        (question("a", "red"), "Blue"),
        (question("b", "yes"), "maybe"),
        (question("c", "color", types={"detailed": "twoCommon"}), "color"),
        (question("u", "red", balanced=False), "red"),
    ]
    figures = metric.corpus(pairs)
    assert value(figures["validity"]) == pytest.approx(2 / 3) and value(figures["plausibility"]) == pytest.approx(1 / 3)
    assert metric.corpus([(example("a", isBalanced=True), "red")])["validity"] == wilson(1, 1)  # needs no gold answer
    for some, asked in [(metric_for("gqa"), pairs), (metric, [(question("z", "x"), "x")])]:
        assert some.corpus(asked)["validity"] is None and "train and val" in some.reasons["validity"]


STATEMENTS = {  # by default, in the release
    ("covr", "True", "yes"): [1, 0],
    ("covr", "No.", "False"): [1, 1],
    ("covr", "two", "2"): [1, 1],
    ("covr", "none", "0"): [0, 1],
    ("covr", "t-shirt", "t-shirt"): [1, 0],
    ("covr", "the dog", "dog"): [0, 1],
    ("nlvr", "TRUE", "yes"): [1, 0],
    ("nlvr2", "yes", "true"): [1, 1],
}


def test_exact_match_of_statements() -> None:
    for (dataset, *answers), wanted in STATEMENTS.items():
        assert [score(dataset, variant, *answers) for variant in ("", "release")] == wanted, answers


@pytest.mark.parametrize("dataset", ["nlvr", "nlvr2"])
def test_consistency_needs_every_row_of_a_sentence(dataset: str) -> None:
    rows = [("a", "yes"), ("a", "yes"), ("b", "yes"), ("b", "no"), ("c", "yes")]
    pairs = [(example(str(k), "True", group=name), prediction) for k, (name, prediction) in enumerate(rows)]
    for ordered in (pairs, reversed(pairs)):
        assert metric_for(dataset).corpus(ordered) == {"consistency": wilson(2, 3)}
    assert metric_for(dataset).corpus([*pairs, (example("17", "yes"), "yes")]) == {"consistency": None}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real NLVR and NLVR2 files are not beside the checkout")
@pytest.mark.parametrize(
    ("dataset", "rows", "clusters", "accuracy", "consistency"),
    [
        ("nlvr2", 6_982, 1_054, 0.5085935262102549, 0.03865213082259663),
        ("nlvr", 5_934, 267, 0.5530839231547017, 0.06367041198501873),
    ],
)
def test_all_true_on_the_real_dev_files_as_the_official_scripts_score_it(
    dataset: str, rows: int, clusters: int, accuracy: float, consistency: float
) -> None:
    data = list(open_dataset(dataset, SHARED, "dev", pictures=dataset == "nlvr"))
    metric = metric_for(dataset)
    assert (len(data), len({example.cluster for example in data})) == (rows, clusters)
    assert sum(metric.score(example, "true") or 0.0 for example in data) / rows == accuracy
    assert value(metric.corpus([(example, "true") for example in data])["consistency"]) == consistency


REWRITTEN = {
    "T-Shirt.": "t shirt",
    "1,000": "1000",
    "mt. fuji": "mt fuji",
    "The dog": "dog",
    "12:30": "12:30",
    "dont": "don't",
    "two": "2",
    "- red-blue": "redblue",  # a mark beside one space anywhere is deleted everywhere
    "x-y/-z": "x y z",  # beside a space of the original, that is
    "1,000-2,000": "10002000",  # and all marks are where a number has a comma
    "somebody'd": "somebodyd",
    "couldnt've": "couldn't've",
    "couldn'tve": "couldn't've",
    "couldntve": "couldntve",
    "ow's'at": "'ow's'at",
    "$5 & 10%": "$5 & 10%",
    "a\tcat\n": "cat",
    "." * 40: "." * 8,  # the scripts delete 32 full stops at most
}


def test_how_lavis_and_the_release_rewrite() -> None:
    assert {text: rewriting.release(text) for text in REWRITTEN} == REWRITTEN


@pytest.mark.parametrize(
    ("golds", "prediction", "official", "lavis", "lmms", "default"),
    [
        (["orange"] * 10, "orange", 1, 1, 1, 1),
        (["orange"] * 10, "Orange", 0, 1, 1, 1),
        (["orange"] * 10, "an orange", 0, 1, 1, 0),
        (["t-shirt"] * 10, "t-shirt", 1, 0, 1, 1),
        (["the end"] * 9 + ["end"], "end", 1, 0.3, 1, 1),
        (["net"] * 5 + ["netting"] + ["mesh"] * 4, "netting", 0.3, 0.3, 0.3, 0.3),
        (["net"] * 5 + ["netting"] + ["mesh"] * 4, "net", 1, 1, 1, 1),
        (["2"] * 9 + ["three"], "two", 1, 1, 1, 1),
        (["2"] * 9 + ["three"], "3", 0.3, 0, 0.3, 0.3),
    ],
)
def test_vqa_accuracy_in_its_variants(
    golds: list[str], prediction: str, official: float, lavis: float, lmms: float, default: float
) -> None:
    for variant, wanted in [("official", official), ("lavis", lavis), ("lmms", lmms), ("", default)]:
        assert score("vqav2", variant, prediction, *golds) == pytest.approx(wanted), variant
    assert score("vqav2", "release", prediction, *golds) == pytest.approx(lavis)


def test_of_fewer_than_ten_answers_one_that_is_said_is_right() -> None:
    golds = [*["cat"] * 8, "dog"]
    for dataset in ("vqav2", "okvqa"):
        for variant in VARIANTS[dataset]:
            assert [score(dataset, variant, prediction, *golds) for prediction in ("dog", "bird")] == [1, 0], variant
    assert score("vqav2", "", "DOG", *golds[:-1], "Dog") == 1


def test_okvqa_with_and_without_stemming() -> None:
    raw, stems = ["labrador retriever"] * 8 + ["dog"] * 2, ["labrador retriev"] * 8 + ["dog"] * 2
    answers = [{"raw_answer": raw_answer, "answer": stem} for raw_answer, stem in zip(raw, stems, strict=True)]
    question = example("1", *raw, answers=answers)
    assert metric_for("okvqa").score(question, "labrador retriever") == 1
    assert metric_for("okvqa").score(question, "labrador retrievers") == 0
    assert metric_for("okvqa", "stem").score(question, "Labrador retrievers.") == 1
    assert metric_for("okvqa", "stem").score(question, "dogs") == pytest.approx(0.6)
    # The file's own stems decide, whatever Porter's algorithm would make of the raw answers.
    odd = example("1", "surfing", "surfing", answers=[{"raw_answer": "surfing", "answer": "wave"}] * 2)
    assert metric_for("okvqa", "stem").score(odd, "surfing") == 0
    # Copies with plain strings are stemmed here.
    plain = example("1", *raw, answers=[{"answer": gold} for gold in raw])
    assert metric_for("okvqa", "stem").score(plain, "labrador retrievers") == 1


def test_okvqa_lmms_uses_evalai() -> None:
    assert score("okvqa", "lmms", "dogs, bone", *["dog's bone"] * 5) == 0
    assert score("okvqa", "lmms", "Dog's bone?", *["dog 's bone"] * 5) == 1
    assert score("vqav2", "lmms", "Dog's bone?", *["dog 's bone"] * 5) == 0
