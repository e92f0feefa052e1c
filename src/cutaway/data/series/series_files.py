"""Series in tables: one, or several in long format (one row for each series and time).

Rows must be sorted by time, evenly spaced and without missing values. Other rows are rejected with their line numbers
or, with gaps=fill, interpolated and counted.

Each series has its own mean and standard deviation, as in global forecasting models (GluonTS, NeuralForecast's local
scaling); otherwise the series of the largest scale would dominate the loss. Covariates known in advance have one scale
for all series. No window spans two series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ...core.errors import (
    DataError,
    DataMismatchError,
    IncompatibleSettingError,
    NotEnoughDataError,
    Problem,
    join,
)
from ..findings import leave_out
from ..splits import Rows
from ..tables.table_files import Table, format_count
from .column_roles import (
    NUMBER,
    Clock,
    ColumnRoles,
    Positions,
    Step,
    calendar_features,
    find_series_column,
    infer_step,
    read_moments,
    read_numbers,
)

Values = npt.NDArray[np.float64]

WAY_OUT = (
    "Add the missing steps; gaps=fill draws straight lines between neighbours, gaps=skip takes the rows as they follow "
    "one another, as on trading days."
)
MOST_GAPS = 10  # gaps that are listed one by one; more are counted by length


@dataclass(frozen=True)
class Series:
    """F variables at T consecutive steps."""

    name: str  # file name
    columns: ColumnRoles
    clock: Clock
    values: Values  # (T, F) in the order of columns.names; after `length` NaN except in variables known in advance
    observed: npt.NDArray[np.bool_]  # (T, F) False where a value was filled in
    length: int  # steps up to the last measured one; later steps hold only variables known in advance
    notes: tuple[str, ...] = ()
    own: str = ""  # its name among several series of the file

    def __len__(self) -> int:
        return self.length


def read_series(
    table: Table, columns: ColumnRoles, gaps: str, step: Step | None = None, name: str = "", sort: bool = True
) -> Series:
    """Read the series of a table, with the step `step` if that is given.

    `name` is its name among several series. Rows are sorted by time if `sort` allows it. Raises DataError, naming every
    line, for cells that are not numbers, repeated times and times between two steps; also for missing steps and values,
    unless `gaps` is fill, or skip, which treats rows as steps.
    """
    numbers = read_numbers(table, columns)
    times = read_moments(table, columns)
    order = np.argsort(times, kind="stable")
    notes: tuple[str, ...] = ()
    if (np.diff(times) < 0).any():
        notes = (sorting_note(table, columns, times, sort),)
        table, numbers, times = table.take(order), numbers[order], times[order]
    _reject_repeated(table, columns, times)
    if len(times) < 2:
        raise NotEnoughDataError(f"{table.title} has {format_count(len(times), 'row')}: a series has at least two.")
    own = infer_step(times, columns.written)
    if step is not None and own != step and not (own.unit == step.unit == NUMBER and np.isclose(own.size, step.size)):
        raise DataMismatchError(
            f"The rows of {table.title} are {own.words} apart, and the model was trained on a series with a step of "
            f"{step.words}.",
            fix="Give a series with that step.",
        )
    if np.isnan(numbers[:, : len(columns.forecast)]).all():
        raise NotEnoughDataError(
            f"{table.title} has no value in {', '.join(columns.forecast)}: there is nothing to go on from."
        )
    clock = Clock(float(times[0]), own, columns.written, times if gaps == "skip" else None)
    if gaps == "skip":
        positions = np.arange(len(times))
        if columns.calendar and own.unit != "weekday":
            raise IncompatibleSettingError(
                f"calendar={','.join(columns.calendar)} needs the times of the steps to forecast, and gaps=skip leaves "
                "them open: leave one of them out."
            )
    else:
        positions, astray = own.positions(times)
        _reject_astray(table, columns, times, astray, clock)
    measured = _count_measured(numbers, columns)
    series = Series(table.name, columns, clock, numbers, ~np.isnan(numbers), measured, notes, name)
    if gaps != "fill":
        _reject_gaps(table, series, positions)
        return _with_calendar(series)
    return _with_calendar(_fill_gaps(table, series, positions))


def extend_by_steps(series: Series, count: int) -> Series:
    """Extend the series by `count` future steps, of which only calendar features are known."""
    missing = np.full((count, len(series.columns.given)), np.nan)
    steps = np.arange(series.length, series.length + count)
    ahead = np.hstack([missing, calendar_features(series.clock, steps, series.columns.calendar)])
    values = np.concatenate([series.values[: series.length], ahead])
    return replace(series, values=values, observed=~np.isnan(values))


def _with_calendar(series: Series) -> Series:
    """Append the requested calendar features as the last variables, known at every step."""
    if not series.columns.calendar:
        return series
    waves = calendar_features(series.clock, np.arange(len(series.values)), series.columns.calendar)
    there = np.ones(waves.shape, bool)
    return replace(series, values=np.hstack([series.values, waves]), observed=np.hstack([series.observed, there]))


def _count_measured(numbers: Values, columns: ColumnRoles) -> int:
    """Return the number of rows up to the last one with a value in a forecast column.

    Later rows are future steps, if the series has columns that are known in advance.
    """
    if not columns.known:
        return len(numbers)
    there = np.flatnonzero(~np.isnan(numbers[:, : len(columns.forecast)]).all(1))
    return int(there[-1]) + 1


def sorting_note(table: Table, columns: ColumnRoles, times: Values, sort: bool = True) -> str:
    """Return a note that rows are sorted by time.

    Raises DataError if sorting is not allowed, as splits are consecutive.
    """
    if not sort:
        i = int(np.flatnonzero(np.diff(times) < 0)[0]) + 1
        raise DataError(
            f"The times of {table.title} do not increase from row to row: {table.place(i)} has "
            f"{_cell(table, columns, i)}, and the row before it {_cell(table, columns, i - 1)}.",
            fix="val and test follow train in time: sort the rows of each by time, the oldest first.",
        )
    backwards = bool((np.diff(times) <= 0).all())
    how = "stand newest first" if backwards else "are not in the order of time"
    return f"The rows of {table.title} {how}: they are sorted by column {columns.time}."


def _reject_repeated(table: Table, columns: ColumnRoles, times: Values) -> None:
    """Raise DataError that names each row if several sorted rows have the same time."""
    again = np.flatnonzero(np.diff(times) == 0) + 1
    if not len(again):
        return
    first = np.searchsorted(times, times[again])
    problems = [
        Problem(
            table.where(i, str(columns.time)),
            f"the time {_cell(table, columns, i)} is repeated: it is that of {table.place(k)} too",
        )
        for i, k in zip(again.tolist(), first.tolist())
    ]
    fix = "Keep one row for each time."
    if len(again) > len(times) // 3:
        named = find_series_column(table, columns.time)
        fix += (
            " Where the file holds several series, one below another, say which column names them: "
            f"id={named or 'COLUMN'}."
        )
    raise DataError(f"{table.title} has several rows of one time:", problems, fix)


def _reject_astray(
    table: Table, columns: ColumnRoles, times: Values, astray: npt.NDArray[np.bool_], clock: Clock
) -> None:
    """Raise DataError that names each row whose time is not a whole number of steps after the first."""
    if astray.any():
        raise DataError(
            f"The rows of {table.title} are not evenly spaced: most are {clock.step.words} apart, and these are not "
            f"a whole number of that after {clock.label(0)}:",
            [
                Problem(table.where(i, str(columns.time)), _cell(table, columns, i))
                for i in np.flatnonzero(astray).tolist()
            ],
            "A series has one step: bring the rows to one, by means or by the last value of each; gaps=skip takes the "
            "rows as they follow one another.",
        )


def _reject_gaps(table: Table, series: Series, positions: Positions) -> None:
    """Raise DataError that names each place with missing steps or values."""
    clock, names = series.clock, series.columns.given
    problems = []
    after = np.flatnonzero(np.diff(positions) > 1) + 1
    if len(after) > MOST_GAPS:
        problems += _gaps_by_length(table, clock, positions, after)
        after = after[:0]
    for i in after.tolist():
        before, here = int(positions[i - 1]), int(positions[i])
        span = clock.label(before + 1) + (f" to {clock.label(here - 1)}" if here - before > 2 else "")
        problems.append(
            (i, Problem(table.place(i), f"{format_count(here - before - 1, 'step')} missing before it: {span}"))
        )
    for i, k in np.argwhere(_missing(series)).tolist():
        problems.append((i, Problem(table.where(i, names[k]), "the value is missing")))
    if problems:
        problems.sort(key=lambda found: found[0])
        raise DataError(f"{table.title} has gaps:", [problem for _, problem in problems], WAY_OUT)


def _gaps_by_length(table: Table, clock: Clock, positions: Positions, after: Positions) -> list[tuple[int, Problem]]:
    """Return a problem for each gap length, for gaps before the rows `after`."""
    lengths = positions[after] - positions[after - 1] - 1
    found = []
    for length in np.unique(lengths).tolist():
        rows = after[lengths == length]
        first = int(rows[0])
        words = f"{format_count(length, 'step')} missing before {format_count(len(rows), 'row')}"
        begin = clock.label(int(positions[first - 1]) + 1)
        found.append((first, Problem(table.place(first), f"{words}, of which this is the first: from {begin}")))
    return found


def _missing(series: Series) -> npt.NDArray[np.bool_]:
    """Return True (T, F) where a value is missing; in the future only variables known in advance count."""
    missing = ~series.observed
    missing[series.length :, : len(series.columns.given) - len(series.columns.known)] = False
    return missing


def _fill_gaps(table: Table, series: Series, positions: Positions) -> Series:
    """Insert a row for every step and interpolate missing values linearly in time.

    Raises DataError if there is no neighbor, or more values are missing than present.
    """
    steps, variables = int(positions[-1]) + 1, series.values.shape[1]
    length = int(positions[series.length - 1]) + 1
    inserted = steps - len(positions)
    if inserted > len(positions):
        raise NotEnoughDataError(
            f"{table.title} has {len(positions):,} rows, and {inserted:,} steps of {series.clock.step.words} are "
            "missing between them: more than there is to fill them from.",
            fix="Is a time wrong, or the step? Give the series from the gap on, or bring it to a longer step; "
            "gaps=skip takes the rows as they follow one another, as on trading days.",
        )
    notes = []
    if inserted:
        at = np.flatnonzero(np.diff(positions) > 1)
        first = series.clock.label(int(positions[at[0]]) + 1)
        notes.append(f"{format_count(inserted, 'missing step')} of {table.title}, the first at {first}, filled in.")
    problems = []
    values = np.full((steps, variables), np.nan)
    observed = np.zeros((steps, variables), bool)
    for k, name in enumerate(series.columns.given):
        known = name in series.columns.known
        rows = len(positions) if known else series.length
        end = steps if known else length
        there = np.flatnonzero(series.observed[:rows, k])
        problems += [
            Problem(table.where(edge, name), f"the value is missing, and no value {word} it to interpolate from")
            for edge, word in ((0, "before"), (rows - 1, "after"))
            if edge not in there
        ]
        if problems:
            continue
        values[:end, k] = np.interp(np.arange(end), positions[there], series.values[there, k])
        observed[positions[there], k] = True
        cells = rows - len(there)
        if cells:
            notes.append(f"{format_count(cells, 'missing value')} of column {name} filled in.")
    if problems:
        raise DataError(
            f"{table.title} has gaps at its ends:",
            problems,
            "Begin the file where every column has a value, and end it there; or leave a column out with ignore=.",
        )
    if notes:
        notes.append(
            "Filled values are interpolated linearly between their neighbours in time. They are never a target, and no "
            "forecast begins right after one, where it would use the values to be forecast."
        )
    return replace(series, values=values, observed=observed, length=length, notes=(*series.notes, *notes))


def _cell(table: Table, columns: ColumnRoles, i: int) -> str:
    """Return the time of row i as text from the table."""
    return str(table.frame[str(columns.time)][i])


MOST_NAMED = 5  # series listed in a note
FIX = "Fix their rows; in training missing=drop leaves those series out, and gaps=fill fills their missing values."
Scale = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each variable


@dataclass(frozen=True)
class SeriesScales:
    """The series that each window of a split belongs to, and the scale of each series."""

    names: tuple[str, ...]
    which: Tensor  # (n,) the series index of each window
    begins: Tensor  # (S,) the first step of each series in the concatenated tensor
    mean: Tensor  # (S, F) float64, of each variable, the C forecast variables first
    std: Tensor  # (S, F) float64
    columns: int  # C

    def scales(self, index: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Return the mean and the standard deviation of each variable, (N, F) each, for these windows."""
        return self.mean[self.which[index]], self.std[self.which[index]]

    def inverse_transform(self, standardised: Tensor, index: Tensor | slice = slice(None)) -> Tensor:
        """Convert outputs or targets (N, H·C) of these windows from each series' scale to the columns' units."""
        mean, std = (x[:, None, : self.columns].to(standardised.device) for x in self.scales(index))  # (N, 1, C)
        steps = standardised.double().view(len(mean), -1, self.columns)  # (N, H, C)
        return (steps * std + mean).flatten(1)


@dataclass(frozen=True)
class SeriesWindows:
    """Windows of several series, sorted by the start of their forecast, then by series."""

    all_of_them: Sequence[Series]
    which: npt.NDArray[np.int64]  # (n,) the series index of each window
    starts: Rows  # (n,) the step of that series at which the forecast starts

    @classmethod
    def from_starts(cls, all_of_them: Sequence[Series], starts: Sequence[Rows]) -> SeriesWindows:
        """Create the windows whose forecasts start at these steps of each series."""
        which = np.repeat(np.arange(len(starts)), [len(own) for own in starts])
        times = [series.clock.moment(p) for series, own in zip(all_of_them, starts) for p in own]
        order = np.lexsort((which, np.array(times)))
        return cls(all_of_them, which[order], np.concatenate(list(starts))[order])

    @cached_property
    def begins(self) -> npt.NDArray[np.int64]:
        """Return the first step of each series in the concatenation, (S,)."""
        ends = np.cumsum([len(series.values) for series in self.all_of_them])
        return np.concatenate([[0], ends[:-1]]).astype(np.int64)

    @property
    def places(self) -> Rows:
        """Return the steps at which forecasts start in the concatenation, (n,)."""
        return self.begins[self.which] + self.starts

    def label(self, i: int) -> str:
        """Return the display name of window i: A, from 2024-03-01."""
        series = self.all_of_them[int(self.which[i])]
        return (f"{series.own}, " if series.own else "") + f"from {series.clock.label(int(self.starts[i]))}"

    def last(self, count: int | None) -> SeriesWindows:
        """Return the last `count` windows, or all."""
        return self if count is None else SeriesWindows(self.all_of_them, self.which[-count:], self.starts[-count:])


def read_several(
    table: Table,
    columns: ColumnRoles,
    gaps: str,
    missing: str,
    step: Step | None = None,
    check: Callable[[Series], None] = lambda series: None,
) -> tuple[list[Series], list[str]]:
    """Read all series of a table, in the order of their first rows.

    Args:
        table: The table; without `columns.id` it holds one series.
        columns: The role of each column.
        gaps: Handling of missing steps and values, as in `read_series`.
        missing: With "drop", series that cannot be read or that `check` rejects are left out.
        step: The step that every series must have. None uses the step of the first series.
        check: Raises DataError for a series that cannot be used.

    Returns:
        The series, and notes on those that are left out.

    Raises:
        DataError: As `read_series`, with the name of the series, unless it is left out; if no series is left; if rows
            have no name; if the series differ in their steps.
    """
    if columns.id is None:
        series = read_series(table, columns, gaps, step)
        check(series)
        return [series], []
    if columns.id not in table.columns:
        raise DataMismatchError(
            f"{table.title} has no column {columns.id!r}, which says what series a row is of.",
            fix="A file to be forecast has the columns that the model was trained with, by the same names.",
        )
    cells = table.text(columns.id)
    nameless = np.flatnonzero(cells.is_null().to_numpy()).tolist()
    if nameless:
        raise DataError(
            f"{table.title} has rows that do not say what series they are of:",
            [Problem(table.where(i, columns.id), "it is empty") for i in nameless],
            f"Every row has its {columns.id}.",
        )
    found: list[Series] = []
    errors: list[tuple[str, DataError]] = []
    names, numbers = cells.to_numpy(), np.arange(len(table))
    every, times = cells.unique(maintain_order=True).to_list(), read_moments(table, columns)
    notes: tuple[str, ...] = ()
    if any((np.diff(times[names == name]) < 0).any() for name in every):
        order = np.argsort(times, kind="stable")
        notes = (sorting_note(table, columns, times),)
        table, names = table.take(order), names[order]
    for name in every:
        rows = numbers[names == name]
        own = replace(table.take(rows), name=f"{table.title} ({columns.id} {name})", parts=())
        try:
            series = read_series(own, columns, gaps, step, name)
            if found and series.clock.step != found[0].clock.step:
                raise DataError(
                    f"The series of {table.title} are of different steps: the rows of {found[0].own} are "
                    f"{found[0].clock.step.words} apart, those of {name} {series.clock.step.words}.",
                    fix="Bring all to one step, or train on those of one step at a time.",
                )
            check(series)
            found.append(series if found else replace(series, notes=(*notes, *series.notes)))
        except DataError as error:
            errors.append((name, error))
    if len(errors) == 1 and missing != "drop":
        only = errors[0][1]
        only.args = (f"{only} In training missing=drop leaves this series out.",)
        raise only
    causes = [(name, str(error.problems[0] if error.problems else error)) for name, error in errors]
    problems = [Problem(f"{columns.id} {name}", cause.rstrip(".")) for name, cause in causes]
    return found, leave_out(problems, len(every), f"series of {table.title}", missing, FIX)


def keep_long_series(found: Sequence[Series], needed: int, title: str, missing: str) -> tuple[list[Series], list[str]]:
    """Return the series with at least `needed` steps, and a note on the others if missing=drop.

    Raises DataError that names the short series otherwise, or if no series is left.
    """
    short = [series for series in found if series.length < needed]
    left = [series for series in found if series.length >= needed]
    if short and (missing != "drop" or not left):
        raise NotEnoughDataError(
            f"{len(short):,} of the {len(found):,} series of {title} have fewer than {needed:,} steps: a lookback, "
            "and a horizon for each split.",
            [
                Problem(
                    series.own,
                    f"{format_count(series.length, 'step')}, {series.clock.label(0)} to "
                    f"{series.clock.label(series.length - 1)}",
                )
                for series in short
            ],
            "missing=drop leaves them out; or give a shorter lookback= or horizon=, val=0 or test=0.",
        )
    if not short:
        return left, []
    some = join([series.own for series in short[:MOST_NAMED]], "and")
    more = f" and {len(short) - MOST_NAMED:,} more" if len(short) > MOST_NAMED else ""
    return left, [f"Left out: {some}{more}, {len(short):,} of {len(found):,} series: fewer than {needed:,} steps."]


def compute_scale(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Compute mean and standard deviation of each variable of (T, F), ignoring NaN.

    A constant variable, with a standard deviation of 0 up to rounding, is scaled by 1 % of its absolute value, so that
    a network whose outputs are near 0 forecasts that value in any unit; a variable of zeros is not scaled.
    """
    mean, std = np.nanmean(values, 0), np.nanstd(values, 0)
    return mean, np.where(std > 1e-12 * np.abs(mean), std, np.where(mean == 0, 1.0, 0.01 * np.abs(mean)))
