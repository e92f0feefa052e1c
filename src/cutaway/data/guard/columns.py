"""Columns of a table that alone say nearly all of the target, where all others together say much less."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...spec import Classes
from ..findings import Finding
from ..sets import DataSet
from ..tables.encoders import Encoder
from .labels import FOLDS
from .seen import Seen, sample

MOST, LEAST = 1500, 100  # rows that are looked at
ALONE = 0.9  # of the commonest answer's errors that a column must save: R², or the same of classes
ANYWAY = 0.95  # and from here on, whatever the others do
TIMES = 2  # as many errors as the column's the others together must make
COLUMNS = 60
Array = npt.NDArray[Any]


def alone(data: DataSet, seen: Mapping[str, Seen], told: str) -> list[Finding]:
    """A finding for each column that gives the target away, but for those that `told` names already."""

    encoders: tuple[Encoder, ...] = getattr(data.preprocessing, "encoders", ())
    if not 2 <= len(encoders) <= COLUMNS:
        return []
    rows = sample(len(seen["train"].rows), MOST)
    if len(rows) < LEAST:
        return []
    x, y = seen["train"].vectors[rows].numpy(), seen["train"].target[rows].numpy()
    classes, target = isinstance(data.spec.target, Classes), data.spec.target
    if classes and np.bincount(y)[np.unique(y)].min() < FOLDS:
        return []
    ends = np.cumsum([len(encoder.features) for encoder in encoders])
    blocks = [np.arange(end - len(encoder.features), end) for encoder, end in zip(encoders, ends)]
    skills = np.array([skill(x[:, block], y, classes) for block in blocks])
    found = []
    for k in np.flatnonzero(skills >= ALONE):
        if f"Column {encoders[k].name} alone" in told:
            continue
        others = np.setdiff1d(np.arange(x.shape[1]), blocks[k])
        rest = skill(x[:, others], y, classes, several=True)
        if skills[k] < ANYWAY and 1 - rest < TIMES * max(1 - skills[k], 0.005):
            continue
        name = encoders[k].name
        there = x[:, blocks[k][-1]] if getattr(encoders[k], "missing", False) else None
        after = there is not None and skill(there[:, None], y, classes) >= ALONE
        how = "whether it is filled in" if after else "it"
        found.append(
            Finding(
                f"Column {name} alone gives the target away: of {len(rows):,} training rows, {how} says "
                f"{skills[k]:.0%} of what there is to say of {getattr(target, 'column', 'the target')}, all others "
                f"together {max(rest, 0.0):.0%}. If it is set after the event, or made from the target, leave it out: "
                f"ignore={name}."
            )
        )
    return found


def skill(x: Array, y: Array, classes: bool, several: bool = False) -> float:
    """What inputs (n, F) say of the target, cross-validated: 1 − the errors of a tree (of many, where there are several
    columns) / those of the commonest class; of values 1 − squared errors / variance, R²."""
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    leaf = 3
    if classes:
        model = (
            ExtraTreesClassifier(60, random_state=0)
            if several
            else DecisionTreeClassifier(min_samples_leaf=leaf, max_leaf_nodes=64, random_state=0)
        )
        said = cross_val_predict(model, x, y, cv=StratifiedKFold(FOLDS, shuffle=True, random_state=0))
        commonest = np.mean(y != np.bincount(y).argmax())
        return float(1 - np.mean(said != y) / max(commonest, 1e-9))
    model = (
        ExtraTreesRegressor(60, random_state=0)
        if several
        else DecisionTreeRegressor(min_samples_leaf=leaf, max_leaf_nodes=128, random_state=0)
    )
    said = cross_val_predict(model, x, y, cv=KFold(FOLDS, shuffle=True, random_state=0))
    return float(1 - np.mean((said - y) ** 2) / max(float(np.var(y)), 1e-12))
