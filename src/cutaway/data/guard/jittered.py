"""Copies of rows with noise, where measures have few digits.

In a column of measures nearly every value occurs more than once, and two values differ by a step at least: carats by
0.01. A row whose values occur nowhere else, and which lies within a step of another row in every column, cannot have
been measured so: it is that row with noise, as augmentation by jittering makes it.
"""

from __future__ import annotations

import torch
from torch import Tensor

SHARED = 0.95  # of the rows have a value that others have too, in a column of measures
WITHIN = 0.99  # of a step: what lies a whole step away is another measure
SAME = 1e-6  # a step of columns in which copies are equal


def copies(queries: Tensor, points: Tensor, measured: Tensor) -> tuple[Tensor, Tensor]:
    """Which of queries (n, F) are one of points (N, F) with noise, or the other way round, (n,), and which, (n,). Noise
    is in the columns `measured` (F,), in all others both are equal. Where one of these has no steps, none are."""
    n = len(queries)
    copy, which = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.int64)
    rows, steps = torch.cat([queries, points]), torch.full((len(measured),), SAME)
    noisy = measured.any().repeat(len(rows))
    for column in measured.nonzero()[:, 0]:
        values, places, counts = torch.unique(rows[:, column], return_inverse=True, return_counts=True)
        shared = counts > 1
        if shared.sum() < 2 or shared[places].float().mean() < SHARED:
            return copy, which
        steps[column] = values[shared].diff().min()
        noisy &= ~shared[places]
    asked, found = noisy[:n].nonzero()[:, 0], noisy[n:].nonzero()[:, 0]
    here, there = _within(queries[asked] / steps, points / steps)
    copy[asked[here]], which[asked[here]] = True, there
    here, there = _within(points[found] / steps, queries / steps)
    copy[there], which[there] = True, found[here]
    return copy, which


def _within(some: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Those of `some` (n, F) that lie within 1 of one of `others` in every column, and which: the numbers of both."""
    from scipy.spatial import KDTree

    if not len(some):
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    tree = KDTree(others.numpy())
    numbers = torch.from_numpy(tree.query(some.numpy(), p=float("inf"), distance_upper_bound=WITHIN)[1])
    here = (numbers < len(others)).nonzero()[:, 0]
    return here, numbers[here]
