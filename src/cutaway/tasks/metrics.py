"""Metrics with their uncertainty: every score is given with a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Metrics of which more is better; of all others, losses and errors, less is.
HIGHER_IS_BETTER = frozenset(
    (
        *("accuracy", "balanced_accuracy", "top5_accuracy", "macro_f1", "span_f1", "span_precision", "span_recall"),
        *("knn_accuracy", "r2", "bleu"),
        *("average_accuracy", "backward_transfer"),
        *("mean_iou", "pixel_accuracy"),
        *("map", "map_50", "map_75"),
        *("auc", "average_precision", "mrr"),
        *("exact_match", "solved", "answer_accuracy", "token_accuracy"),
    )
)
AT_ONCE = 2**16  # example numbers that are drawn together, at least one resample
Z95 = 1.959963984540054  # the normal curve holds 95 % within ± this many standard deviations


@dataclass(frozen=True)
class Metric:
    """A score and the interval that holds it with 95 % confidence."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """The score and its interval to four digits: 0.9778 (0.9522 to 0.9898)."""
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"

    def __repr__(self) -> str:
        return f"Metric({self.value:.4g}, low={self.low:.4g}, high={self.high:.4g})"

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; what is not a number becomes null."""
        return {k: (v if math.isfinite(v) else None) for k, v in asdict(self).items()}


def proportion(right: float, count: float, z: float = Z95) -> Metric:
    """right/count with the interval of E. B. Wilson, 1927, which stays in [0, 1] and holds for few examples; of z
    standard errors on either side.

    NaN where nothing was counted.
    """
    if count == 0:
        return Metric(math.nan, math.nan, math.nan)
    p = right / count
    centre = (p + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(p * (1 - p) / count + z**2 / (4 * count**2))
    # At p = 0 and 1 the interval ends there exactly; rounding would leave the value a hair outside.
    return Metric(p, min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half)))


def mean(values: NDArray[np.float64]) -> Metric:
    """A mean with the interval of the normal approximation."""
    value = float(values.mean())
    half = Z95 * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Metric(value, value - half, value + half)


def bootstrap(score: Callable[[NDArray[np.int64]], float], count: int, seed: int = 0) -> Metric:
    """A score of `count` examples, with the percentile interval over resamples (B. Efron, 1979).

    `score` is given example numbers. Up to 1 000 resamples, fewer where there are very many examples.
    """
    return bootstrap_at_once(lambda rows: np.array([score(one) for one in rows]), count, seed)


def bootstrap_at_once(scores: Callable[[NDArray[np.int64]], NDArray[np.float64]], count: int, seed: int = 0) -> Metric:
    """The same, where `scores` is given the example numbers of several resamples, (R, count), and gives R scores."""
    rng = np.random.default_rng(seed)
    resamples = max(100, min(1000, 20_000_000 // max(count, 1)))
    each = max(1, AT_ONCE // max(count, 1))
    parts = [min(each, resamples - first) for first in range(0, resamples, each)]
    found = np.concatenate([scores(rng.integers(0, count, (part, count))) for part in parts])
    value = float(scores(np.arange(count)[None])[0])
    known = found[~np.isnan(found)]
    if not len(known) or math.isnan(value):  # R² of a constant, for one
        return Metric(value, math.nan, math.nan)
    low, high = np.percentile(known, [2.5, 97.5])
    return Metric(value, float(low), float(high))
