"""Copies of rows with noise, where measures have few digits.

In a column of measures a value occurs again and again, and the next one is a step away, by 0.01 of a carat. A row whose
values hardly another row has and are no whole steps from others', and which lies within a step of another row in every
column, was not measured so: it is that row with noise, as augmentation by jittering makes it. Rows of another source,
which had more digits, have such values too; they lie so near to others by chance alone, which is seldom.
"""

from __future__ import annotations

import torch
from torch import Tensor

RARE = 2  # rows at most that have a value, for it to be none of the common ones
COMMON = 0.2  # of the rows have common values in a column of measures
REGULAR, FEW = 0.3, 0.1  # of the gaps between common values are a step; of these are less, by chance
WITHIN = 0.99  # of a step: what lies a whole step away is another measure
SAME = 1e-6  # a step of columns in which copies are equal
WHOLE = 0.02  # of a step, from which on a value is no whole number of steps from the commonest one
MOST = 0.5  # of the rows with such values are copies, or they are of another source


def copies(queries: Tensor, points: Tensor, measured: Tensor) -> tuple[Tensor, Tensor]:
    """Which of queries (n, F) are one of points (N, F) with noise, or the other way round, (n,), and which, (n,). Noise
    is in the columns `measured` (F,), in all others both are equal. Where one of these has no steps, none are."""
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
    """The step that stands between many of the values (k,), which are in order; 0 where there is none."""
    gaps = values.diff()
    if not len(gaps):
        return 0.0
    least = gaps.sort().values[int(FEW * len(gaps))]
    regular = (gaps / least - 1).abs() < 0.5
    return float(gaps[regular].median()) if regular.float().mean() >= REGULAR else 0.0


def _within(some: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Those of `some` (n, F) that lie within 1 of one of `others` in every column, and which: the numbers of both."""
    from scipy.spatial import KDTree

    if not len(some):
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    tree = KDTree(others.numpy())
    numbers = torch.from_numpy(tree.query(some.numpy(), p=float("inf"), distance_upper_bound=WITHIN)[1])
    here = (numbers < len(others)).nonzero()[:, 0]
    return here, numbers[here]
