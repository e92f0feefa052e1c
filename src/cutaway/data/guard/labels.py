"""Labels that are probably wrong, by confident learning (C. Northcutt et al., Confident learning: estimating
uncertainty in dataset labels, JAIR 2021, <https://arxiv.org/abs/1911.00068>).

With p_j(x) cross-validated probabilities and t_j = mean of p_j over the examples labelled j, example x labelled i
counts as j where p_j(x) ≥ t_j, the largest such j; where j ≠ i its label is probably wrong.

Labels that are wrong by chance stand among sure answers as among unsure ones; what is merely hard stands among unsure
ones. A finding is made only where sure answers are wrong too, and the model is mostly right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ...spec import Classes
from ..findings import Finding
from .seen import Seen, sample

MOST = 2000  # examples that are looked at
LEAST, OF_CLASS = 200, 10  # examples, without which nothing can be told
WRONG = 0.18  # of the examples: a model that is wrong more often cannot tell
SURE_WRONG = 0.02  # of the surer half, from which on labels are wrong
SHARE = 0.2  # errors among the surer half beside those among the others: less, and examples are merely hard
FOLDS = 3
Picked = Sequence[tuple[str, int]]
Array = npt.NDArray[Any]


def wrong(vectors: Mapping[str, Tensor], seen: Mapping[str, Seen], target: Classes) -> list[Finding]:
    """A finding where labels are probably wrong, told by a small forest over the vectors."""
    if sum(map(len, vectors.values())) < LEAST:
        return []
    from sklearn.ensemble import ExtraTreesClassifier

    rows = picked(seen)
    x = np.stack([vectors[split][i].numpy() for split, i in rows])
    return told(x, rows, seen, target, ExtraTreesClassifier(60, min_samples_leaf=2, random_state=0))


def picked(seen: Mapping[str, Seen]) -> Picked:
    """The examples whose labels are looked at, of all splits alike."""

    every = [(split, i) for split, some in seen.items() for i in range(len(some.rows))]
    return [every[i] for i in sample(len(every), MOST).tolist()]


def told(x: Array, rows: Picked, seen: Mapping[str, Seen], target: Classes, model: Any) -> list[Finding]:
    """The finding, where there is one; `x` (n, …) is what the model takes of each of `rows`."""
    y = _targets(rows, seen)
    common = np.flatnonzero(np.bincount(y) >= OF_CLASS)
    kept = np.isin(y, common)
    if kept.sum() < LEAST or len(common) < 2:
        return []
    x, rows, y = x[kept], [row for row, k in zip(rows, kept) if k], np.searchsorted(common, y[kept])
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    p = cross_val_predict(model, x, y, cv=StratifiedKFold(FOLDS, shuffle=True, random_state=0), method="predict_proba")
    errors = p.argmax(1) != y
    order = np.argsort(-p.max(1), kind="stable")
    sure, unsure = errors[order[: len(y) // 2]].mean(), errors[order[len(y) // 2 :]].mean()
    if errors.mean() > WRONG or sure < SURE_WRONG or sure < SHARE * unsure:
        return []
    better = confident(p, y)
    found = np.flatnonzero(better != y)
    if not len(found):
        return []
    found = found[np.argsort(p[found, y[found]] - p[found, better[found]], kind="stable")]
    name = [target.classes[k] for k in common]
    said = [(seen[rows[i][0]].name(rows[i][1]), name[y[i]], name[better[i]]) for i in found]
    some = "; ".join(f"{where} says {was!r}, looks like {like!r}" for where, was, like in said[:3])
    return [
        Finding(
            f"Labels are probably wrong: {len(found):,} of {len(y):,} examples that were looked at, such as {some}. "
            "Scores against wrong labels are wrong too: look at these examples, and correct or remove them.",
            said,
        )
    ]


def confident(p: Array, y: Array) -> Array:
    """The class that each example counts as, (n,), of probabilities p (n, K) and labels y (n,): its label, or another
    that is as sure as examples with that label are."""
    own = p[np.arange(len(y)), y]
    thresholds = np.array([own[y == k].mean() if (y == k).any() else np.inf for k in range(p.shape[1])])
    above = np.where(p >= thresholds, p, -1.0)
    return np.where((above >= 0).any(1), above.argmax(1), y)


def _targets(rows: Picked, seen: Mapping[str, Seen]) -> Array:
    of = {split: some.target.numpy() for split, some in seen.items()}
    return np.array([of[split][i] for split, i in rows])
