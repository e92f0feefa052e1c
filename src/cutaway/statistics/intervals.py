"""95 % confidence intervals of metrics, from the contributions of independent units.

A unit is the thing that is sampled: an example, a sentence with all its tokens, an image with all its pixels, a block
of windows of a series. A metric has a value and a first-order contribution of each unit: the influence values of the
jackknife (B. Efron, C. Stein, The jackknife estimate of variance, 1981). Three intervals follow:

    fraction   0 to 1: the interval of E. B. Wilson (1927) for as many independent predictions as have this variance
    positive   losses and errors, which are skewed: the studentised bootstrap (P. Hall, 1988) of the logarithm
    signed     anything else: the studentised bootstrap; Student's t of differences, and of the logarithm of quotients

The studentised bootstrap is too narrow for few units. Its quantiles are widened as far as Student's t is wider than the
normal distribution (T. Hesterberg, What teachers should know about the bootstrap, 2015,
<https://arxiv.org/abs/1411.5279>).

Windows of a time series are not independent: neighboring windows overlap, and the errors of neighboring times are
correlated. The windows are split into a few consecutive blocks, which are nearly independent (E. Carlstein, The use of
subseries values for estimating the variance of a general statistic from a stationary sequence, 1986). A few long blocks
cover the true value also if errors are correlated over more than one horizon, because the intervals allow for the small
number of blocks (N. M. Kiefer, T. J. Vogelsang, A new asymptotic theory for heteroskedasticity-autocorrelation robust
tests, 2005).

If no method has a coverage of 92 to 98 %, the metric has no interval, and its note says why. `Resamples` draws the
bootstrap resamples and random signs that all compared models share.
"""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

LEVEL = 0.95
ROUNDING = 1e-9  # relative error of sums that is accepted
Z95 = 1.959963984540054  # 95 % of the normal distribution lie within ± this many standard deviations
MIN_UNITS = 10  # minimum number of units for an interval
MAX_UNITS = 400  # more units are combined at random into this many groups
BOOTSTRAP_DRAWS = 1_999  # of the studentised bootstrap
TIES = 1e-9  # relative difference below which two sums of the same numbers are equal
MAX_LOG_RATIO = 50.0  # limit of |log(end / value)|

Score = Callable[[Values], Values]  # sums over units (R, k) to scores (R,) or (R, m)


@dataclass(frozen=True)
class Metric:
    """Score and its 95 % confidence interval.

    Attributes:
        value: The score; NaN if it is not defined.
        low: The lower end of the interval; NaN without an interval.
        high: The upper end of the interval; NaN without an interval.
        note: Why there is no interval; empty if there is one.

    Example:
        >>> accuracy = proportion(18, 20)  # 18 of 20 predictions are correct
        >>> print(accuracy)
        0.9 (0.699 to 0.9721)
        >>> accuracy.low > 0.5  # significantly better than 50 %
        True
        >>> print(accuracy.map(lambda p: 1 - p))  # the error rate
        0.1 (0.02787 to 0.301)

    If other test sets of 20 examples were drawn, and the interval computed for each, about 95 % of these intervals
    would contain the true accuracy.
    """

    value: float
    low: float
    high: float
    note: str = ""

    def __str__(self) -> str:
        """Return the score and its interval to four digits: 0.9778 (0.9522 to 0.9898)."""
        if self.note:
            return f"{self.value:.4g} ({self.note})"
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"

    def __repr__(self) -> str:
        return f"Metric({self.value:.4g}, low={self.low:.4g}, high={self.high:.4g})"

    def _repr_html_(self) -> str:
        """Return the score and its interval for a notebook."""
        interval = self.note or f"95 % interval {self.low:.4g} to {self.high:.4g}"
        return f'<b>{self.value:.4g}</b> <span style="opacity: 0.7">{html.escape(interval)}</span>'

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: null for numbers that are not finite, and `note` only if there is one."""
        ends = {"value": self.value, "low": self.low, "high": self.high}
        found: dict[str, Any] = {k: (v if math.isfinite(v) else None) for k, v in ends.items()}
        return {**found, "note": self.note} if self.note else found

    def map(self, function: Callable[[float], float]) -> Metric:
        """Return the score and its interval on another scale.

        Args:
            function: Function of a number, monotonic between `low` and `high`. If it decreases, the ends are
                exchanged. It is not called for NaN.
        """
        value, *ends = (function(x) if not math.isnan(x) else x for x in (self.value, self.low, self.high))
        low, high = ends if any(map(math.isnan, ends)) else sorted(ends)
        return Metric(value, low, high, self.note)


def without_interval(value: float, reason: str) -> Metric:
    """Return a metric whose note says why it has no interval.

    Args:
        value: The score.
        reason: The reason, which follows "no interval: " in the note.

    Returns:
        The metric, with NaN for `low` and `high`.

    Example:
        >>> print(without_interval(0.9, "fewer than 10 images"))
        0.9 (no interval: fewer than 10 images)
    """
    return Metric(value, math.nan, math.nan, f"no interval: {reason}")


def proportion(right: float, count: float, z: float = Z95) -> Metric:
    """Return right/count with the interval of E. B. Wilson, 1927, which stays in [0, 1] and is valid for few examples.

    Args:
        right: Number of correct predictions, from 0 to `count`.
        count: Number of independent predictions.
        z: Number of standard errors on either side; 1.96 for 95 %.

    Returns:
        The proportion and its interval; NaN if `count` is 0.

    Raises:
        ValueError: If `right` is negative or greater than `count`.

    Example:
        >>> print(proportion(18, 20))
        0.9 (0.699 to 0.9721)
        >>> print(proportion(180, 200))  # ten times the examples: about a third of the width
        0.9 (0.8506 to 0.9343)
        >>> print(proportion(20, 20))  # no error among 20 examples does not mean no error
        1 (0.8389 to 1)
    """
    possible = -ROUNDING * count <= right <= (1 + ROUNDING) * count  # sums of weights are rounded
    if not (possible or math.isnan(right)):
        raise ValueError(f"Invalid right={right}: must be from 0 to count={count}.")
    right = min(max(right, 0.0), count) if possible else right
    if count == 0:
        return Metric(math.nan, math.nan, math.nan)
    p = right / count
    centre = (p + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(p * (1 - p) / count + z**2 / (4 * count**2))
    # At p = 0 and 1 the interval ends exactly there; rounding could leave the value just outside.
    return Metric(p, min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half)))


def mean(values: NDArray[Any], noun: str = "example") -> Metric:
    """Return the mean of independent values, with the interval of `positive`, or of `signed` if a value is negative.

    Args:
        values: Values, such as the loss of each example, shape (n,).
        noun: Name of a unit, for the note.

    Returns:
        The mean and its interval, in the unit of the values. No interval if there are fewer than 10 values, all are
        equal, or one is infinite; NaN if a value is.

    Example:
        >>> losses = np.array([0.3, 0.5, 0.4, 1.2, 0.3, 0.7, 0.4, 0.3, 1.6, 0.5, 0.3, 0.6])
        >>> print(mean(losses))  # skewed: the interval extends farther above the mean than below
        0.5917 (0.3737 to 1.816)
        >>> print(mean(losses).map(np.exp))  # perplexity
        1.807 (1.453 to 6.149)
        >>> print(mean(losses[:3], noun="batch"))
        0.4 (no interval: fewer than 10 batches)
    """
    values = np.asarray(values, np.float64)
    found = _reject_few(float(values.mean()), len(values), noun) if len(values) else without_interval(math.nan, "empty")
    if not (found.note or math.isnan(found.value)):
        positive_values = bool((values >= 0).all())
        units = _mean_contributions(values, found.value)
        found = (positive if positive_values else signed)(found.value, units)
    return found


def _mean_contributions(values: NDArray[np.float64], value: float) -> NDArray[np.float64]:
    """Return the contribution of each group of values (n,) to their mean, shape (G,).

    Groups that differ in size contribute their deviations from the mean: their sums would also vary by their size.
    """
    if len(values) <= MAX_UNITS:
        return values
    sums, sizes = _sum_by_group(np.stack([values, np.ones_like(values)], 1)).T
    found: NDArray[np.float64] = value + (sums - sizes * value) * len(sums) / len(values)
    return found


def root_mean_square(errors: NDArray[Any], noun: str = "example") -> Metric:
    """Return the RMSE of independent errors.

    The interval is wider for few errors than that of their squares. A small sample of errors with heavy tails misses
    the few that have most of the squared error. The logarithmic interval is therefore widened by 1 + 1/n, which covers
    92 to 98 % from Student's t of five degrees of freedom to uniform errors.

    Args:
        errors: Predictions minus targets, shape (n,).
        noun: Name of a unit, for the note.

    Returns:
        The RMSE and its interval, in the unit of the errors. No interval if there are fewer than 10 errors, all have
        the same size, or one is infinite; NaN if an error is.

    Example:
        >>> errors = np.array([0.5, -1.0, 2.0, 0.0, -0.5, 1.5, -2.5, 1.0, 0.5, -1.0, 0.0, 3.0])
        >>> print(root_mean_square(errors))
        1.451 (0.837 to 2.666)
    """
    found = mean(np.square(np.asarray(errors, np.float64)), noun=noun)
    if not (found.note or math.isnan(found.low)):
        wider = 1 + 1 / len(errors)
        low, high = (found.value * (end / found.value) ** wider for end in (found.low, found.high))
        found = Metric(found.value, low, high)
    return found.map(math.sqrt)


def ratio(above: NDArray[Any], below: NDArray[Any], noun: str = "example") -> Metric:
    """Return Σ above / Σ below over independent units: the loss per token, the errors per word.

    Units are resampled, not tokens, because the tokens of one sentence are not independent.

    Args:
        above: Contribution of each unit to the numerator, shape (n,), at least 0.
        below: Contribution to the denominator, shape (n,), at least 0.
        noun: Name of a unit, for the note.

    Returns:
        The ratio, which is not the mean of the ratios of the units, and its interval by `jackknife` and `positive`.

    Example:
        >>> wrong = np.array([1, 0, 2, 0, 1, 3, 0, 1, 0, 2])  # word errors of ten sentences
        >>> words = np.array([9, 7, 12, 5, 8, 15, 6, 9, 4, 11])
        >>> print(ratio(wrong, words, noun="sentence"))  # word error rate
        0.1163 (0.06343 to 0.2046)
    """
    return jackknife(np.stack([above, below], 1), _quotient, positive, noun)


def share(above: NDArray[Any], below: NDArray[Any], noun: str = "example") -> Metric:
    """Return Σ above / Σ below over independent units, at most 1: the fraction of correct pixels.

    Args:
        above: Contribution of each unit to the numerator, shape (n,), from 0 to `below`.
        below: Contribution to the denominator, shape (n,).
        noun: Name of a unit, for the note.

    Returns:
        The fraction and its interval, in [0, 1], by `jackknife` and `fraction`.

    Example:
        >>> right = np.array([90, 80, 95, 99, 70, 88, 92, 85, 97, 60])  # correct pixels of ten images
        >>> pixels = np.full(10, 100)
        >>> print(share(right, pixels, noun="image"))
        0.856 (0.7455 to 0.9234)
        >>> print(proportion(right.sum(), pixels.sum()))  # too narrow: pixels of one image are not independent
        0.856 (0.8329 to 0.8764)
    """
    return jackknife(np.stack([above, below], 1), _quotient, fraction, noun)


def _quotient(sums: Values) -> Values:
    found: Values = sums[:, 0] / sums[:, 1]
    return found


def jackknife(
    units: NDArray[Any],
    score: Score,
    interval: Callable[[float, Values], Metric],
    noun: str = "example",
    least: int = MIN_UNITS,
) -> Metric:
    """Return a score of the sums of `units` over independent units.

    The score is computed without each unit in turn. With more than 400 units, they are combined at random into 400
    groups.

    Args:
        units: Contribution of each unit to k sums, shape (n, k).
        score: Function of sums (R, k) that returns scores (R,).
        interval: Interval from the contributions of units: `fraction` for scores from 0 to 1, `positive` for losses and
            errors, `signed` for scores of either sign, `symmetric` for differences, `quotient` for ratios of errors.
        noun: Name of a unit, for the note.
        least: Minimum number of units for an interval.

    Returns:
        The metric; without an interval if there are fewer than `least` units, or if a part of them has no score; NaN
        without units.

    Example:
        >>> found = [3, 2, 4, 1, 2, 3, 0, 2, 3, 1]  # correctly found names in each of ten documents
        >>> wrong, missed = [0, 1, 1, 0, 2, 0, 1, 0, 1, 0], [1, 0, 0, 2, 0, 1, 1, 0, 0, 0]
        >>> units = np.stack([found, wrong, missed], 1)
        >>> print(jackknife(units, lambda s: 2 * s[:, 0] / (2 * s[:, 0] + s[:, 1] + s[:, 2]), fraction))  # F1
        0.7925 (0.6591 to 0.8829)
    """
    groups = _sum_by_group(np.asarray(units, np.float64))
    total = groups.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(score(total[None])[0])
        found = _reject_few(value, len(units), noun, least)
        if found.note or math.isnan(value):
            return found
        return interval_without_each(value, score(total - groups), interval)


def interval_without_each(value: float, without: Values, interval: Callable[[float, Values], Metric]) -> Metric:
    """Return the interval of a score from its leave-one-out scores, for a score that is not a function of sums.

    Args:
        value: The score of all units.
        without: The scores without each of G groups of units in turn, shape (G,). With more units than can be left out
            one by one, leave out the groups of `group_units`.
        interval: `fraction`, `positive`, `quotient`, `signed` or `symmetric`, as in `jackknife`.

    Returns:
        The metric; without an interval if a score without a group is not finite.

    Example:
        >>> x = np.array([0.5, 1.0, 2.0, 0.0, 0.5, 1.5, 2.5, 1.0, 0.5, 1.0, 0.0, 3.0])
        >>> without = np.array([np.delete(x, i).std(ddof=1) for i in range(len(x))])
        >>> print(interval_without_each(x.std(ddof=1), without, positive))  # standard deviation
        0.9564 (0.6135 to 2.015)
    """
    if not np.isfinite(without).all():
        return without_interval(value, "the score depends on a few of the examples")
    return interval(value, value + (len(without) - 1) * (without.mean() - without))


def _reject_few(value: float, count: int, noun: str, least: int = MIN_UNITS) -> Metric:
    """Return the value alone, with a note if it is infinite or has too few units for an interval."""
    if math.isnan(value):
        return Metric(value, math.nan, math.nan)
    if math.isinf(value):
        return without_interval(value, "the value is infinite")
    return (
        without_interval(value, f"fewer than {least} {plural(noun)}") if count < least else Metric(value, value, value)
    )


def plural(noun: str) -> str:
    """Return the plural of a noun: windows, boxes."""
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def group_units(count: int, groups: int = MAX_UNITS) -> NDArray[np.int64]:
    """Return the group of each of `count` units, the same each time.

    Each unit is a group, or is in one of `groups` at random if there are more units. Groups differ in size by at most
    one.

    Args:
        count: Number of units.
        groups: Largest number of groups.

    Returns:
        The index of the group of each unit, shape (count,).

    Example:
        >>> group_units(5)
        array([0, 1, 2, 3, 4])
        >>> sizes = np.bincount(group_units(1000)).tolist()
        >>> len(sizes), min(sizes), max(sizes)
        (400, 2, 3)
    """
    if count <= groups:
        return np.arange(count)
    found: NDArray[np.int64] = np.random.default_rng(0).permutation(count) % groups
    return found


def _sum_by_group(units: Values) -> Values:
    """Return the sums (G, k) of units (n, k) by group."""
    if len(units) <= MAX_UNITS:
        return units
    order = np.argsort(group_units(len(units)), kind="stable")
    starts = np.concatenate([[0], np.bincount(group_units(len(units))).cumsum()[:-1]])
    found: Values = np.add.reduceat(units[order], starts, axis=0)
    return found


# --- intervals from the contribution of each unit -----------------------------------------------------------------


def fraction(value: float, added: Values, most: float = math.inf) -> Metric:
    """Return the interval of a value in [0, 1]: Wilson's, for the number of predictions with the same variance.

    Args:
        value: The score, from 0 to 1.
        added: Contribution of each of at least two units, shape (n,), with mean `value`.
        most: Number of predictions for which the interval is computed if all units contribute the same; at most n, and
            n by default.

    Returns:
        The metric.

    Example:
        >>> added = np.array([1.0, 0.9, 0.8, 1.0, 0.7, 0.9, 1.0, 0.6, 0.9, 1.0])  # accuracy in each of ten images
        >>> print(fraction(added.mean(), added))
        0.88 (0.746 to 0.9482)
    """
    variance = float(added.var(ddof=1)) / len(added)
    return effective(value, variance, min(most, len(added)), len(added) - 1)


def effective(value: float, variance: float, units: float, freedom: float = math.inf) -> Metric:
    """Return Wilson's interval of a value in [0, 1] with the given variance.

    It is the interval for the number of independent predictions with the same variance, value (1 − value) / variance.

    Args:
        value: The score, from 0 to 1.
        variance: Square of its standard error.
        units: Number of predictions that is used if the variance or value (1 − value) is 0.
        freedom: Degrees of freedom of the variance, for the quantile of Student's t; infinite for the normal
            distribution.

    Returns:
        The metric; without an interval if the variance is infinite.

    Example:
        >>> print(effective(0.9, variance=0.0045, units=20))  # as of 20 independent predictions: 0.09 / 20
        0.9 (0.699 to 0.9721)
    """
    if math.isinf(variance):
        return without_interval(value, "its variance is unknown")
    spread = value * (1 - value)
    count = spread / variance if variance > 0 and spread > 0 else units
    return wilson(value, count, student(freedom))


def wilson(value: float, count: float, z: float = Z95) -> Metric:
    """Return the interval of E. B. Wilson, 1927, of a value in [0, 1] as a fraction of `count` predictions.

    Args:
        value: The score, from 0 to 1.
        count: Number of independent predictions; it need not be a whole number.
        z: Number of standard errors on either side; 1.96 for 95 %.

    Returns:
        The metric; without an interval if `count` is 0.

    Example:
        >>> print(wilson(0.9, 20))  # as proportion(18, 20)
        0.9 (0.699 to 0.9721)
    """
    if count == 0:
        return without_interval(value, "no predictions")
    found = proportion(min(max(value, 0.0), 1.0) * count, count, z)
    return Metric(value, min(value, found.low), max(value, found.high))


def positive(value: float, added: Values) -> Metric:
    """Return the interval of a value above 0, by the studentised bootstrap of its logarithm.

    Args:
        value: The score, such as a loss.
        added: Contribution of each of at least two units, shape (n,), with mean `value`.

    Returns:
        The metric; without an interval if all units contribute the same.

    Example:
        >>> errors = np.array([0.3, 0.5, 0.4, 1.2, 0.3, 0.7, 0.4, 0.3, 1.6, 0.5, 0.3, 0.6])
        >>> print(positive(errors.mean(), errors))
        0.5917 (0.3737 to 1.816)
    """
    return _studentised(value, added, logarithm=True)


def signed(value: float, added: Values) -> Metric:
    """Return the interval of a value of either sign, by the studentised bootstrap.

    Args:
        value: The score.
        added: Contribution of each of at least two units, shape (n,), with mean `value`.

    Returns:
        The metric; without an interval if all units contribute the same.

    Example:
        >>> gains = np.array([0.2, -0.1, 0.4, 0.3, -0.2, 0.1, 0.5, 0.0, 0.3, 0.1, -0.1, 0.4])
        >>> print(signed(gains.mean(), gains))  # it contains 0
        0.1583 (-0.02324 to 0.3229)
    """
    return _studentised(value, added, logarithm=False)


def symmetric(value: float, added: Values) -> Metric:
    """Return Student's t interval of a difference, whose errors are symmetric.

    Args:
        value: The score, such as the difference of two losses.
        added: Contribution of each of at least two units, shape (n,), with mean `value`.

    Returns:
        The metric. If all units contribute the same, the interval has no width.

    Example:
        >>> gains = np.array([0.2, -0.1, 0.4, 0.3, -0.2, 0.1, 0.5, 0.0, 0.3, 0.1, -0.1, 0.4])
        >>> print(symmetric(gains.mean(), gains))
        0.1583 (0.01381 to 0.3029)
    """
    half = student(len(added) - 1) * math.sqrt(float(added.var(ddof=1)) / len(added))
    return Metric(value, value - half, value + half)


def quotient(value: float, added: Values) -> Metric:
    """Return the interval of a ratio of two errors or variances, whose logarithm has symmetric errors.

    It is Student's t interval of the logarithm, widened for few units.

    Args:
        value: The ratio, above 0.
        added: Contribution of each of at least two units, shape (n,), with mean `value`.

    Returns:
        The metric; without an interval if all units contribute the same.

    Example:
        >>> errors = np.array([1, 4, 0, 2, 1, 3, 1, 0, 2, 1])  # squared errors of ten predictions
        >>> apart = np.array([9, 16, 4, 1, 8, 20, 7, 5, 12, 6])  # squared distances of the targets from their mean
        >>> unexplained = jackknife(np.stack([errors, apart], 1), lambda s: s[:, 0] / s[:, 1], quotient)
        >>> print(unexplained.map(lambda x: 1 - x))  # R²
        0.8295 (0.721 to 0.8959)
    """
    count, error = len(added), math.sqrt(float(added.var(ddof=1)) / len(added))
    if not error > TIES * abs(value):
        return without_interval(value, "all examples have the same value")
    reach = min(student(count - 1) * _widening(count) * error / value, MAX_LOG_RATIO)
    return Metric(value, value * math.exp(-reach), value * math.exp(reach))


def _widening(count: int) -> float:
    """Return the factor by which an interval of few units is widened."""
    return student(count - 1) / Z95 * math.sqrt(count / (count - 1))


def _studentised(value: float, added: Values, logarithm: bool) -> Metric:
    error = math.sqrt(float(added.var(ddof=1)) / len(added))
    if not error > TIES * abs(value):
        return without_interval(value, "all examples have the same value")
    draws = studentised(added, cached_resamples(len(added)), logarithm)
    upper, lower = np.quantile(draws, [(1 + LEVEL) / 2, (1 - LEVEL) / 2])
    if not logarithm:
        return Metric(value, min(value, value - upper * error), max(value, value - lower * error))
    low, high = (value * math.exp(min(-q * error / value, MAX_LOG_RATIO)) for q in (upper, lower))
    return Metric(value, min(value, low), max(value, high))


def studentised(added: Values, resamples: Resamples, logarithm: bool) -> Values:
    """Return the studentised errors of resampled means, widened for few units, shape (B,).

    With `logarithm` the logarithms of the means are compared.
    """
    mean = added.mean()
    centred = (added - mean) / abs(mean) if logarithm else added - mean
    scale = 1.0 if logarithm else float(added.std())
    means, squares = resamples.means(np.stack([centred, centred**2])).T
    errors = np.sqrt(np.maximum(squares - means**2, TIES * scale**2) / (len(added) - 1))
    if logarithm:
        held = np.maximum(1 + means, TIES)
        means, errors = np.log(held), errors / held
    widened: Values = means / errors * _widening(len(added))
    return widened


@functools.lru_cache(maxsize=8)
def cached_resamples(count: int) -> Resamples:
    """Return the resamples of `count` units, the same each time."""
    return Resamples(count, draws=BOOTSTRAP_DRAWS)


@functools.lru_cache(maxsize=1024)
def student(freedom: float, level: float = LEVEL) -> float:
    """Return the two-sided quantile of Student's t: the fraction `level` of the distribution lies within ± this value.

    Args:
        freedom: Degrees of freedom, above 0; infinite for the normal distribution.
        level: Fraction of the distribution, above 0 and below 1.

    Example:
        >>> round(student(9), 3), round(student(math.inf), 3)  # 95 % of the mean of ten values, and of very many
        (2.262, 1.96)
    """
    from scipy.special import stdtrit  # comes with scikit-learn

    return float(stdtrit(freedom, (1 + level) / 2))


RESAMPLES = 9_999  # so that p is a multiple of 1/10 000
MAX_RESAMPLED = 5_000  # examples that are resampled individually; means of more are nearly normal
MAX_CELLS = 1 << 22  # resampled examples in memory as floats at a time


class Resamples:
    """Bootstrap resamples and random signs: `draws` of each, over `examples` examples."""

    def __init__(self, examples: int, seed: int = 0, draws: int = RESAMPLES) -> None:
        self.examples, self.draws = examples, draws
        self.rng = np.random.default_rng(seed)

    def means(self, rows: Values) -> Values:
        """Return the means of rows (R, n) over each resample, shape (B, R)."""
        found = np.empty((self.draws, len(rows)))
        for some in self._pieces:
            found[some] = self._counts[some] @ rows.T / self.examples
        return found

    def signed(self, columns: Values) -> Values:
        """Return the means of columns (n, P) with random signs, shape (B, P).

        An example has the same sign in all columns.
        """
        if self.examples > MAX_RESAMPLED:
            spread: Values = np.sqrt(np.square(columns).sum(0)) / self.examples
            return spread * self.rng.standard_normal((self.draws, columns.shape[1]))
        found = np.empty((self.draws, columns.shape[1]))
        for some in self._pieces:
            found[some] = self._signs[some].astype(np.float64) @ columns / self.examples
        return found

    @functools.cached_property
    def _counts(self) -> NDArray[np.uint8]:
        """Return the count of each example in each resample, (B, n)."""
        counts = np.empty((self.draws, self.examples), np.uint8)  # a count over 255 has probability 10⁻⁵⁰⁰
        for some in self._pieces:
            rows = np.arange(some.stop - some.start)[:, None]
            drawn = self.rng.integers(0, self.examples, (len(rows), self.examples)) + rows * self.examples
            found = np.bincount(drawn.ravel(), minlength=len(rows) * self.examples)
            counts[some] = found.reshape(len(rows), self.examples)
        return counts

    @functools.cached_property
    def _signs(self) -> NDArray[np.int8]:
        """Return −1 or 1 for each example, shape (B, n)."""
        return 2 * self.rng.integers(0, 2, (self.draws, self.examples), dtype=np.int8) - 1

    @property
    def _pieces(self) -> list[slice]:
        step = max(1, MAX_CELLS // self.examples)
        return [slice(start, min(start + step, self.draws)) for start in range(0, self.draws, step)]


MIN_BLOCKS, MAX_BLOCKS = 8, 12  # blocks
MIN_SPANS = 2  # minimum length of a block, in overlaps


def block_sums(values: Values, overlap: int) -> Values:
    """Return the sums, shape (B, …), of values (n, …) over consecutive blocks of nearly equal length.

    Args:
        values: Contribution of each window, in the order of time.
        overlap: Number of windows that begin within one horizon: the horizon times the number of series.
    """
    count = max(1, min(MAX_BLOCKS, len(values) // (MIN_SPANS * overlap)))
    return np.stack([block.sum(0) for block in np.array_split(values, count)])


def window_metric(
    values: Values, overlap: int, score: Score, interval: Callable[[float, Values], Metric] = positive
) -> Metric:
    """Return a score of the sums over windows of a time series, with an interval by blocks.

    Neighboring windows overlap and are not independent. The windows are split into 8 to 12 consecutive blocks, and the
    blocks are the units of `jackknife`.

    Args:
        values: Contribution of each window to k sums, shape (n, k), in the order of time.
        overlap: Number of windows that begin within one horizon: the horizon times the number of series.
        score: Function of sums (R, k) that returns scores (R,).
        interval: Interval of the score from the contributions of the blocks, as in `jackknife`.

    Returns:
        The metric; without an interval if there are fewer than 8 blocks, each at least two horizons long.

    Example:
        >>> errors = np.sin(np.arange(60.0) ** 2)  # of 60 forecasts
        >>> sums = np.stack([errors**2, np.ones(60)], 1)
        >>> print(window_metric(sums, overlap=3, score=lambda s: np.sqrt(s[:, 0] / s[:, 1])))  # RMSE
        0.6921 (0.5955 to 0.8229)
        >>> print(window_metric(sums, overlap=12, score=lambda s: np.sqrt(s[:, 0] / s[:, 1])))
        0.6921 (no interval: 60 windows; 192 are needed because neighbors overlap)
    """
    blocks = block_sums(values, overlap)
    if len(blocks) < MIN_BLOCKS:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(score(blocks.sum(0)[None])[0])
        return (
            Metric(value, value, value)
            if np.isnan(value)
            else without_interval(value, too_few_windows(len(values), overlap))
        )
    return jackknife(blocks, score, interval, least=MIN_BLOCKS)


def too_few_windows(count: int, overlap: int) -> str:
    """Return the note that says that `count` windows are too few for an interval."""
    return f"{count:,} windows; {MIN_BLOCKS * MIN_SPANS * overlap:,} are needed because neighbors overlap"
