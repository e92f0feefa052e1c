"""Permutation importance (L. Breiman, 2001): how much worse a table's model gets where one column is shuffled.

Computed by scikit-learn. A column of a person's table can be several inputs of the model (a category has one for each
value), which are shuffled together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

REPEATS = 5
MOST_COLUMNS = 500
MOST_ROWS = 2000
PASSES = 2_000_000  # rows that the model is asked about, at most


def importance(
    answer: Callable[[Tensor], Tensor],
    score: Callable[[Tensor, Tensor], float],
    inputs: Tensor,
    target: Tensor,
    columns: Sequence[tuple[str, int]],
) -> dict[str, Any] | None:
    """The loss of `score` (more is better) where each of `columns`, (name, how many inputs it is), is shuffled, the
    mean, least and most of REPEATS times. `answer` gives the model's outputs for inputs (n, F).

    Of many rows an even choice is taken. None where there is one column alone, too many, or no two rows.
    """
    from sklearn.inspection import permutation_importance

    if not 2 <= len(columns) <= MOST_COLUMNS or len(inputs) < 2:
        return None
    most = min(len(inputs), MOST_ROWS, PASSES // (REPEATS * len(columns)))
    rows = np.unique(np.linspace(0, len(inputs) - 1, most).round().astype(np.int64))
    inputs, target = inputs[rows], target[rows]
    ends = np.cumsum([width for _, width in columns])
    places = [slice(end - width, end) for end, (_, width) in zip(ends, columns)]

    class Asked:
        """The model as scikit-learn asks it: for rows of numbers that say, for each column, whose cell stands there."""

        def fit(self, *_: Any) -> Asked:
            """It has learned already."""
            return self

    def scored(_: Asked, whose: NDArray[np.int64], __: Any) -> float:
        shuffled = inputs.clone()
        for k, place in enumerate(places):
            shuffled[:, place] = inputs[torch.from_numpy(whose[:, k].copy()), place]
        return score(answer(shuffled), target)

    own = np.repeat(np.arange(len(rows))[:, None], len(columns), axis=1)  # (n, columns)
    found = permutation_importance(Asked(), own, target.numpy(), scoring=scored, n_repeats=REPEATS, random_state=0)
    lost = [
        {"name": name, "value": _clean(mean), "low": _clean(each.min()), "high": _clean(each.max())}
        for (name, _), mean, each in zip(columns, found.importances_mean, found.importances)
    ]
    return {"rows": len(rows), "repeats": REPEATS, "columns": sorted(lost, key=lambda c: -c["value"])}


def _clean(value: float) -> float:
    """Without what subtraction leaves of equal scores."""
    return round(float(value), 12) + 0.0
