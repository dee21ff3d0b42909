"""Estimates from few labels agree with ppi_py, hold the truth as often as they claim, and refuse bad input."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codevqa.core.errors import InputError
from codevqa.core.prediction_powered import Estimate, estimate_mean, ppi_mean, refit_chances

BY_PPI_PY = (
    (0, None, 0.3140428673707729, 0.004953987060334225),
    (0, 0.5, 0.30838454784899033, 0.004988569296155513),
    (1, None, 2.2368766610990303, 0.043507457988423634),
    (1, 0.5, 2.4107142857142856, 0.04303929533122776),
    (2, None, 0.3253977820636451, 0.005531996259566283),
    (2, 0.5, 0.30399473222124673, 0.005732553554905732),
    (3, None, 2.245153845175738, 0.0467467115782169),
    (3, 0.5, 2.2463203463203465, 0.051248055006530326),
    (4, None, 0.31164224965706444, 0.005776983102533852),
    (4, 0.5, 0.3537037037037037, 0.005958236258990714),
    (5, None, 2.373378457011046, 0.03365323475346386),
    (5, 0.5, 2.259581881533101, 0.0405567786170696),
    (6, None, 0.45, 0.012374999999999995),
    (6, 0.5, 0.443103448275862, 0.024397776661609746),
    (7, None, 2.7181020733652312, 0.03374709695393231),
    (7, 0.5, 2.7669457735247205, 0.049524821572885624),
)
"""Of ppi-python 0.2.3, for inputs of ``draw_inputs``: seed, power, ``ppi_mean_pointestimate``, and the variance that
``ppi_mean_ci`` rests on (half its width at alpha=.05, over 1.96, squared)."""


def draw_inputs(seed: int) -> tuple[list[float], list[float], list[float]]:
    """Draws labels, their predictions, and other predictions: counts for odd seeds; seed 6 is worse than useless."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(5, 40)), int(rng.integers(20, 200))
    if seed % 2:
        truths = rng.integers(0, 6, n + m).astype(float)
        predicted: NDArray[Any] = truths + rng.integers(-1, 2, n + m)
    else:
        truths = (rng.random(n + m) < 0.4).astype(float)
        predicted = np.where(rng.random(n + m) < 0.85, truths, 1 - truths)
    if seed == 6:
        predicted = 1 - predicted
    if seed == 7:
        predicted = truths / 3  # the best power is above 1
    return truths[:n].tolist(), predicted[:n].tolist(), predicted[n:].tolist()


@pytest.mark.parametrize(("seed", "power", "mean", "variance"), BY_PPI_PY)
def test_mean_and_variance_are_those_of_ppi_py(seed: int, power: float | None, mean: float, variance: float) -> None:
    assert ppi_mean(*draw_inputs(seed), power) == pytest.approx((mean, variance), abs=1e-9, rel=1e-9)


def test_predictions_that_are_all_alike_leave_the_mean_of_the_labels() -> None:
    assert ppi_mean([0, 1, 1, 0], [1] * 4, [1] * 30) == pytest.approx((0.5, 0.25 / 4))


def estimate_drawn(rng: np.random.Generator, truths: NDArray[Any], predicted: NDArray[Any], known: int = 0) -> Estimate:
    """Estimates the mean from 40 labels at random; the last of the pictures are known."""
    pool = len(truths) - known
    order = rng.permutation(pool)
    asked, rest = order[:40], order[40:]
    return estimate_mean(
        truths[asked].tolist(), predicted[asked].tolist(), predicted[rest].tolist(), known=truths[pool:].tolist()
    )


@pytest.mark.parametrize(
    "kind", ["right 90 %", "useless", "always yes", "half of it known", "counts", "bad counts", "few left"]
)
def test_intervals_hold_the_truth_as_often_as_they_claim(kind: str) -> None:
    rng, held, collections = np.random.default_rng(5), 0, 300
    for _ in range(collections):
        pictures = 50 if kind == "few left" else int(rng.integers(200, 1_000))
        truths = (rng.random(pictures) < rng.uniform(0.05, 0.95)).astype(float)
        right = 0.5 if kind == "useless" else 0.9
        predicted = np.where(rng.random(pictures) < right, truths, 1 - truths)
        known = 0
        if kind == "always yes":
            predicted = np.ones(pictures)
        if kind == "half of it known":  # and unlike the others: what is known must not be taken for a random sample
            known = pictures // 2
            truths[-known:] = 1.0
        if kind in ("counts", "bad counts", "few left"):
            truths = rng.choice(6, pictures, p=rng.dirichlet(np.ones(6))).astype(float)
            shift = rng.integers(-1, 2, pictures)
            predicted = rng.permutation(truths) if kind != "counts" else truths + shift + 1
        estimate = estimate_drawn(rng, truths, predicted, known)
        held += estimate.low - 1e-9 <= truths.mean() <= estimate.high + 1e-9
        assert estimate.low <= estimate.value <= estimate.high
        assert (estimate.labels, estimate.pictures) == (40 + known, pictures)
    assert 0.91 <= held / collections <= 0.985


def test_good_predictions_narrow_the_interval_and_useless_cost_little() -> None:
    rng = np.random.default_rng(1)
    truths = np.repeat([0.0, 1.0], 500)
    widths = {}
    for right in (0.95, 0.5):
        estimates = [
            estimate_drawn(rng, truths, np.where(rng.random(1_000) < right, truths, 1 - truths)) for _ in range(50)
        ]
        widths[right] = np.mean([estimate.high - estimate.low for estimate in estimates])
    alone = 2 * 1.96 * math.sqrt(0.25 / 40 * 0.96)
    assert widths[0.95] < 0.6 * alone
    assert widths[0.5] < 1.05 * alone


@pytest.mark.parametrize("values", [[0.0] * 40, [1.0] * 40, [0.0, 1.0] * 20, [0.0, 3.0] * 20, [2.5] * 40])
@pytest.mark.parametrize("left", [1, 2, 30, 1_000])
def test_labels_that_all_agree_leave_room_for_errors(values: list[float], left: int) -> None:
    estimate = estimate_mean(values, values, [values[-1]] * left)
    assert estimate.low < estimate.high
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.low >= sum(values) / estimate.pictures - 1e-9 or values[0] == 2.5  # labels are known for certain
    if left == 1_000:
        assert (estimate.high - estimate.low) / max(1.0, values[-1]) > 0.04


def test_totals_of_shares_are_whole_and_possible() -> None:
    estimate = estimate_mean([1, 1, 0, 0, 1], [1, 1, 0, 0.2, 0.9], [1, 0, 0, 1], known=[1, 0, 1])
    totals = [estimate.total_low, estimate.total, estimate.total_high]
    assert totals == pytest.approx([round(total) for total in totals])
    assert 5 <= estimate.total_low < estimate.total_high <= 9
    assert estimate.total == pytest.approx(7)


def test_numbers_below_zero_are_possible_only_where_labels_are() -> None:
    rest = [0.0] * 500
    estimate = estimate_mean([0] * 19 + [2], [0] * 20, rest)
    assert estimate.total_low == pytest.approx(2)
    assert estimate.total == pytest.approx(52)
    assert estimate_mean([0, 0, 0, -2] * 5, [0, 0, 3, 0] * 5, rest).low < -0.5


@pytest.mark.parametrize(("truths", "known"), [([0, 1, 1], [1]), ([2, 7], [0.5]), ([], [1, 0, 1])])
def test_where_all_is_labelled_the_mean_is_exact(truths: list[float], known: list[float]) -> None:
    mean = sum([*truths, *known]) / (len(truths) + len(known))
    estimate = estimate_mean(truths, [0] * len(truths), [], known=known)
    assert (estimate.value, estimate.low, estimate.high) == (mean, mean, mean)


def test_a_higher_level_is_wider() -> None:
    zeros_and_twos = [0, 2, 2, 0] * 10
    for values, predicted in (
        ([0, 1, 1, 0] * 10, [0, 0, 1, 1] * 10),
        ([0, 3, 2, 5] * 10, [5, 2, 3, 0] * 10),
        (zeros_and_twos, zeros_and_twos),
    ):
        narrow, wide = (estimate_mean(values, predicted, values * 5, level=level) for level in (0.8, 0.99))
        assert wide.low < narrow.low < narrow.high < wide.high


def test_refit_moves_chances_toward_labels_and_keeps_their_order() -> None:
    wanted = [0.0, 0.2, 0.5, 0.7, 0.9, 1.0]
    chances, halves = [0.9] * 100, [True, False] * 50
    fitted = refit_chances(chances, halves, wanted)
    assert fitted == sorted(fitted)
    assert 0.5 < fitted[4] < 0.55
    assert refit_chances([0.6] * 100, [True] * 95 + [False] * 5, [0.6])[0] == pytest.approx(0.95, abs=0.03)
    assert refit_chances(chances, [True] * 90 + [False] * 10, [0.9])[0] == pytest.approx(0.9, abs=0.005)


def test_refit_survives_labels_that_are_all_against_it() -> None:
    assert refit_chances([0.999] * 200, [False] * 200, [0.999])[0] < 0.05
    assert refit_chances([0.001] * 200, [True] * 200, [0.001])[0] > 0.95


def test_refit_never_turns_the_order_round() -> None:
    fitted = refit_chances([0.9] * 200 + [0.1] * 200, [False] * 200 + [True] * 200, [0.1, 0.5, 0.9])
    assert fitted == pytest.approx([0.5] * 3)


def test_few_labels_hardly_move_chances() -> None:
    wanted = [0.1, 0.5, 0.9]
    assert refit_chances([], [], wanted) == pytest.approx(wanted)
    for chance, right in ((0.9, False), (1.0, False), (0.0, True), (0.5, True)):
        fitted = refit_chances([chance], [right], wanted)
        assert fitted == sorted(fitted)
        assert np.abs(np.subtract(fitted, wanted)).max() < 0.35
        assert 0 < fitted[0] < fitted[2] < 1


@pytest.mark.parametrize(
    ("truths", "predicted", "rest", "message"),
    [
        ([1, 0], [1], [1], "2 labels but 1 predictions of the same pictures."),
        ([], [], [1, 0], "No labels. Label at least 1 picture that was picked at random."),
        ([], [], [], "No labels. Label at least 1 picture that was picked at random."),
        ([2, 3], [2, 3], [2], "2 labels are too few. Label at least 3 pictures that were picked at random."),
        ([1, math.nan], [1, 1], [1], "A label or prediction is not a number. Leave out pictures without an answer."),
        ([1, 0], [1, 1], [math.inf], "A label or prediction is not a number. Leave out pictures without an answer."),
    ],
)
def test_estimates_refuse_what_they_cannot_use(
    truths: Sequence[float], predicted: Sequence[float], rest: Sequence[float], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        estimate_mean(truths, predicted, rest)
    assert str(caught.value) == message


def test_the_other_functions_refuse_it_too() -> None:
    for call, message in (
        (lambda: ppi_mean([1], [1, 0], [1]), "1 labels but 2 predictions"),
        (lambda: ppi_mean([], [], [1]), "needs labelled and unlabelled pictures"),
        (lambda: ppi_mean([1], [1], []), "needs labelled and unlabelled pictures"),
        (lambda: estimate_mean([], [], [1.0], known=[1]), "No labels"),
        (lambda: estimate_mean([1], [1], [1], level=95), "level must lie between 0 and 1, not 95"),
        (lambda: refit_chances([0.5], [], [0.5]), "1 chances but 0 labels"),
        (lambda: refit_chances([0.5], [True], [1.5]), "A chance must lie from 0 to 1"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
