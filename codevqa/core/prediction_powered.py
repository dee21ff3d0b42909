"""Estimates what is true of all pictures from a few labels and the models' predictions for all.

The interval holds whatever the models are worth: good predictions only make it narrower (prediction-powered inference,
Angelopoulos and others, 2023). The pictures are all there are, so that each label also makes the unknown part smaller.
``benchmarks/label_coverage.py`` measures how often the intervals hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNSEEN, UNSEEN_SIZE = 0.25, 1.5
"""Errors of numbers are measured as if a quarter of an error more had been seen. Its size is 1.5 standard deviations of
the values, and 1 at least for whole numbers. So labels without an error still leave room for rare, large ones."""
EXTREME = 0.001
"""Chances nearer than this to 0 or 1 count as this near: their logit has no end."""
PRIOR = (1.0, 0.25)
"""How far refitted chances may plausibly move: standard deviations of the intercept from 0 and of the slope from 1.
With twice the second, a single wrong prediction of chance 1 would halve a chance of .9."""


@dataclass(frozen=True)
class Estimate:
    """The mean of a value over all pictures, with its interval."""

    value: float
    low: float
    high: float
    labels: int
    """Pictures whose truth is known."""
    pictures: int
    """All pictures, labelled or not."""

    @property
    def total(self) -> float:
        """The sum over all pictures: a count of pictures where the values are 0 and 1."""
        return self.value * self.pictures

    @property
    def total_low(self) -> float:
        """The lower end of the interval of the total."""
        return self.low * self.pictures

    @property
    def total_high(self) -> float:
        """The upper end of the interval of the total."""
        return self.high * self.pictures


def ppi_mean(
    truths: Sequence[float], predicted: Sequence[float], unlabelled: Sequence[float], power: float | None = None
) -> tuple[float, float]:
    """Returns the prediction-powered mean and its variance, as PPI++ and the package ``ppi-python`` define them.

    It is about the endless population that the pictures were drawn from. :func:`estimate_mean` is about the pictures.

    Args:
        truths: labels.
        predicted: predictions for the same pictures, in the same order.
        unlabelled: predictions for pictures without labels.
        power: weight of the predictions; 0 ignores them, None chooses the weight of the least variance from 0 to 1.

    Raises:
        InputError: lengths differ, labels or predictions are missing, or a value is not a number.
    """
    import numpy as np

    true, guess, rest = _read_values(truths, predicted, unlabelled)
    if not len(true) or not len(rest):
        raise InputError("ppi_mean needs labelled and unlabelled pictures.", hint="Pass at least 1 of each.")
    if power is None:
        spread = (1 + len(true) / len(rest)) * float(np.var(np.concatenate([guess, rest]), ddof=1))
        power = min(max(_covariance(true, guess) / spread, 0.0), 1.0) if spread else 0.0
    residuals = true - power * guess
    variance = power**2 * float(rest.var()) / len(rest) + float(residuals.var()) / len(true)
    return power * float(rest.mean()) + float(residuals.mean()), variance


def estimate_mean(
    truths: Sequence[float],
    predicted: Sequence[float],
    rest: Sequence[float],
    *,
    known: Sequence[float] = (),
    level: float = 0.95,
) -> Estimate:
    """Returns the mean over all pictures of a collection, with an interval.

    Values are shares where all truths are 0 or 1 and all predictions lie from 0 to 1: totals are then whole numbers.
    All other values are numbers. Where no truth is negative, no unknown truth counts as negative either.

    Args:
        truths: labels of pictures that were picked at random among those that are not in ``known``.
        predicted: predictions for the same pictures, in the same order. Chances count as yes from 0.5.
        rest: predictions for all pictures without a label.
        known: labels of pictures that were picked for another reason. They say nothing about the others.
        level: how often the interval is to hold the true mean.

    Raises:
        InputError: lengths differ, there are too few labels, or a value is not a number.
    """
    import numpy as np

    true, guess, other = _read_values(truths, predicted, rest)
    labels = np.concatenate([true, _read_values(known, known, ())[0]])
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level}.")
    pictures = len(labels) + len(other)
    if not len(labels) or (len(other) and not len(true)):
        raise InputError("No labels.", hint="Label at least 1 picture that was picked at random.")
    is_share = bool(np.isin(labels, (0.0, 1.0)).all()) and all(((x >= 0) & (x <= 1)).all() for x in (guess, other))
    if not len(other):
        middle = below = above = 0.0
    elif is_share:
        middle, below, above = _count_rest(true, guess >= 0.5, other >= 0.5, level)
    else:
        middle, below, above = _sum_rest(true, guess, other, level)
        if labels.min() >= 0:
            middle = max(middle, 0.0)
            below = min(below, middle)
    total = float(labels.sum()) + middle
    value, low, high = (part / pictures for part in (total, total - below, total + above))
    return Estimate(value, low, high, len(labels), pictures)


def refit_chances(chances: Sequence[float], right: Sequence[bool], wanted: Sequence[float]) -> list[float]:
    """Returns chances fitted to labels: logistic regression on the logit of the old chance.

    The slope is 0 or more, so that no order turns round. A prior keeps the fit near the old chances while labels are
    few: without labels the chances stay.

    Args:
        chances: how probable it was that each labelled prediction is right.
        right: whether it was, in the same order.
        wanted: chances to fit anew.

    Raises:
        InputError: lengths differ, or a chance does not lie from 0 to 1.
    """
    import numpy as np

    if len(chances) != len(right):
        raise InputError(f"{len(chances)} chances but {len(right)} labels of the same pictures.")
    old, was_right, other = _read_values(chances, [float(truth) for truth in right], wanted)
    if any(((values < 0) | (values > 1)).any() for values in (old, other)):
        raise InputError("A chance must lie from 0 to 1.")
    logits, wanted_logits = (_logit(values) for values in (old, other))
    columns, precision = np.stack([np.ones_like(logits), logits], axis=1), 1 / np.square(PRIOR)
    start = np.array([0.0, 1.0])

    def loss(weights: NDArray[Any]) -> float:
        line = columns @ weights
        return float((np.logaddexp(0, line) - was_right * line).sum() + precision @ (weights - start) ** 2 / 2)

    def fit(weights: NDArray[Any], free: NDArray[Any]) -> NDArray[Any]:
        for _ in range(30):
            likely = 1 / (1 + np.exp(-(columns @ weights)))
            slope = columns.T @ (likely - was_right) + precision * (weights - start)
            bend = (columns.T * (likely * (1 - likely))) @ columns + np.diag(precision)
            step = np.zeros(2)
            step[free] = np.linalg.solve(bend[np.ix_(free, free)], slope[free])
            while loss(weights - step) > loss(weights) and abs(step).max() > 1e-12:
                step = step / 2  # a whole Newton step may go too far
            weights = weights - step
        return weights

    weights = fit(start, np.array([0, 1]))
    if weights[1] < 0:
        weights = fit(np.array([weights[0], 0.0]), np.array([0]))
    return [float(chance) for chance in 1 / (1 + np.exp(-(weights[0] + weights[1] * wanted_logits)))]


def _count_rest(true: NDArray[Any], guess: NDArray[Any], rest: NDArray[Any], level: float) -> tuple[int, int, int]:
    """Returns how many of the rest are yes, and how far the interval reaches below and above.

    The pictures that the models answer yes, and those that they answer no, are two strata. Within each stratum the
    number of yes among the rest is beta-binomial by Jeffreys' prior, so that labels without an error leave
    room for some.
    """
    import numpy as np
    from scipy.special import betaln, gammaln

    likely, middle = np.ones(1), 0.0
    for answer in (False, True):
        labels, size = true[guess == answer], int((rest == answer).sum())
        yes, no, count = labels.sum(), len(labels) - labels.sum(), np.arange(size + 1)
        middle += size * (yes / len(labels) if len(labels) else answer)
        ways = gammaln(size + 1) - gammaln(count + 1) - gammaln(size - count + 1)
        logs = ways + betaln(count + yes + 0.5, size - count + no + 0.5) - betaln(yes + 0.5, no + 0.5)
        likely = np.convolve(likely, np.exp(logs))
    low, high = (int(np.searchsorted(np.cumsum(likely), side)) for side in ((1 - level) / 2, (1 + level) / 2))
    high = min(high, len(rest))  # rounding may leave a sum of less than 1
    if low == high:  # no label, no certainty: the likelier neighbour belongs to it
        up = low == 0 or (high < len(rest) and likely[high + 1] > likely[low - 1])
        low, high = (low, high + 1) if up else (low - 1, high)
    best = min(max(round(middle), low), high)
    return best, best - low, high - best


def _sum_rest(true: NDArray[Any], guess: NDArray[Any], rest: NDArray[Any], level: float) -> tuple[float, float, float]:
    """Returns the sum of the rest, and how far the interval reaches below and above.

    It reaches as far as Student's t of what the predictions leave unexplained. Where few labels differ from the
    predictions, that is too near: it reaches at least as far as Jeffreys' intervals of errors upwards and downwards,
    joined by MOVER (Zou and Donner, 2008).
    """
    import numpy as np
    from scipy.special import stdtrit

    labelled = len(true)
    if labelled < 3:
        raise InputError(
            f"{labelled} labels are too few.", hint="Label at least 3 pictures that were picked at random."
        )
    spread = float(guess.var())
    power = min(max(_covariance(true, guess) / spread, 0.0), 1.0) if spread else 0.0
    residuals = true - power * guess
    error = math.sqrt(float(residuals.var()) / (labelled - 2)) * float(stdtrit(labelled - 2, (1 + level) / 2))
    guesses = np.concatenate([guess, rest])
    whole = all((values == np.round(values)).all() for values in (true, guesses))
    size = max(UNSEEN_SIZE * float(true.std()), UNSEEN_SIZE * float(guesses.std()), float(whole)) or 1.0
    gaps = residuals - np.median(residuals)
    (up_low, up_high), (down_low, down_high) = (
        _reach_of_errors(np.maximum(part, 0), size, level) for part in (gaps, -gaps)
    )
    drawn = len(rest) * math.sqrt(1 + labelled / len(rest))  # the rest is a draw too, around the same mean
    below, above = max(error, math.hypot(up_low, down_high)), max(error, math.hypot(up_high, down_low))
    return len(rest) * float(power * rest.mean() + residuals.mean()), below * drawn, above * drawn


def _reach_of_errors(errors: NDArray[Any], size: float, level: float) -> tuple[float, float]:
    """Returns how far the interval of a mean error reaches below and above: of a share of errors, times their size."""
    from scipy.special import betaincinv

    labelled, summed, squares = len(errors), float(errors.sum()), float((errors**2).sum())
    usual = (squares + UNSEEN * size**2) / (summed + UNSEEN * size)
    seen = min(summed / usual, labelled)
    low, high = (float(betaincinv(seen + 0.5, labelled - seen + 0.5, (1 + side * level) / 2)) for side in (-1, 1))
    return usual * max(seen / labelled - low, 0.0), usual * max(high - seen / labelled, 0.0)


def _logit(chances: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    kept = np.clip(chances, EXTREME, 1 - EXTREME)
    logits: NDArray[Any] = np.log(kept / (1 - kept))
    return logits


def _covariance(first: NDArray[Any], second: NDArray[Any]) -> float:
    return float(((first - first.mean()) * (second - second.mean())).mean())


def _read_values(
    truths: Sequence[float], predicted: Sequence[float], rest: Sequence[float]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    import numpy as np

    if len(truths) != len(predicted):
        raise InputError(f"{len(truths)} labels but {len(predicted)} predictions of the same pictures.")
    true, guess, other = (np.asarray(values, dtype=np.float64) for values in (truths, predicted, rest))
    if not all(np.isfinite(values).all() for values in (true, guess, other)):
        raise InputError("A label or prediction is not a number.", hint="Leave out pictures without an answer.")
    return true, guess, other
