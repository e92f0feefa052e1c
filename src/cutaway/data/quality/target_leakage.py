"""Target leakage in tables: columns that alone predict the target, or are filled in only for some targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.spec import Classes, Target
from ..dataset_base import DataSet
from ..findings import Finding
from ..tables.encoders import Encoder
from .embeddings import SplitFeatures, sample_indices
from .labels import FOLDS

MOST, LEAST = 1500, 100  # sample size
ALONE = 0.9  # smallest R², or share of the majority class's errors, that a leaking column explains
ANYWAY = 0.93  # from here on regardless of the other columns
TIMES = 2  # factor by which the other columns together must have more errors
COLUMNS = 60
FEW = 20  # smallest number of rows with, and without, a value in the column
Array = npt.NDArray[Any]


def check_target_leakage(data: DataSet, seen: Mapping[str, SplitFeatures], known_findings: str) -> list[Finding]:
    """Return a finding for each leaking column, except those that `known_findings` already names."""
    encoders: tuple[Encoder, ...] = getattr(data.preprocessing, "encoders", ())
    if not 2 <= len(encoders) <= COLUMNS:
        return []
    rows = sample_indices(len(seen["train"].rows), MOST)
    target = data.spec.target
    x, y = seen["train"].vectors[rows].numpy(), seen["train"].target[rows].numpy()
    if len(rows) < LEAST or (isinstance(target, Classes) and np.bincount(y)[np.unique(y)].min() < FOLDS):
        return []
    features = [feature for encoder in encoders for feature in encoder.features]
    ends = np.cumsum([len(encoder.features) for encoder in encoders])
    found: list[Finding | None] = []
    for encoder, end in zip(encoders, ends):
        if f"Column {encoder.name} alone" in known_findings:
            continue
        block = np.arange(end - len(encoder.features), end)
        gaps = [k for k in block if features[k] in (f"{encoder.name} missing", f"{encoder.name}=(missing)")]
        event = _check_missingness(encoder.name, x[:, gaps[0]] == x[:, gaps[0]].min(), y, target) if gaps else None
        found.append(event or _check_predictive(encoder.name, x, block, y, target))
    return [finding for finding in found if finding]


def _check_predictive(name: str, x: Array, block: Array, y: Array, target: Target) -> Finding | None:
    """Return a finding if the inputs `block` of x (n, F) predict the target, and all others much less."""
    classes = isinstance(target, Classes)
    own = predictive_skill(x[:, block], y, classes)
    if own < ALONE:
        return None
    rest = predictive_skill(np.delete(x, block, 1), y, classes, several=True)
    if own < ANYWAY and 1 - rest < TIMES * max(1 - own, 0.005):
        return None
    return Finding(
        f"Column {name} alone gives the target away: of {len(y):,} training rows, it says {own:.0%} of what there is "
        f"to say of {getattr(target, 'column', 'the target')}, all others together {max(rest, 0.0):.0%}. If it is made "
        f"from the target, or set after the event, leave it out: ignore={name}."
    )


def _check_missingness(name: str, filled: Array, y: Array, target: Target) -> Finding | None:
    """Return a finding if a column is `filled` in (n,) for some targets and rarely for others."""
    fewer = min(filled.sum(), (~filled).sum())
    if fewer < FEW:
        return None
    label = getattr(target, "column", "the target")
    if isinstance(target, Classes):
        with_, of = np.bincount(y[filled], minlength=len(target.classes)), np.bincount(y, minlength=len(target.classes))
        where = 2 * with_ > of
        wrong = int(np.where(where, of - with_, with_).sum())
        names = [repr(name) for name, own in zip(target.classes, where) if own]
        when = f"is {' or '.join(names[:3])}{' …' if len(names) > 3 else ''}"
    else:
        steps = np.where(filled[np.argsort(y, kind="stable")], 1, -1)
        high = (~filled).sum() + np.cumsum(steps)  # exceptions if it is filled in above the i-th target
        wrong, when = min((int(high.min()), "is high"), (int((len(y) - high).min()), "is low"))
    if wrong > (1 - ALONE) * fewer:
        return None
    hardly, so_in = ("hardly", f"all but {wrong:,} of") if wrong else ("not", "all")
    return Finding(
        f"Column {name} is filled in where {label} {when}, and {hardly} elsewhere: so it is in {so_in} {len(y):,} "
        f"training rows. If it is set after the event, that gives the target away: ignore={name}."
    )


def predictive_skill(x: Array, y: Array, classes: bool, several: bool = False) -> float:
    """Return the cross-validated skill of inputs (n, F): 1 − errors / majority-class errors, or R² for numbers.

    The model is a tree, or a forest if there are several columns.
    """
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    if classes:
        forest, tree = ExtraTreesClassifier, DecisionTreeClassifier
    else:
        forest, tree = ExtraTreesRegressor, DecisionTreeRegressor
    model = forest(60, random_state=0) if several else tree(min_samples_leaf=3, max_leaf_nodes=128, random_state=0)
    folds = (StratifiedKFold if classes else KFold)(FOLDS, shuffle=True, random_state=0)
    predicted = cross_val_predict(model, x, y, cv=folds)
    if classes:
        commonest = np.mean(y != np.bincount(y).argmax())
        return float(1 - np.mean(predicted != y) / max(commonest, 1e-9))
    return float(1 - np.mean((predicted - y) ** 2) / max(float(np.var(y)), 1e-12))
