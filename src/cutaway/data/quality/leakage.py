"""Group and time leakage of tables: rows of one group, or adjacent in time, in several splits.

Target leakage in tables: columns that alone predict the target, or are filled in only for some targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from ...core.spec import Classes, Target
from ..dataset_base import DataSet
from ..findings import Finding
from ..tables.column_types import decode, infer_type, to_moments
from ..tables.encoders import Encoder
from ..tables.transforms import TableSplit
from .embeddings import SplitFeatures, sample_indices
from .labels import FOLDS
from .near_duplicates import nearest_neighbors

MAX_GROUP_ROWS, MIN_GROUP_ROWS = 3000, 100  # sample size
GROUPS = 10  # smallest number of groups
AGREE = 0.3  # smallest share of rows, beyond chance, whose nearest neighbor in the other columns is of the same group
MEASURED = 0.8  # the same for numbers with decimals, which are rarely group ids
MAX_CATEGORIES = 20  # largest number of values of a category; group ids have more
FOLLOWS = 0.5  # autocorrelation of the targets in time order


def check_group_leakage(data: DataSet, seen: Mapping[str, SplitFeatures]) -> list[Finding]:
    """Return findings on group columns whose rows are in several splits, and on times that targets follow."""
    places = [(split, i) for split, some in seen.items() for i in range(len(some.rows))]

    places = [places[i] for i in sample_indices(len(places), MAX_GROUP_ROWS).tolist()]
    if len(places) < MIN_GROUP_ROWS:
        return []
    rows = []
    for split, i in places:
        own = seen[split].split
        assert isinstance(own, TableSplit)
        rows.append(own.at(int(seen[split].rows[i])))
    table = rows[0][0]
    numbers = np.array([row for _, row in rows])
    known = {column["name"]: column["role"] for column in data.columns}
    inputs = torch.stack([seen[split].vectors[i] for split, i in places])
    target = np.array([float(seen[split].target[i]) for split, i in places])
    features = list(data.spec.columns) if hasattr(data.spec, "columns") else []
    splits = np.array([split for split, _ in places])
    found: list[Finding] = []
    # Copies of a row agree in every column, which is no evidence of groups.
    once = np.sort(np.unique(inputs.numpy(), axis=0, return_index=True)[1])
    for column, role in known.items():
        if role in ("target", "group"):
            continue
        cells = table.text(column).gather(numbers)
        type = infer_type(column, cells, len(table))
        if type.kind == "date":
            found += _check_time_leakage(column, cells, type.written, target, isinstance(data.spec.target, Classes))
            continue
        block = [
            k for k, name in enumerate(features) if name == column or name.startswith((f"{column}=", f"{column} "))
        ]
        apart = [k for k in range(len(features)) if k not in block]
        numbers_of_column = decode(cells, type) if type.kind == "number" else None
        share = _agreement(
            cells.gather(once),
            inputs[once][:, apart],
            None if numbers_of_column is None else numbers_of_column[once],
        )
        decimals = numbers_of_column is not None and bool((np.nan_to_num(numbers_of_column) % 1 != 0).any())
        if share is None or share < (MEASURED if decimals else AGREE):
            continue
        groups, parted = _split_groups(cells, splits)
        if parted:
            some = "; ".join(f"{value} ({', '.join(where)})" for value, where in list(parted.items())[:3])
            found.append(
                Finding(
                    f"Column {column} names groups that the split parts: {len(parted):,} of {groups:,} stand in "
                    f"several splits, and rows of one are alike ({share:.0%} of nearest rows, beyond chance), such as "
                    f"{some}. A score says little of new ones: group={column} keeps each in one split.",
                    [(f"{column} = {value}", *where) for value, where in parted.items()],
                )
            )
    return found


def _agreement(cells: pl.Series, inputs: torch.Tensor, values: npt.NDArray[np.float64] | None) -> float | None:
    """Return how much more often than by chance the nearest neighbor is of the same group; None without groups.

    For a numeric column (`values`), neighbors with adjacent values are subtracted, because a quantity has these too.
    """
    counts = cells.drop_nulls().value_counts()["count"].to_numpy()
    n = int(counts.sum())
    if n < MIN_GROUP_ROWS or not inputs.shape[1] or not GROUPS <= len(counts) <= n / 2 or counts.max() > n / 5:
        return None
    codes = cells.rank("dense").fill_null(0).to_numpy()
    _, nearest = nearest_neighbors(inputs, inputs, 2)
    itself = nearest[:, 0] == torch.arange(len(inputs))
    other = torch.where(itself, nearest[:, 1], nearest[:, 0]).numpy()
    there = codes > 0
    same = np.mean(codes[other][there] == codes[there])
    chance = float(np.square(counts / n).sum())
    if values is not None:
        ranks = np.unique(values, return_inverse=True)[1]
        same -= np.mean(np.abs(ranks[other] - ranks)[there] == 1) / 2
    return float((same - chance) / (1 - chance))


def _split_groups(cells: pl.Series, splits: npt.NDArray[Any]) -> tuple[int, dict[str, list[str]]]:
    """Return the number of groups with several rows, and the groups in several splits with those splits."""
    frame = pl.DataFrame({"group": cells, "split": splits}).drop_nulls()
    groups = frame.group_by("group", maintain_order=True).agg(pl.col("split").unique(maintain_order=True), pl.len())
    several = groups.filter(pl.col("len") > 1)
    return several.height, {row[0]: list(row[1]) for row in several.iter_rows() if len(row[1]) > 1}


def _check_time_leakage(
    column: str, cells: pl.Series, written: str, target: npt.NDArray[np.float64], classes: bool
) -> list[Finding]:
    """Return a finding if rows adjacent in time have similar targets and are in different splits."""
    moments = to_moments(cells, written)
    there = moments.is_not_null().to_numpy()
    if there.sum() < MIN_GROUP_ROWS:
        return []
    order = np.argsort(moments.drop_nulls().to_numpy(), kind="stable")
    value = target[there][order]
    if classes:
        counts = np.unique(value, return_counts=True)[1] / len(value)
        chance = float(np.square(counts).sum())
        like = (np.mean(value[1:] == value[:-1]) - chance) / max(1 - chance, 1e-9)
    else:
        like = float(np.corrcoef(value[1:], value[:-1])[0, 1]) if value.std() > 0 else 0.0
    if like < FOLLOWS:
        return []
    return [
        Finding(
            f"Rows near in time, by column {column}, have like targets ({like:.2f} of 1) and stand in different "
            "splits: the score is of moments between known ones, not of later ones. To measure those, keep the latest "
            "rows in a file of their own: cutaway evaluate RUN LATER.csv."
        )
    ]


MAX_TARGET_ROWS, MIN_TARGET_ROWS = 1500, 100  # sample size
ALONE = 0.9  # smallest R², or share of the majority class's errors, that a leaking column explains
ANYWAY = 0.93  # from here on regardless of the other columns
TIMES = 2  # factor by which the other columns together must have more errors
COLUMNS = 60
MIN_CELLS = 20  # smallest number of rows with, and without, a value in the column
Array = npt.NDArray[Any]


def check_target_leakage(data: DataSet, seen: Mapping[str, SplitFeatures], known_findings: str) -> list[Finding]:
    """Return a finding for each leaking column, except those that `known_findings` already names."""
    encoders: tuple[Encoder, ...] = getattr(data.preprocessing, "encoders", ())
    if not 2 <= len(encoders) <= COLUMNS:
        return []
    rows = sample_indices(len(seen["train"].rows), MAX_TARGET_ROWS)
    target = data.spec.target
    x, y = seen["train"].vectors[rows].numpy(), seen["train"].target[rows].numpy()
    if len(rows) < MIN_TARGET_ROWS or (isinstance(target, Classes) and np.bincount(y)[np.unique(y)].min() < FOLDS):
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
    if fewer < MIN_CELLS:
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
