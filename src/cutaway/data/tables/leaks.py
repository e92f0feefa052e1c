"""Detection of columns that alone determine the target: often copies of it, or known only after it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from ..findings import Finding
from ..splits import Rows
from .column_types import ColumnType, decode
from .targets import NUMBER, Labels

ROWS = 20  # with fewer, it may be chance
ROWS_OF_NUMBERS = 100  # the same for unique numbers, along which classes may be ordered by chance
COVERED = 0.5  # minimum fraction of rows with an informative value
WRONG = 0.002  # maximum fraction of errors among rows outside the majority class
MINORITY = 5  # minimum rows outside the majority class
LIKE = 0.9999  # squared correlation from which a column is the target in other units
FEW = 20  # maximum values of a category; a column with more may identify the subject of a row

Codes = npt.NDArray[np.int64]


def find_leaks(
    labels: Labels, cells: Mapping[str, pl.Series], types: Mapping[str, ColumnType], rows: Rows
) -> list[str]:
    """Return a finding for each input column that alone determines the target of `rows`, if there are other inputs.

    `cells` are the stripped input columns of the whole table.
    """
    if len(cells) < 2:
        return []
    target = labels.cells.gather(rows)
    codes = target.rank("dense").cast(pl.Int64).to_numpy() - 1
    values = decode(target, NUMBER) if labels.numeric else None
    found: list[str] = []
    for column, of_table in cells.items():
        own, type = of_table.gather(rows), types[column]
        there = own.is_not_null().to_numpy()
        if there.sum() < max(ROWS, COVERED * len(rows)):
            continue
        told = _value_leak(own.filter(pl.Series(there)), codes[there], len(rows))
        numbers = decode(own, type) if type.ordered else None
        if told is None and numbers is not None:
            told = _number_leak(numbers, codes) if values is None else _scale_leak(numbers, values, type)
        if told is not None:
            right, of, about = told
            found.append(Finding(_leak_message(column, labels.column, right, of, about)))
    return found


def _value_leak(cells: pl.Series, codes: Codes, rows: int) -> tuple[int, int, bool] | None:
    """Return how many rows the most frequent target of their cell predicts, of how many rows with a repeated cell, and
    whether the column has too many values for a category; None if that is no leak."""
    own = cells.rank("dense").cast(pl.Int64).to_numpy() - 1
    pairs, counts = np.unique(own * (codes.max() + 1) + codes, return_counts=True)
    of_value = np.bincount(own)
    best = np.zeros(len(of_value), np.int64)
    np.maximum.at(best, pairs // (codes.max() + 1), counts)
    repeated = of_value > 1
    covered = int(of_value[repeated].sum())
    wrong = covered - int(best[repeated].sum())
    minority = covered - int(np.bincount(codes[repeated[own]]).max(initial=0))
    if covered < max(ROWS, COVERED * rows) or minority < MINORITY or wrong > WRONG * minority:
        return None
    return covered - wrong, covered, len(of_value) > FEW


def _number_leak(numbers: npt.NDArray[np.float64], codes: Codes) -> tuple[int, int, bool] | None:
    """Return, as `_value_leak`, the rows of a column in which each class has its own range of numbers."""
    there = ~np.isnan(numbers)
    if there.sum() < max(ROWS_OF_NUMBERS, COVERED * len(numbers)):
        return None
    order = np.lexsort((codes[there], numbers[there]))
    sorted_codes, sorted_numbers = codes[there][order], numbers[there][order]
    change = np.diff(sorted_codes) != 0
    tied = change & (np.diff(sorted_numbers) == 0)
    counts = np.unique(sorted_codes, return_counts=True)[1]
    if tied.any() or change.sum() + 1 != len(counts) or len(counts) < 2 or counts.min() < MINORITY:
        return None
    return len(sorted_codes), len(sorted_codes), False


def _scale_leak(
    numbers: npt.NDArray[np.float64], values: npt.NDArray[np.float64], type: ColumnType
) -> tuple[int, int, bool] | None:
    """Return, as `_value_leak`, the rows of numbers that are the target in other units, or monotonic in it."""
    there = ~(np.isnan(numbers) | np.isnan(values))
    x, y = numbers[there], values[there]
    if len(x) < max(ROWS, COVERED * len(numbers)) or len(np.unique(x)) <= FEW:
        return None
    ranks = [pl.Series(v).rank("average").to_numpy() for v in (x, y)]
    pairs = [(x, y)] if type.kind == "date" else [(x, y), (ranks[0], ranks[1])]  # many quantities grow with time
    for a, b in pairs:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            like = np.corrcoef(a, b)[0, 1] ** 2
        if like >= LIKE:
            return len(x), len(x), False
    return None


def _leak_message(column: str, target: str, right: int, of: int, about: bool) -> str:
    group = f"; if it says who or what a row is about, group={column} keeps its rows in one split" if about else ""
    return (
        f"Column {column} alone gives the target {target} in {right:,} of {of:,} rows. If it is made from the target, "
        f"or is not known when the model is to answer, leave it out: ignore={column}{group}."
    )
