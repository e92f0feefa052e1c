"""Encoders fitted block by block without keeping the rows, with the same result as `encoders.fit_encoder`.

Counts, categories and order statistics (the median, the points of a quantile curve) are exact. Mean and standard
deviation are accumulated block by block and equal up to rounding (T. Chan, G. Golub, R. LeVeque, Updating formulae and
a pairwise algorithm for computing sample variances, 1979).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import Problem
from .column_types import ColumnType, Numbers, decode, explain_unreadable, strip_missing, unreadable_mask
from .encoders import QUANTILES, Category, Curve, Encoder, Numeric, most_frequent, quantile_curve, standard_scale
from .parquet import EXACT, RowGroups
from .quantiles import Selection
from .table_files import text_frame

NAMED = 1000  # unreadable cells kept by name; more are only counted
Rows = npt.NDArray[np.int64]
Block = tuple[Rows, dict[str, pl.Series]]  # rows of a block, and their cells by column


def read_cells(groups: RowGroups, frame: pl.DataFrame, types: Mapping[str, ColumnType]) -> dict[str, pl.Series]:
    """Return the cells of these columns by their types. Columns of numbers are not converted to text and back, which
    would give the same numbers."""
    found = {}
    for column, type in types.items():
        cells = frame[column]
        if type.kind == "number" and cells.dtype in EXACT:
            found[column] = cells.cast(pl.Float64).fill_nan(None)
        else:
            found[column] = strip_missing(
                text_frame(cells.to_frame(), groups.path.name).to_series(), groups.form.missing
            )
    return found


def iterate_blocks(groups: RowGroups, rows: Rows, types: Mapping[str, ColumnType]) -> Iterator[Block]:
    """Yield the cells of these sorted rows block by block."""
    for first, frame in groups.frames(list(types)):
        own = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + frame.height)]
        if len(own):
            yield own, read_cells(groups, frame[own - first], types)


@dataclass
class UnreadableCells:
    """Cells that are not of their column's type."""

    count: int = 0
    rows: list[Rows] = field(default_factory=list)  # their rows
    problems: list[Problem] = field(default_factory=list)  # the first of them, by name


def unread_cells(groups: RowGroups, rows: Rows, types: Mapping[str, ColumnType]) -> UnreadableCells:
    """Return the cells of these rows that are not of their column's type."""
    found = UnreadableCells()
    for own, cells in iterate_blocks(groups, rows, types):
        for column, type in types.items():
            bad = np.flatnonzero(unreadable_mask(cells[column], type))
            found.count += len(bad)
            if len(bad):
                found.rows.append(own[bad])
            for i in bad[: NAMED - len(found.problems)].tolist():
                where = f"{groups.place(int(own[i]))}, column {column}"
                found.problems.append(Problem(where, explain_unreadable(str(cells[column][i]), type)))
    return found


def fit_encoders(groups: RowGroups, rows: Rows, types: Mapping[str, ColumnType], scale: str) -> list[Encoder | None]:
    """Return the encoder of each column, fitted on the cells of these rows; None if no cell can be read."""
    fits = {
        column: _Categories() if type.kind == "category" else _Numbers(type, scale) for column, type in types.items()
    }
    open_ = dict(fits)
    while open_:
        for _, cells in iterate_blocks(groups, rows, {column: types[column] for column in open_}):
            for column, fit in open_.items():
                fit.see(cells[column])
        open_ = {column: fit for column, fit in open_.items() if not fit.end_pass()}
    return [fit.encoder(column) for column, fit in fits.items()]


class _Categories:
    """Counts of each value."""

    def __init__(self) -> None:
        self.counts = pl.DataFrame(schema={"value": pl.String, "count": pl.UInt32})
        self.missing = False

    def see(self, cells: pl.Series) -> None:
        own = cells.drop_nulls().alias("value").value_counts(name="count").with_columns(pl.col("count").cast(pl.UInt32))
        self.counts = pl.concat([self.counts, own]).group_by("value").agg(pl.col("count").sum())
        self.missing |= cells.null_count() > 0

    def end_pass(self) -> bool:
        return True

    def encoder(self, name: str) -> Category | None:
        return most_frequent(name, self.counts, self.missing) if self.counts.height else None


class _Numbers:
    """Mean and standard deviation from the first pass; order statistics from as many passes as needed."""

    def __init__(self, type: ColumnType, scale: str) -> None:
        self.type, self.scale = type, scale
        self.cells = self.count = 0
        self.mean = self.squares = 0.0  # Σ (x − mean)²
        self.fractions = False
        self.selection: Selection | None = None

    def see(self, cells: pl.Series) -> None:
        values = decode(cells, self.type)
        known = values[~np.isnan(values)]
        if self.selection is not None:
            self.selection.see(known)
            return
        self.cells += len(values)
        if not len(known):
            return
        self.fractions |= bool((known % 1).any())
        mean, total = float(known.mean()), self.count + len(known)
        apart = mean - self.mean
        self.squares += float(((known - mean) ** 2).sum()) + apart**2 * self.count * len(known) / total
        self.mean += apart * len(known) / total
        self.count = total

    def end_pass(self) -> bool:
        if self.selection is None:
            self.selection = Selection(np.unique(np.concatenate([self._middle(), *self._points()[1:]])))
            return not self.count
        self.selection.end_pass()
        return self.selection.done

    def encoder(self, name: str) -> Numeric | None:
        if not self.count:
            return None
        median = float(self._at(self._middle()).mean())
        mean, std = 0.0, 1.0
        curve: Curve = ()
        if self.scale == "standard":
            mean, std = standard_scale(self.mean, float(np.sqrt(self.squares / self.count)))
        elif self.scale == "quantile":
            fractions, below, above = self._points()
            part = self.count * fractions - 0.5 - below  # interpolation weight of Hazen's definition
            curve = quantile_curve(self._at(below) + (self._at(above) - self._at(below)) * part, fractions)
        return Numeric.of(name, self.type, median, self.count < self.cells, mean, std, curve, self.fractions)

    def _middle(self) -> Rows:
        """Return the ranks of the one or two middle numbers."""
        return np.array([(self.count - 1) // 2, self.count // 2])[: 2 if self.count else 0]

    def _points(self) -> tuple[Numbers, Rows, Rows]:
        """Return the fractions of the curve, and the ranks of the two numbers around each."""
        count = min(QUANTILES, self.count) if self.scale == "quantile" else 0
        fractions = (np.arange(count) + 0.5) / max(1, count)
        below = np.floor(self.count * fractions - 0.5).astype(np.int64).clip(0, max(0, self.count - 1))
        return fractions, below, (below + 1).clip(max=max(0, self.count - 1))

    def _at(self, ranks: Rows) -> Numbers:
        assert self.selection is not None
        return self.selection.values[np.searchsorted(self.selection.ranks, ranks)]
