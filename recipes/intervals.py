"""What several runs say together."""

from __future__ import annotations

import math
import statistics

from scipy.stats import t


def student(scores: list[float]) -> dict[str, float]:
    """The mean with Student's 95 % interval."""
    mean = statistics.mean(scores)
    half = float(t.ppf(0.975, len(scores) - 1)) * statistics.stdev(scores) / math.sqrt(len(scores))
    return {"value": mean, "low": mean - half, "high": mean + half}
