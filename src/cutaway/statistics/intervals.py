"""95 % confidence intervals of metrics, from the contributions of independent units.

A unit is the thing that is sampled: an example, a sentence with all its tokens, an image with all its pixels, a block
of windows of a series. A metric has a value and a first-order contribution of each unit: the influence values of the
jackknife (B. Efron, C. Stein, The jackknife estimate of variance, 1981). Three intervals follow:

    fraction   0 to 1: the interval of E. B. Wilson (1927) for the number of independent answers with the same variance
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
        """Return the interval on another scale. `function` must be monotonic."""
        value, *ends = (function(x) if not math.isnan(x) else x for x in (self.value, self.low, self.high))
        low, high = ends if any(map(math.isnan, ends)) else sorted(ends)
        return Metric(value, low, high, self.note)


def without_interval(value: float, reason: str) -> Metric:
    """Return a metric whose note says why it has no interval."""
    return Metric(value, math.nan, math.nan, f"no interval: {reason}")


def proportion(right: float, count: float, z: float = Z95) -> Metric:
    """Return right/count with the interval of E. B. Wilson, 1927, which stays in [0, 1] and is valid for few examples.

    Args:
        right: Number of correct predictions.
        count: Number of predictions.
        z: Number of standard errors on either side.

    Returns:
        The proportion and its interval; NaN if `count` is 0.
    """
    if count == 0:
        return Metric(math.nan, math.nan, math.nan)
    p = right / count
    centre = (p + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(p * (1 - p) / count + z**2 / (4 * count**2))
    # At p = 0 and 1 the interval ends exactly there; rounding could leave the value just outside.
    return Metric(p, min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half)))


def mean(values: NDArray[Any], noun: str = "example") -> Metric:
    """Return the mean of independent values (n,)."""
    values = np.asarray(values, np.float64)
    found = _reject_few(float(values.mean()), len(values), noun) if len(values) else without_interval(math.nan, "empty")
    if not found.note:
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
    """Return the RMSE of independent errors (n,).

    The interval is wider for few errors than that of their squares. A small sample of errors with heavy tails misses
    the few that have most of the squared error. The logarithmic interval is therefore widened by 1 + 1/n, which covers
    92 to 98 % from Student's t of five degrees of freedom to uniform errors.
    """
    found = mean(np.square(np.asarray(errors, np.float64)), noun=noun)
    if not (found.note or math.isnan(found.low)):
        wider = 1 + 1 / len(errors)
        low, high = (found.value * (end / found.value) ** wider for end in (found.low, found.high))
        found = Metric(found.value, low, high)
    return found.map(math.sqrt)


def ratio(above: NDArray[Any], below: NDArray[Any], noun: str = "example") -> Metric:
    """Return Σ above / Σ below, both (n,) and not negative: a loss by tokens, errors by words."""
    return jackknife(np.stack([above, below], 1), _quotient, positive, noun)


def share(above: NDArray[Any], below: NDArray[Any], noun: str = "example") -> Metric:
    """Return Σ above / Σ below, if no unit has more above than below: the fraction of correct pixels of images."""
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
    """Return a score of the sums of `units` (n, k) over independent units.

    Args:
        units: Contribution of each unit to the sums.
        score: Sums (R, k) to scores (R,).
        interval: `fraction`, `positive`, `quotient`, `signed` or `symmetric`.
        noun: Name of a unit.
        least: Minimum number of units for an interval.

    Returns:
        The metric; without an interval if there are few units, or if a part of them has no score.
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
    """Return the interval of a score from the leave-one-out scores (G,) of G groups of units."""
    if not np.isfinite(without).all():
        return without_interval(value, "the score depends on a few of the examples")
    return interval(value, value + (len(without) - 1) * (without.mean() - without))


def _reject_few(value: float, count: int, noun: str, least: int = MIN_UNITS) -> Metric:
    """Return the value alone, with a note if there are too few units for an interval."""
    if math.isnan(value):
        return Metric(value, math.nan, math.nan)
    return (
        without_interval(value, f"fewer than {least} {plural(noun)}") if count < least else Metric(value, value, value)
    )


def plural(noun: str) -> str:
    """Return the plural of a noun: windows, boxes."""
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def group_units(count: int, groups: int = MAX_UNITS) -> NDArray[np.int64]:
    """Return the group of each of `count` units, shape (count,), the same each time.

    Each unit is a group, or is in one of `groups` at random if there are more units.
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
        value: The score.
        added: Contribution of each unit, shape (n,), with mean `value`.
        most: Maximum number of predictions; the number of units, if all contribute the same.
    """
    variance = float(added.var(ddof=1)) / len(added)
    return effective(value, variance, min(most, len(added)), len(added) - 1)


def effective(value: float, variance: float, units: float, freedom: float = math.inf) -> Metric:
    """Return Wilson's interval of a value in [0, 1] with the given variance, or of `units` predictions if it is 0."""
    if math.isinf(variance):
        return without_interval(value, "its variance is unknown")
    spread = value * (1 - value)
    count = spread / variance if variance > 0 and spread > 0 else units
    return wilson(value, count, student(freedom))


def wilson(value: float, count: float, z: float = Z95) -> Metric:
    """Return the interval of E. B. Wilson, 1927, of a value in [0, 1] as a fraction of `count` predictions."""
    found = proportion(min(max(value, 0.0), 1.0) * count, count, z)
    return Metric(value, min(value, found.low), max(value, found.high))


def positive(value: float, added: Values) -> Metric:
    """Return the interval of a value above 0, by the studentised bootstrap of its logarithm."""
    return _studentised(value, added, logarithm=True)


def signed(value: float, added: Values) -> Metric:
    """Return the interval of a value of either sign, by the studentised bootstrap."""
    return _studentised(value, added, logarithm=False)


def symmetric(value: float, added: Values) -> Metric:
    """Return Student's t interval of a difference, whose errors are symmetric."""
    half = student(len(added) - 1) * math.sqrt(float(added.var(ddof=1)) / len(added))
    return Metric(value, value - half, value + half)


def quotient(value: float, added: Values) -> Metric:
    """Return the interval of a ratio of two errors or variances, whose logarithm has symmetric errors."""
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
    """Return the two-sided quantile of Student's t.

    The fraction `level` of the distribution lies within ± this value.
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
    """Return a score of the sums over windows, with an interval by blocks.

    Args:
        values: Contribution of each window, shape (n, k), in the order of time.
        overlap: Number of windows that begin within one horizon.
        score: Sums (R, k) to scores (R,).
        interval: Interval of the score from the contributions of the blocks.
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
