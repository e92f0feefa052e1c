"""Distribution of each column over the training rows: counts between bin edges, or of each value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from .column_types import ColumnType, decode, format_cell

MOST_COLUMNS = 200
BARS = 24
VALUES = 6  # categories counted by name; the others are combined
REST = "all others"


def distributions(cells: Mapping[str, pl.Series], types: Mapping[str, ColumnType]) -> list[dict[str, Any]]:
    """Return one document for each column of numbers, dates, yes/no or categories.

    It has `counts` with the `ends` of the range that they divide evenly, or with `labels`, and the number of `missing`
    or unreadable cells.
    """
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
    known = values[np.isfinite(values)]
    if not len(known):
        return {}
    low, high = float(known.min()), float(known.max())
    whole = bool((known == known.round()).all()) and high / 2 - low / 2 < BARS / 2
    counts = np.bincount((known - low).astype(np.int64)) if whole else histogram(known, BARS)
    return {
        "counts": counts.tolist(),
        "ends": [format_cell(low, type), format_cell(high, type)],
        "missing": len(values) - len(known),
    }


def histogram(values: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """Count finite values in equal bins from the smallest to the largest.

    `np.histogram` raises if a bin is narrower than the distance of two floats, or if the range exceeds the largest
    float. It therefore gets the relative position of each value, 0 to 1, computed from halves.
    """
    half = values / 2
    low, span = half.min(), half.max() - half.min()
    counts, _ = np.histogram((half - low) / (span or 1.0), bins, (0, 1))
    return counts


def _values(cells: pl.Series) -> dict[str, Any]:
    counted = cells.drop_nulls().value_counts(sort=True)
    if counted.is_empty():
        return {}
    labels = [str(value) for value in counted.to_series(0).head(VALUES)]
    counts = counted.to_series(1).head(VALUES).to_list()
    if len(counted) > VALUES:
        labels, counts = [*labels[:-1], REST], [*counts[:-1], len(cells) - cells.null_count() - sum(counts[:-1])]
    return {"counts": counts, "labels": labels, "different": len(counted), "missing": cells.null_count()}
