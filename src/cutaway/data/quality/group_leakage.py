"""Group and time leakage of tables: rows of one group, or adjacent in time, in several splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from ...core.spec import Classes
from ..dataset_base import DataSet
from ..findings import Finding
from ..tables.column_types import decode, infer_type, to_moments
from ..tables.transforms import TableSplit
from .embeddings import SplitFeatures, sample_indices
from .near_duplicates import nearest_neighbors

MOST, LEAST = 3000, 100  # sample size
GROUPS = 10  # smallest number of groups
AGREE = 0.3  # smallest share of rows, beyond chance, whose nearest neighbor in the other columns is of the same group
MEASURED = 0.8  # the same for numbers with decimals, which are rarely group ids
FEW = 20  # largest number of values of a category; group ids have more
FOLLOWS = 0.5  # autocorrelation of the targets in time order


def check_group_leakage(data: DataSet, seen: Mapping[str, SplitFeatures]) -> list[Finding]:
    """Return findings on group columns whose rows are in several splits, and on times that targets follow."""
    places = [(split, i) for split, some in seen.items() for i in range(len(some.rows))]

    places = [places[i] for i in sample_indices(len(places), MOST).tolist()]
    if len(places) < LEAST:
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
    if n < LEAST or not inputs.shape[1] or not GROUPS <= len(counts) <= n / 2 or counts.max() > n / 5:
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
    if there.sum() < LEAST:
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
