"""Drift: inputs or targets that are spread otherwise in another split than in training, by Kolmogorov and Smirnov's
test of each number and χ² of classes, corrected for how many are held (Bonferroni)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from ...core.spec import Classes, Target
from ..findings import Finding
from .embeddings import Seen, sample

ALPHA = 1e-3
LARGE = 0.1  # the largest distance of two distribution functions from which on it matters
OTHERWISE = 0.05  # of the examples, that would have to be of another class for the classes to be spread alike
LEAST, MOST = 30, 3000  # examples of a split, at most so many of which are looked at
NAMED = 3


def drift(seen: Mapping[str, Seen], target: Target, columns: Sequence[str], inputs: bool = True) -> list[Finding]:
    """A finding for each split whose inputs or targets are spread otherwise than in training; `columns` name the
    inputs, in a table."""
    train, found = seen["train"], []
    for split, own in seen.items():
        if split == "train" or min(len(own.rows), len(train.rows)) < LEAST:
            continue
        said = [_targets(train.target, own.target, target)]
        if inputs:
            said.append(_inputs(train.spread, own.spread, columns))
        if any(said):
            found.append(
                Finding(
                    f"The {split} split is not like training: {'; and '.join(filter(None, said))}. Its score is of "
                    "other data than was learned: draw the splits anew, or say what differs."
                )
            )
    return found


def _inputs(train: Tensor, own: Tensor, columns: Sequence[str]) -> str:
    """What of the inputs (n, F) is spread otherwise, if anything is."""
    from scipy.stats import ks_2samp

    a, b = (x[sample(len(x), MOST)].numpy() for x in (train, own))
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
    """How the targets are spread otherwise, if they are."""
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
    """Whether an input says that a category is new to training, which is so outside training alone."""
    return bool(columns) and columns[k].endswith("=(unknown)")
