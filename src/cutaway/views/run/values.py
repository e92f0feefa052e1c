"""The view of a regression: predicted over actual values, and the distribution of the errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...draw.description import View, table
from ...draw.number_format import count, number, signed

MOST_BINS = 48


def residuals(values: dict[str, Any], total: int) -> View:
    """Return predicted over actual values, and the errors; `total` is the number of examples before selection."""
    predicted = np.asarray(values["predicted"], dtype=np.float64)  # (n,)
    actual = np.asarray(values["actual"], dtype=np.float64)  # (n,)
    error = predicted - actual
    edges = bins(error)
    unit = values.get("unit") or ""
    named = f"{values['column']} ({unit})" if unit else values["column"]
    largest = float(error[np.abs(error).argmax()])
    says = "Each dot is one example: on the line the model is exact, above it says too much, below too little."
    if len(error) < total:
        says += f" Shown is an even choice of {count(len(error))} of the {count(total)} examples."
    return View(
        id="residuals",
        title="Predictions and residuals",
        says=says,
        summary=f"Half of the errors are at most {number(float(np.median(np.abs(error))))} in size; "
        f"their mean is {signed(float(error.mean()))}, the largest {signed(largest)}{f' {unit}' if unit else ''}.",
        table=table(
            {"actual": "number", "predicted": "number", "error": "number"},
            np.stack([actual, predicted, error], axis=1).tolist(),
        ),
        drawings=[
            {
                "kind": "points",
                "title": f"Predicted {named}",
                "x": f"actual {named}",
                "points": np.stack([actual, predicted], axis=1).tolist(),
                "scale": abs(largest) or 1.0,
            },
            {
                "kind": "histogram",
                "title": "Examples by error, predicted − actual",
                "edges": edges.tolist(),
                "counts": np.histogram(error, edges)[0].tolist(),
                "below": "too little",
                "above": "too much",
                "scale": abs(largest) or 1.0,
            },
        ],
    )


def bins(error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the edges of equal bins over the errors (n,), one of them 0, so that no bin mixes signs.

    The width is that of Freedman and Diaconis (1981), 2 IQR n^(−1/3), rounded up to 1, 2 or 5 times a power of ten.
    """
    q1, q3 = np.percentile(error, [25, 75])
    low, high = float(error.min()), float(error.max())
    wanted = max(2 * float(q3 - q1) / len(error) ** (1 / 3), (high - low) / MOST_BINS)
    if wanted:  # the bins extend to 0, which may be far from all errors
        wanted = max(wanted, (max(high, 0) - min(low, 0)) / MOST_BINS)
    width = _round_up(wanted or abs(high) or 1.0)
    first, last = min(math.floor(low / width), 0), max(math.ceil(high / width), 0)
    return width * np.arange(first, max(last, first + 1) + 1, dtype=np.float64)


def _round_up(value: float) -> float:
    """Return the smallest of 1, 2, 5 × 10ᵏ that is at least the value and not too small for a normal float."""
    value = max(value, 10 * float(np.finfo(np.float64).tiny))
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 2, 5) if m * power >= value), 10 * power)
