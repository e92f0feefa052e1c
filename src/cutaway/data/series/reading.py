"""A series from a table: rows in the order of time, a step apart, every value there or filled in by a straight line.

What is not so is rejected with the lines, or, with gaps=fill, filled and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...errors import DataError, Problem, SettingError
from ..tables.reading import Table, counted
from .calendar import circles
from .columns import Columns, column_of_series, read_moments, read_numbers
from .times import NUMBER, Clock, Positions, Step, step_of

Values = npt.NDArray[np.float64]

WAY_OUT = (
    "Add what is missing; gaps=fill draws straight lines between neighbours, gaps=skip takes the rows as they follow "
    "one another, as on trading days."
)
MOST_GAPS = 10  # gaps that are named each; more are counted by their length


@dataclass(frozen=True)
class Series:
    """F variables at T steps, one after another."""

    name: str  # of the file
    columns: Columns
    clock: Clock
    values: Values  # (T, F) in the order of columns.names; NaN after `length` in all that is not known in advance
    observed: npt.NDArray[np.bool_]  # (T, F) False where a value was filled in
    length: int  # steps up to the last one measured; those after it hold only what is known in advance
    notes: tuple[str, ...] = ()
    own: str = ""  # its name among several series of the file

    def __len__(self) -> int:
        return self.length


def read_series(
    table: Table, columns: Columns, gaps: str, step: Step | None = None, name: str = "", sort: bool = True
) -> Series:
    """The series in a table, `name` its name among several, and, where `step` is given, one with that step.

    Rows are sorted by time, where `sort` allows it. Raises DataError, naming every line, for cells that are no numbers,
    times that are repeated or between two steps; and for missing steps and values, unless `gaps` is fill, or skip,
    which takes the rows as the steps.
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
        raise DataError(f"{table.title} has {counted(len(times), 'row')}: a series has at least two.")
    own = step_of(times, columns.written)
    if step is not None and own != step and not (own.unit == step.unit == NUMBER and np.isclose(own.size, step.size)):
        raise DataError(
            f"The rows of {table.title} are {own.words} apart, and the model was trained on a series with a step of "
            f"{step.words}.",
            fix="Give a series with that step.",
        )
    if np.isnan(numbers[:, : len(columns.forecast)]).all():
        raise DataError(f"{table.title} has no value in {', '.join(columns.forecast)}: there is nothing to go on from.")
    clock = Clock(float(times[0]), own, columns.written, times if gaps == "skip" else None)
    if gaps == "skip":
        positions = np.arange(len(times))
        if columns.calendar and own.unit != "weekday":
            raise SettingError(
                f"calendar={','.join(columns.calendar)} needs the times of the steps to forecast, and gaps=skip leaves "
                "them open: leave one of them out."
            )
    else:
        positions, astray = own.positions(times)
        _reject_astray(table, columns, times, astray, clock)
    measured = _measured(numbers, columns)
    series = Series(table.name, columns, clock, numbers, ~np.isnan(numbers), measured, notes, name)
    if gaps != "fill":
        _reject_gaps(table, series, positions)
        return _with_calendar(series)
    return _with_calendar(_filled(table, series, positions))


def with_steps_ahead(series: Series, count: int) -> Series:
    """The series with so many steps to come, of which the calendar is all that is known."""
    missing = np.full((count, len(series.columns.given)), np.nan)
    steps = np.arange(series.length, series.length + count)
    ahead = np.hstack([missing, circles(series.clock, steps, series.columns.calendar)])
    values = np.concatenate([series.values[: series.length], ahead])
    return replace(series, values=values, observed=~np.isnan(values))


def _with_calendar(series: Series) -> Series:
    """The series with the parts of the calendar that are asked for as its last variables, known at every step."""
    if not series.columns.calendar:
        return series
    waves = circles(series.clock, np.arange(len(series.values)), series.columns.calendar)
    there = np.ones(waves.shape, bool)
    return replace(series, values=np.hstack([series.values, waves]), observed=np.hstack([series.observed, there]))


def _measured(numbers: Values, columns: Columns) -> int:
    """How many rows there are up to the last one that holds a value of a column to forecast.

    Rows after it are those of the future, where the series has columns that are known in advance.
    """
    if not columns.known:
        return len(numbers)
    there = np.flatnonzero(~np.isnan(numbers[:, : len(columns.forecast)]).all(1))
    return int(there[-1]) + 1


def sorting_note(table: Table, columns: Columns, times: Values, sort: bool = True) -> str:
    """A note that rows are sorted by time. Raises DataError where they may not be, as splits follow one another."""
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


def _reject_repeated(table: Table, columns: Columns, times: Values) -> None:
    """Raise DataError, naming each row, where several have one time; they are sorted."""
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
        named = column_of_series(table, columns.time)
        fix += (
            " Where the file holds several series, one below another, say which column names them: "
            f"id={named or 'COLUMN'}."
        )
    raise DataError(f"{table.title} has several rows of one time:", problems, fix)


def _reject_astray(table: Table, columns: Columns, times: Values, astray: npt.NDArray[np.bool_], clock: Clock) -> None:
    """Raise DataError, naming each row, where a time is not a whole number of steps after the first."""
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
    """Raise DataError, naming each place, where steps or values are missing."""
    clock, names = series.clock, series.columns.given
    problems = []
    after = np.flatnonzero(np.diff(positions) > 1) + 1
    if len(after) > MOST_GAPS:
        problems += _gaps_by_length(table, clock, positions, after)
        after = after[:0]
    for i in after.tolist():
        before, here = int(positions[i - 1]), int(positions[i])
        span = clock.label(before + 1) + (f" to {clock.label(here - 1)}" if here - before > 2 else "")
        problems.append((i, Problem(table.place(i), f"{counted(here - before - 1, 'step')} missing before it: {span}")))
    for i, k in np.argwhere(_missing(series)).tolist():
        problems.append((i, Problem(table.where(i, names[k]), "the value is missing")))
    if problems:
        problems.sort(key=lambda found: found[0])
        raise DataError(f"{table.title} has gaps:", [problem for _, problem in problems], WAY_OUT)


def _gaps_by_length(table: Table, clock: Clock, positions: Positions, after: Positions) -> list[tuple[int, Problem]]:
    """A problem for each length of gaps, which stand before the rows `after`."""
    lengths = positions[after] - positions[after - 1] - 1
    found = []
    for length in np.unique(lengths).tolist():
        rows = after[lengths == length]
        first = int(rows[0])
        words = f"{counted(length, 'step')} missing before {counted(len(rows), 'row')}"
        begin = clock.label(int(positions[first - 1]) + 1)
        found.append((first, Problem(table.place(first), f"{words}, of which this is the first: from {begin}")))
    return found


def _missing(series: Series) -> npt.NDArray[np.bool_]:
    """True (T, F) where a value is missing that should be there: in the future those known in advance alone."""
    missing = ~series.observed
    missing[series.length :, : len(series.columns.given) - len(series.columns.known)] = False
    return missing


def _filled(table: Table, series: Series, positions: Positions) -> Series:
    """The series with a row for every step and a value in each, on straight lines between their neighbours in time.

    Raises DataError where there is no neighbour, or more is missing than there is.
    """
    steps, variables = int(positions[-1]) + 1, series.values.shape[1]
    length = int(positions[series.length - 1]) + 1
    inserted = steps - len(positions)
    if inserted > len(positions):
        raise DataError(
            f"{table.title} has {len(positions):,} rows, and {inserted:,} steps of {series.clock.step.words} are "
            "missing between them: more than there is to fill them from.",
            fix="Is a time wrong, or the step? Give the series from the gap on, or bring it to a longer step; "
            "gaps=skip takes the rows as they follow one another, as on trading days.",
        )
    notes = []
    if inserted:
        at = np.flatnonzero(np.diff(positions) > 1)
        first = series.clock.label(int(positions[at[0]]) + 1)
        notes.append(f"{counted(inserted, 'missing step')} of {table.title}, the first at {first}, filled in.")
    problems = []
    values = np.full((steps, variables), np.nan)
    observed = np.zeros((steps, variables), bool)
    for k, name in enumerate(series.columns.given):
        known = name in series.columns.known
        rows = len(positions) if known else series.length
        end = steps if known else length
        there = np.flatnonzero(series.observed[:rows, k])
        problems += [
            Problem(table.where(edge, name), f"the value is missing, and there is none {word} it to draw a line from")
            for edge, word in ((0, "before"), (rows - 1, "after"))
            if edge not in there
        ]
        if problems:
            continue
        values[:end, k] = np.interp(np.arange(end), positions[there], series.values[there, k])
        observed[positions[there], k] = True
        cells = rows - len(there)
        if cells:
            notes.append(f"{counted(cells, 'missing value')} of column {name} filled in.")
    if problems:
        raise DataError(
            f"{table.title} has gaps at its ends:",
            problems,
            "Begin the file where every column has a value, and end it there; or leave a column out with ignore=.",
        )
    if notes:
        notes.append(
            "What was filled in lies on a straight line between its neighbours in time. It is never a target, and no "
            "forecast begins right after it, where it would lean on what is to be forecast."
        )
    return replace(series, values=values, observed=observed, length=length, notes=(*series.notes, *notes))


def _cell(table: Table, columns: Columns, i: int) -> str:
    """The time of row i as the person wrote it."""
    return str(table.frame[str(columns.time)][i])
