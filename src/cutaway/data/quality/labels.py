"""Label errors found by confident learning (C.

Northcutt et al., Confident learning: estimating uncertainty in dataset labels, JAIR 2021,
<https://arxiv.org/abs/1911.00068>).

With cross-validated probabilities p_j(x) and t_j = mean of p_j over the examples labelled j, example x labelled i
counts as the class j with the largest p_j(x) ≥ t_j. If j ≠ i, the label is probably wrong. The model is then refitted
without these examples and tested on all labels.

Random label errors occur among confident predictions as often as among uncertain ones, but hard examples only among the
latter. A finding is made only if the most confident predictions have errors too and the model is mostly right.
Otherwise errors and hard examples cannot be distinguished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.spec import Classes
from ..findings import Finding
from .embeddings import SplitFeatures, sample_indices

MOST = 2000  # sample size
LEAST, OF_CLASS = 100, 10  # smallest number of examples in all and per class
SURE = 0.2  # fraction of examples with the most confident predictions
SURE_WRONG = 0.03  # smallest error rate of these, as a lower confidence bound, for a finding
SHARE = 0.3  # of the error rate of all examples: below it, errors are hard examples
WRONG = 0.25  # largest error rate of a usable model
Z = 1.28  # normal quantile of a one-sided 90 % bound
GAP = 0.2  # smallest lead in probability of another class over the label
FOLDS = 3
Picked = Sequence[tuple[str, int]]
Array = npt.NDArray[Any]


def check_labels(seen: Mapping[str, SplitFeatures], target: Classes) -> Finding | None:
    """Return a finding on probable label errors, by extremely randomised trees on the vectors."""
    from sklearn.ensemble import ExtraTreesClassifier

    rows = sample_examples(seen)
    x = np.stack([seen[split].vectors[i].numpy() for split, i in rows])
    return find_label_errors(x, rows, seen, target, ExtraTreesClassifier(60, min_samples_leaf=2, random_state=0))


def sample_examples(seen: Mapping[str, SplitFeatures]) -> Picked:
    """Sample the examples whose labels are checked from all splits."""

    every = [(split, i) for split, some in seen.items() for i in range(len(some.rows))]
    return [every[i] for i in sample_indices(len(every), MOST).tolist()]


def find_label_errors(
    x: Array, rows: Picked, seen: Mapping[str, SplitFeatures], target: Classes, model: Any
) -> Finding | None:
    """Return a finding on probable label errors, or None. `x` (n, …) are the model's inputs for `rows`."""
    y = np.array([int(seen[split].target[i]) for split, i in rows])
    common = np.flatnonzero(np.bincount(y) >= OF_CLASS)
    kept = np.isin(y, common)
    if kept.sum() < LEAST or len(common) < 2:
        return None
    x, rows, y = x[kept], [row for row, k in zip(rows, kept) if k], np.searchsorted(common, y[kept])
    p = cross_validated_probabilities(model, x, y, np.ones(len(y), bool))
    if not has_label_errors(p, y):
        return None
    p = cross_validated_probabilities(model, x, y, confident_classes(p, y) == y)
    like = p.argmax(1)
    lead = p.max(1) - p[np.arange(len(y)), y]
    found = np.flatnonzero(lead >= GAP)
    found = found[np.argsort(-lead[found], kind="stable")]
    if not len(found):
        return None
    name = [target.classes[k] for k in common]
    suspects = [(seen[rows[i][0]].name(rows[i][1]), name[y[i]], name[like[i]]) for i in found]
    some = "; ".join(f"{where} says {was!r}, looks like {is_!r}" for where, was, is_ in suspects[:3])
    return Finding(
        f"Labels are probably wrong: {len(found):,} of {len(y):,} examples that were looked at, such as {some}. "
        "Scores against wrong labels are wrong too: look at these examples, and correct or remove them.",
        suspects,
    )


def cross_validated_probabilities(model: Any, x: Array, y: Array, taught: Array) -> Array:
    """Return cross-validated probabilities (n, K) for classes y (n,), fitted only on the examples `taught` (n,)."""
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold
    from threadpoolctl import threadpool_limits  # a dependency of scikit-learn

    p = np.zeros((len(y), y.max() + 1))
    with threadpool_limits(1, "blas"):  # vectors are short: under load, threads spend more time waiting
        for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(len(y)), y):
            train = train[taught[train]]
            fitted = clone(model).fit(x[train], y[train])
            p[np.ix_(test, fitted.classes_)] = fitted.predict_proba(x[test])
    return p


def has_label_errors(p: Array, y: Array) -> bool:
    """Return whether y (n,) has random label errors: whether the most confident of p (n, K) are wrong."""
    errors = p.argmax(1) != y
    surest = np.argsort(-p.max(1), kind="stable")[: max(1, round(SURE * len(y)))]
    n, share = len(surest), errors[surest].mean()
    # lower end of Wilson's interval for the share
    least = (share + Z**2 / (2 * n) - Z * np.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2)) / (1 + Z**2 / n)
    return bool(errors.mean() <= WRONG and least >= max(SURE_WRONG, SHARE * errors.mean()))


def confident_classes(p: Array, y: Array) -> Array:
    """Return the class each example counts as, (n,), from probabilities (n, K) and labels y (n,).

    It is the label, or another class whose probability reaches its mean over the examples with that label.
    """
    own = p[np.arange(len(y)), y]
    thresholds = np.array([own[y == k].mean() if (y == k).any() else np.inf for k in range(p.shape[1])])
    above = np.where(p >= thresholds, p, -1.0)
    return np.where((above >= 0).any(1), above.argmax(1), y)
