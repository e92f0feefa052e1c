"""Copies of table rows with added noise, detected in columns with few digits.

In a column of measurements values repeat, and adjacent values differ by a step, such as 0.01 of a carat. A row is a
noisy copy if its values are rare, are not a whole number of steps from others, and are within a step of another row in
every column. Jitter augmentation creates such rows. Rows of a source with more digits have such values too, but rarely
lie this close to others.
"""

from __future__ import annotations

import torch
from torch import Tensor

RARE = 2  # largest number of rows with a rare value
COMMON = 0.2  # smallest share of rows with common values in a column of measurements
REGULAR, FEW = 0.3, 0.1  # share of gaps between common values that equal the step; share that is smaller by chance
WITHIN = 0.99  # of a step: a whole step is another measurement
SAME = 1e-6  # step of the columns in which copies are equal
WHOLE = 0.02  # of a step: smallest deviation from whole steps
MOST = 0.5  # smallest share of copies among the rows with such values; otherwise they have another source


def find_noisy_copies(queries: Tensor, points: Tensor, measured: Tensor) -> tuple[Tensor, Tensor]:
    """Return which queries (n, F) are noisy versions of a point (N, F) or vice versa, (n,), and of which, (n,).

    Noise is in the columns `measured` (F,); all others are equal. No copies are found if a measured column has no step.
    """
    n = len(queries)
    copy, which = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.int64)
    rows, steps = torch.cat([queries, points]), torch.full((len(measured),), SAME)
    rare, between = torch.ones(len(rows), dtype=torch.bool), torch.zeros(len(rows), dtype=torch.bool)
    for column in measured.nonzero()[:, 0]:
        values, places, counts = torch.unique(rows[:, column], return_inverse=True, return_counts=True)
        common = counts > RARE
        step = _step(values[common])
        if common[places].float().mean() < COMMON or not step:
            return copy, which
        steps[column] = step
        away = (values - values[counts.argmax()]) / step
        rare &= ~common[places]
        between |= ((away - away.round()).abs() > WHOLE)[places]
    noisy = rare & between
    asked, found = noisy[:n].nonzero()[:, 0], noisy[n:].nonzero()[:, 0]
    here, there = _within(queries[asked] / steps, points / steps)
    if len(here) < MOST * len(asked):
        return copy, which
    copy[asked[here]], which[asked[here]] = True, there
    here, there = _within(points[found] / steps, queries / steps)
    copy[there], which[there] = True, found[here]
    return copy, which


def _step(values: Tensor) -> float:
    """Return the most regular gap between the sorted values (k,), or 0 for irregular values."""
    gaps = values.diff()
    if not len(gaps):
        return 0.0
    least = gaps.sort().values[int(FEW * len(gaps))]
    regular = (gaps / least - 1).abs() < 0.5
    return float(gaps[regular].median()) if regular.float().mean() >= REGULAR else 0.0


def _within(some: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Match rows of `some` (n, F) within 1 of a row of `others` in every column: the indices of both."""
    from scipy.spatial import KDTree

    if not len(some):
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    tree = KDTree(others.numpy())
    numbers = torch.from_numpy(tree.query(some.numpy(), p=float("inf"), distance_upper_bound=WITHIN)[1])
    here = (numbers < len(others)).nonzero()[:, 0]
    return here, numbers[here]
