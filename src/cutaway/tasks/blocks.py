"""Intervals for metrics of examples that stand in the order of time and are not independent of their neighbours.

Resampled are not examples but blocks of neighbours, so that neighbours are alike in the resamples too: moving blocks,
H. R. Künsch, The jackknife and the bootstrap for general stationary observations, Annals of Statistics 17, 1989.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .metrics import Metric

LEAST_BLOCKS = 3  # of which examples must be worth, for less says nothing of how far a figure could lie off

Values = NDArray[np.float64]


class Blocks:
    """Resamples of `count` examples in blocks of `length`: the same ones whenever they are asked for."""

    def __init__(self, count: int, length: int, seed: int = 0) -> None:
        self.count, self.length, self.seed = count, length, seed
        enough = count >= LEAST_BLOCKS * length
        self.resamples = max(100, min(1000, 20_000_000 // count)) if enough else 0

    def sums(self, values: Values) -> Values:
        """Σ over examples of values (n, …): of those there are, then of each resample, (1 + B, …)."""
        total = np.concatenate([np.zeros_like(values[:1]), values.cumsum(0)])
        sums = [total[-1]]
        if self.resamples:
            blocks = total[self.length :] - total[: -self.length]  # (n − length + 1, …)
            rng = np.random.default_rng(self.seed)
            drawn = math.ceil(self.count / self.length)
            sums += [blocks[rng.integers(0, len(blocks), drawn)].sum(0) for _ in range(self.resamples)]
        return np.stack(sums)

    def means(self, values: Values, counts: Values) -> Values:
        """Σ values / Σ counts, (1 + B, …), NaN where nothing was counted."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Values = self.sums(values) / self.sums(counts)
        return found


def spread(values: Values) -> Metric:
    """The first of these, (1 + B,), with the interval that holds 95 % of the others; NaN where none is a number."""
    known = values[1:][~np.isnan(values[1:])]
    low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (math.nan, math.nan)
    return Metric(float(values[0]), float(low), float(high))
