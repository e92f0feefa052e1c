"""Whether a hyperplane separates two classes: what a perceptron can and cannot learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def linearly_separable(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Whether some w, b has w·x + b > 0 exactly where y is true: x (n, F) numbers, y (n,) true or false.

    Then (w, b) can be scaled until s (w·x + b) ≥ 1 for every example, s = ±1. A linear programme looks for that;
    that it has no solution is a proof that there is no hyperplane. Rows and columns in their thousands take minutes.
    """
    from scipy.optimize import linprog  # comes with scikit-learn

    x = np.asarray(x, dtype=np.float64)
    side = np.where(y, 1.0, -1.0)[:, None]  # (n, 1)
    # Columns of one scale, so that the solver's tolerances mean the same for each; it moves no hyperplane's verdict.
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
    rows = -side * np.hstack([x, np.ones_like(side)])  # (n, F + 1) times (w, b) is at most −1
    found = linprog(c=np.zeros(rows.shape[1]), A_ub=rows, b_ub=-np.ones(len(rows)), bounds=(None, None), method="highs")
    if found.status not in (0, 2):  # neither solved nor without a solution
        raise ArithmeticError(f"the linear programme of separability ended undecided: {found.message}")
    return bool(found.status == 0)
