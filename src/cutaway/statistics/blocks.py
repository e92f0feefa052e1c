"""95 % confidence intervals of metrics of windows of a time series, which are not independent of their neighbours.

Neighbouring windows overlap, and the errors of neighbouring times are correlated. The windows are split into a few
consecutive blocks, which are nearly independent (E. Carlstein, The use of subseries values for estimating the variance
of a general statistic from a stationary sequence, 1986). A few long blocks cover the true value also if errors are
correlated over more than one horizon, because the intervals allow for the small number of blocks (N. M. Kiefer, T. J.
Vogelsang, A new asymptotic theory for heteroskedasticity-autocorrelation robust tests, 2005).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .intervals import Metric, Score, jackknife, positive, without_interval
from .resampling import Values

FEWEST, MOST = 8, 12  # blocks
SPANS = 2  # minimum length of a block, in overlaps


def block_sums(values: Values, overlap: int) -> Values:
    """Return the sums, shape (B, …), of values (n, …) over consecutive blocks of nearly equal length.

    Args:
        values: Contribution of each window, in the order of time.
        overlap: Number of windows that begin within one horizon: the horizon times the number of series.
    """
    count = max(1, min(MOST, len(values) // (SPANS * overlap)))
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
    if len(blocks) < FEWEST:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(score(blocks.sum(0)[None])[0])
        return (
            Metric(value, value, value)
            if np.isnan(value)
            else without_interval(value, too_few_windows(len(values), overlap))
        )
    return jackknife(blocks, score, interval, least=FEWEST)


def too_few_windows(count: int, overlap: int) -> str:
    """Return the note that says that `count` windows are too few for an interval."""
    return f"{count:,} windows; {FEWEST * SPANS * overlap:,} are needed because neighbors overlap"
