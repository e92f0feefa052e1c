"""Linear separability of two classes: the condition under which a perceptron learns them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def linearly_separable(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Return whether some w, b has w·x + b > 0 exactly where y is true: x (n, F) numbers, y (n,) true or false.

    Then (w, b) can be scaled until s (w·x + b) ≥ 1 for every example, s = ±1. A linear program searches for such a
    solution. If it has none, no separating hyperplane exists. Thousands of rows and columns take minutes.
    """
    from scipy.optimize import linprog  # comes with scikit-learn

    x = np.asarray(x, dtype=np.float64)
    side = np.where(y, 1.0, -1.0)[:, None]  # (n, 1)
    # Standardize columns, so that the solver's tolerances apply equally; separability does not change.
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
    rows = -side * np.hstack([x, np.ones_like(side)])  # (n, F + 1) times (w, b) is at most −1
    found = linprog(c=np.zeros(rows.shape[1]), A_ub=rows, b_ub=-np.ones(len(rows)), bounds=(None, None), method="highs")
    if found.status not in (0, 2):  # neither solved nor infeasible
        raise ArithmeticError(f"the linear programme of separability ended undecided: {found.message}")
    return bool(found.status == 0)
