"""How the cells of each column are spread over the training rows: counts between edges, or for each value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from .columns import ColumnType, decode, show

MOST_COLUMNS = 200
BARS = 24
VALUES = 6  # of a column of categories that are counted by name; the others together
REST = "all others"


def distributions(cells: Mapping[str, pl.Series], types: Mapping[str, ColumnType]) -> list[dict[str, Any]]:
    """One document for each column of numbers, dates, yes/no or categories: `counts` with the `ends` of the range that
    they divide evenly, or with `labels`; and how many cells are `missing` or cannot be read."""
    found: list[dict[str, Any]] = []
    for column, type in types.items():
        if column not in cells or len(found) == MOST_COLUMNS:
            continue
        if type.ordered:
            document = _numbers(cells[column], type)
        elif type.kind in ("category", "yes/no"):
            document = _values(cells[column])
        else:
            continue
        if document:
            found.append({"name": column, "type": type.kind, **document})
    return found


def _numbers(cells: pl.Series, type: ColumnType) -> dict[str, Any]:
    values = decode(cells, type)
    known = values[~np.isnan(values)]
    if not len(known):
        return {}
    low, high = float(known.min()), float(known.max())
    whole = bool((known == known.round()).all()) and high - low < BARS
    bars = int(high - low) + 1 if whole else BARS
    edges = (low - 0.5, high + 0.5) if whole else (low, high if high > low else low + 1)
    counts, _ = np.histogram(known, bars, edges)
    return {"counts": counts.tolist(), "ends": [show(low, type), show(high, type)], "missing": len(values) - len(known)}


def _values(cells: pl.Series) -> dict[str, Any]:
    counted = cells.drop_nulls().value_counts(sort=True)
    if counted.is_empty():
        return {}
    labels = [str(value) for value in counted.to_series(0).head(VALUES)]
    counts = counted.to_series(1).head(VALUES).to_list()
    if len(counted) > VALUES:
        labels, counts = [*labels[:-1], REST], [*counts[:-1], len(cells) - cells.null_count() - sum(counts[:-1])]
    return {"counts": counts, "labels": labels, "different": len(counted), "missing": cells.null_count()}
