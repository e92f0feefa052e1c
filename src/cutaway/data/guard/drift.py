"""Drift: inputs that are spread otherwise in another split than in training, by Kolmogorov and Smirnov's test of each,
corrected for how many are held (Bonferroni)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from ..findings import Finding
from .seen import sample

ALPHA = 1e-3
LARGE = 0.2  # the largest distance of two distribution functions from which on it matters
LEAST, MOST = 40, 3000  # examples of a split, at most so many of which are looked at
NAMED = 3


def drift(vectors: Mapping[str, Tensor], columns: Sequence[str]) -> list[Finding]:
    """A finding for each split whose inputs are spread otherwise than in training; `columns` name them, in a table."""
    from scipy.stats import ks_2samp

    train, found = vectors["train"], []
    for split, own in vectors.items():
        if split == "train" or min(len(own), len(train)) < LEAST:
            continue

        a, b = (x[sample(len(x), MOST)].numpy() for x in (train, own))
        tests = [ks_2samp(a[:, k], b[:, k], method="asymp") for k in range(a.shape[1])]
        far = [
            k
            for k, t in enumerate(tests)
            if t.pvalue * len(tests) < ALPHA and t.statistic > LARGE and not _unknown(columns, k)
        ]
        if not far:
            continue
        far.sort(key=lambda k: -tests[k].statistic)
        which = (
            ", ".join(f"{columns[k]} (distance {tests[k].statistic:.2f})" for k in far[:NAMED])
            if columns
            else f"{len(far)} of {len(tests)} coarse numbers of them, by up to {tests[far[0]].statistic:.2f}"
        )
        found.append(
            Finding(
                f"The {split} split is not like training: {which} by the Kolmogorov–Smirnov test. Its score is of "
                "other data than was learned: draw the splits anew, or say what differs."
            )
        )
    return found


def _unknown(columns: Sequence[str], k: int) -> bool:
    """Whether an input says that a category is new to training, which is so outside training alone."""
    return bool(columns) and columns[k].endswith("=(unknown)")
