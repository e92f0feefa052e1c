"""Permutation importance (L. Breiman, 2001): the loss in score when one column of a table is shuffled.

It is computed by scikit-learn. A column of the user's table can be several inputs of the model (one per value of a
category), which are shuffled together.
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
PASSES = 2_000_000  # largest number of rows that the model predicts


def permutation_importance_report(
    answer: Callable[[Tensor], Tensor],
    score: Callable[[Tensor, Tensor], float],
    inputs: Tensor,
    target: Tensor,
    columns: Sequence[tuple[str, int]],
) -> dict[str, Any] | None:
    """Return the loss in `score` when each of `columns`, (name, number of inputs), is shuffled.

    The result has mean, minimum and maximum of REPEATS shuffles. In `score` larger is better. `answer` maps inputs (n,
    F) to the model's outputs. A larger table is subsampled evenly. The result is None for a single column, too many
    columns, or fewer than two rows.
    """
    from sklearn.inspection import permutation_importance

    if not 2 <= len(columns) <= MOST_COLUMNS or len(inputs) < 2:
        return None
    most = min(len(inputs), MOST_ROWS, PASSES // (REPEATS * len(columns)))
    rows = np.unique(np.linspace(0, len(inputs) - 1, most).round().astype(np.int64))
    inputs, target = inputs[rows], target[rows]
    ends = np.cumsum([width for _, width in columns])
    places = [slice(end - width, end) for end, (_, width) in zip(ends, columns)]

    class ModelAdapter:
        """An adapter of the model for scikit-learn: its inputs are the row indices from which each column's cells are
        taken.
        """

        def fit(self, *_: Any) -> ModelAdapter:
            """Do nothing: the model is already trained."""
            return self

    def scored(_: ModelAdapter, whose: NDArray[np.int64], __: Any) -> float:
        shuffled = inputs.clone()
        for k, place in enumerate(places):
            shuffled[:, place] = inputs[torch.from_numpy(whose[:, k].copy()), place]
        return score(answer(shuffled), target)

    own = np.repeat(np.arange(len(rows))[:, None], len(columns), axis=1)  # (n, columns)
    found = permutation_importance(
        ModelAdapter(), own, target.numpy(), scoring=scored, n_repeats=REPEATS, random_state=0
    )
    lost = [
        {"name": name, "value": _clean(mean), "low": _clean(each.min()), "high": _clean(each.max())}
        for (name, _), mean, each in zip(columns, found.importances_mean, found.importances)
    ]
    return {"rows": len(rows), "repeats": REPEATS, "columns": sorted(lost, key=lambda c: -c["value"])}


def _clean(value: float) -> float:
    """Round off floating-point residues of equal scores."""
    return round(float(value), 12) + 0.0
