"""Labels that are probably wrong, by confident learning (C. Northcutt et al., Confident learning: estimating
uncertainty in dataset labels, JAIR 2021, <https://arxiv.org/abs/1911.00068>).

With p_j(x) cross-validated probabilities and t_j = mean of p_j over the examples labelled j, example x labelled i
counts as j where p_j(x) ≥ t_j, the largest such j; where j ≠ i its label is probably wrong. The model is then fitted
anew without these examples, and says which labels it would not have given.

Labels that are wrong by chance stand among sure answers as among unsure ones; what is merely hard stands among unsure
ones. A finding is made only where the surest answers are wrong too, and the model is mostly right: elsewhere what is
wrong cannot be told from what is hard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.spec import Classes
from ..findings import Finding
from .embeddings import Seen, sample

MOST = 2000  # examples that are looked at
LEAST, OF_CLASS = 100, 10  # examples, without which nothing can be told
SURE = 0.2  # of the examples: those of the surest answers
SURE_WRONG = 0.03  # of these, surely, from which on labels are wrong
SHARE = 0.3  # of the errors among all: fewer among the surest, and examples are merely hard
WRONG = 0.25  # of all: a model that is wrong more often cannot tell
Z = 1.28  # standard errors: of what is measured a tenth lies outside, on one side
GAP = 0.2  # of probability, by which another class is likelier than the label
FOLDS = 3
Picked = Sequence[tuple[str, int]]
Array = npt.NDArray[Any]


def wrong(seen: Mapping[str, Seen], target: Classes) -> Finding | None:
    """A finding where labels are probably wrong, told by a small forest over the vectors."""
    from sklearn.ensemble import ExtraTreesClassifier

    rows = picked(seen)
    x = np.stack([seen[split].vectors[i].numpy() for split, i in rows])
    return told(x, rows, seen, target, ExtraTreesClassifier(60, min_samples_leaf=2, random_state=0))


def picked(seen: Mapping[str, Seen]) -> Picked:
    """The examples whose labels are looked at, of all splits alike."""

    every = [(split, i) for split, some in seen.items() for i in range(len(some.rows))]
    return [every[i] for i in sample(len(every), MOST).tolist()]


def told(x: Array, rows: Picked, seen: Mapping[str, Seen], target: Classes, model: Any) -> Finding | None:
    """The finding, where there is one; `x` (n, …) is what the model takes of each of `rows`."""
    y = np.array([int(seen[split].target[i]) for split, i in rows])
    common = np.flatnonzero(np.bincount(y) >= OF_CLASS)
    kept = np.isin(y, common)
    if kept.sum() < LEAST or len(common) < 2:
        return None
    x, rows, y = x[kept], [row for row, k in zip(rows, kept) if k], np.searchsorted(common, y[kept])
    p = probabilities(model, x, y, np.ones(len(y), bool))
    if not mistaken(p, y):
        return None
    p = probabilities(model, x, y, confident(p, y) == y)
    like = p.argmax(1)
    lead = p.max(1) - p[np.arange(len(y)), y]
    found = np.flatnonzero(lead >= GAP)
    found = found[np.argsort(-lead[found], kind="stable")]
    if not len(found):
        return None
    name = [target.classes[k] for k in common]
    said = [(seen[rows[i][0]].name(rows[i][1]), name[y[i]], name[like[i]]) for i in found]
    some = "; ".join(f"{where} says {was!r}, looks like {is_!r}" for where, was, is_ in said[:3])
    return Finding(
        f"Labels are probably wrong: {len(found):,} of {len(y):,} examples that were looked at, such as {some}. "
        "Scores against wrong labels are wrong too: look at these examples, and correct or remove them.",
        said,
    )


def probabilities(model: Any, x: Array, y: Array, taught: Array) -> Array:
    """Cross-validated probabilities (n, K) of the classes of y (n,); only examples that are `taught` (n,) teach."""
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    p = np.zeros((len(y), y.max() + 1))
    with threadpool_limits(1, "blas"):  # vectors are short: where other work runs, threads wait for each other longer
        for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(len(y)), y):
            train = train[taught[train]]
            fitted = clone(model).fit(x[train], y[train])
            p[np.ix_(test, fitted.classes_)] = fitted.predict_proba(x[test])
    return p


def mistaken(p: Array, y: Array) -> bool:
    """Whether labels y (n,) are wrong by chance, as far as probabilities (n, K) tell: the surest answers are wrong."""
    errors = p.argmax(1) != y
    surest = np.argsort(-p.max(1), kind="stable")[: max(1, round(SURE * len(y)))]
    n, share = len(surest), errors[surest].mean()
    # the lower end of Wilson's interval for the share
    least = (share + Z**2 / (2 * n) - Z * np.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2)) / (1 + Z**2 / n)
    return bool(errors.mean() <= WRONG and least >= max(SURE_WRONG, SHARE * errors.mean()))


def confident(p: Array, y: Array) -> Array:
    """The class that each example counts as, (n,), of probabilities p (n, K) and labels y (n,): its label, or another
    that is as sure as examples with that label are."""
    own = p[np.arange(len(y)), y]
    thresholds = np.array([own[y == k].mean() if (y == k).any() else np.inf for k in range(p.shape[1])])
    above = np.where(p >= thresholds, p, -1.0)
    return np.where((above >= 0).any(1), above.argmax(1), y)
