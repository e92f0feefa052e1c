"""Drift: inputs or targets whose distribution in another split differs from training.

Numeric inputs are compared by the Kolmogorov–Smirnov test, classes by χ², with Bonferroni correction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from ...core.spec import Classes, Target
from ..findings import Finding
from .embeddings import SplitFeatures, sample_indices

ALPHA = 1e-3
LARGE = 0.1  # smallest relevant distance of two distribution functions
OTHERWISE = 0.05  # smallest relevant total variation distance of the class distributions
LEAST, MOST = 30, 3000  # smallest sample, and largest number of examples of a split that are tested
NAMED = 3


def check_drift(
    seen: Mapping[str, SplitFeatures], target: Target, columns: Sequence[str], inputs: bool = True
) -> list[Finding]:
    """Return a finding for each split whose inputs or targets are distributed differently than in training.

    `columns` are the names of the inputs of a table.
    """
    train, found = seen["train"], []
    for split, own in seen.items():
        if split == "train" or min(len(own.rows), len(train.rows)) < LEAST:
            continue
        drifts = [_targets(train.target, own.target, target)]
        if inputs:
            drifts.append(_inputs(train.spread, own.spread, columns))
        if any(drifts):
            found.append(
                Finding(
                    f"The {split} split is not like training: {'; and '.join(filter(None, drifts))}. Its score is of "
                    "other data than was learned: draw the splits anew, or say what differs."
                )
            )
    return found


def _inputs(train: Tensor, own: Tensor, columns: Sequence[str]) -> str:
    """Describe which inputs (n, F) drift; empty if none."""
    from scipy.stats import ks_2samp

    a, b = (x[sample_indices(len(x), MOST)].numpy() for x in (train, own))
    tests = [ks_2samp(a[:, k], b[:, k], method="asymp") for k in range(a.shape[1])]
    far = [
        k
        for k, t in enumerate(tests)
        if t.pvalue * len(tests) < ALPHA and t.statistic > LARGE and not _unknown(columns, k)
    ]
    if not far:
        return ""
    far.sort(key=lambda k: -tests[k].statistic)
    by = "by the Kolmogorov–Smirnov test"
    if columns:
        return f"{', '.join(f'{columns[k]} (distance {tests[k].statistic:.2f})' for k in far[:NAMED])} {by}"
    return f"{len(far)} of {len(tests)} coarse numbers of its examples, by up to {tests[far[0]].statistic:.2f}, {by}"


def _targets(train: Tensor, own: Tensor, target: Target) -> str:
    """Describe how the targets drift; empty if they do not."""
    from scipy.stats import chi2_contingency, ks_2samp

    if not isinstance(target, Classes):
        test = ks_2samp(train.numpy(), own.numpy(), method="asymp")
        far = test.pvalue < ALPHA and test.statistic > LARGE
        return f"its targets (distance {test.statistic:.2f} by the Kolmogorov–Smirnov test)" if far else ""
    counts = np.stack([np.bincount(y.numpy(), minlength=len(target.classes)) for y in (train, own)])
    there = counts.sum(0) > 0
    names, counts = np.array(target.classes, object)[there], counts[:, there]
    shares = counts / counts.sum(1, keepdims=True)
    apart = np.abs(shares[1] - shares[0])
    if (
        counts.shape[1] < 2
        or apart.sum() / 2 <= OTHERWISE
        or chi2_contingency(counts, correction=False).pvalue >= ALPHA
    ):
        return ""
    k = int(apart.argmax())
    return f"{names[k]!r} is {shares[1, k]:.0%} of it and {shares[0, k]:.0%} of training (χ² of the classes)"


def _unknown(columns: Sequence[str], k: int) -> bool:
    """Return whether an input indicates a category unknown in training, which can occur in other splits only."""
    return bool(columns) and columns[k].endswith("=(unknown)")
