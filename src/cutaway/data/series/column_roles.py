"""Roles of the columns of a series: time, forecast targets, past and known covariates.

Time columns of series: formats, the step between rows, the time of any step, and calendar features.

A step is a time span (15 minutes, a day), a number of months, of working days or of the unit of a numeric column, or a
row if there is no time column.

Calendar features are the hour, weekday and month of each step in cyclic encoding: sin(2π u) and cos(2π u), with u the
elapsed fraction of the day, the week or the year. 23:00 and midnight are close.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import (
    ColumnError,
    DataError,
    DataMismatchError,
    IncompatibleSettingError,
    MissingSettingError,
    Problem,
    SettingError,
    UnknownName,
    shorten,
)
from ...core.schema import from_document
from ..settings import DataSettings
from ..tables.column_roles import find_column, find_columns, reject_units
from ..tables.column_types import (
    COMPACT,
    DATES,
    MOSTLY,
    ColumnType,
    decode,
    explain_unreadable,
    infer_type,
    is_yes_no,
    to_moments,
    unreadable_mask,
)
from ..tables.table_files import Table


@dataclass(frozen=True)
class ColumnRoles:
    """The columns of a series by role. Variables are ordered as forecast, past, known."""

    time: str | None  # the time column; None if rows are counted
    written: str  # time format: one of times.FORMATS, NUMBER or ROW
    forecast: tuple[str, ...]
    past: tuple[str, ...] = ()  # known up to the time of the forecast
    known: tuple[str, ...] = ()  # known in advance too
    words: dict[str, str] = field(default_factory=dict)  # for columns of two words, the words for 1 and 0: yes/no
    id: str | None = None  # the column that identifies one of several series
    calendar: tuple[str, ...] = ()  # calendar features from the time column: hour, weekday, month

    @property
    def names(self) -> tuple[str, ...]:
        """Return all F variables in their order."""
        return (*self.given, *calendar_names(self.calendar))

    @property
    def given(self) -> tuple[str, ...]:
        """Return the variables that are columns of the table."""
        return (*self.forecast, *self.past, *self.known)

    @property
    def ahead(self) -> tuple[str, ...]:
        """Return the variables known in advance, which are the last ones."""
        return (*self.known, *calendar_names(self.calendar))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ColumnRoles:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        found = from_document(cls, data)
        if not found.forecast or not set(found.calendar) <= set(PARTS):
            raise ValueError("it has no column to forecast, or an unknown calendar feature")
        if found.written not in (*FORMATS, NUMBER, ROW):
            raise ValueError(f"times are written as {shorten(found.written)}, which is not known here")
        if not all(isinstance(words, str) and is_yes_no(words) for words in found.words.values()):
            raise ValueError("the words of a yes/no column are none")
        return found


def choose_columns(table: Table, settings: DataSettings) -> ColumnRoles:
    """Assign columns to roles by the settings. All other numeric columns are past covariates.

    Raises UnknownName for a column that does not exist, SettingError for one with two roles, DataError for a column
    that holds neither numbers nor times.
    """
    if not settings.forecast:
        raise MissingSettingError(f"{table.title} is to be forecast, and no column is named: give forecast=COLUMN.")
    of_many = ("forecast", "known_future", "ignore")
    lists: dict[str, Any] = {key: find_columns(table, key, getattr(settings, key)) for key in of_many}
    named = {"time": settings.time, "id": settings.id}
    single: dict[str, Any] = {key: find_column(table, key, column) for key, column in named.items() if column}
    _check_roles(lists | {key: (column,) for key, column in single.items()})
    settings = replace(settings, **lists, **single)
    left = [c for c in table.columns if c not in (*settings.ignore, settings.id)]
    time, written = _time(table, settings, left)
    for part in settings.calendar:
        if part not in PARTS:
            raise UnknownName("part of the calendar", part, PARTS)
    if settings.calendar and written in (NUMBER, ROW):
        raise IncompatibleSettingError(
            f"calendar={','.join(settings.calendar)} is told from times, and {table.title} has no column of dates: "
            "name one with time=COLUMN, or leave it out."
        )
    reject_units(table, left)
    past = tuple(c for c in left if c not in (*settings.forecast, *settings.known_future, time))
    words: dict[str, str] = {}
    odd: list[Problem] = []
    for column in (*settings.forecast, *past, *settings.known_future):
        cells = table.text(column)
        kind, example = _kind(column, cells, len(table))
        if kind is None:
            odd.append(Problem(f"column {column}", f"{example!r} and most other cells are not numbers"))
        elif kind.kind == "empty":
            odd.append(Problem(f"column {column}", "it has no values"))
        elif kind.kind == "yes/no":
            words[column] = kind.written
    if odd:
        own = find_series_column(table, time, [problem.where.removeprefix("column ") for problem in odd])
        if own:
            raise ColumnError(
                f"{table.title} holds several series, one below another: times of column {time} are repeated, and "
                f"column {own} has {table.text(own).n_unique():,} values that tell the rows apart.",
                fix=f"Say which column names them: id={own}.",
            )
        raise ColumnError(
            f"{table.title} has columns that are not numbers:",
            odd,
            "Leave them out with ignore=COLUMN, write them as numbers (Monday as 1, Tuesday as 2, …), or name the "
            "column of times with time=COLUMN.",
        )
    return ColumnRoles(
        time, written, settings.forecast, past, settings.known_future, words, settings.id, settings.calendar
    )


def find_series_column(table: Table, time: str | None, among: Sequence[str] | None = None) -> str | None:
    """Return the column that identifies one of several series.

    Of the columns that identify each row together with the time it is the one with the fewest values. Returns None if
    times do not repeat, or there is no such column.
    """
    if time is None or table.text(time).n_unique() == len(table):
        return None
    found: dict[str, int] = {}
    for column in table.columns if among is None else among:
        values = table.text(column).n_unique()
        if column != time and values <= len(table) / 2 and not table.frame.select(time, column).is_duplicated().any():
            found[column] = values
    return min(found, key=lambda column: found[column], default=None)


def read_numbers(table: Table, columns: ColumnRoles) -> npt.NDArray[np.float64]:
    """Read the variables of every row, (n, F), NaN where a cell is missing.

    Raises DataError that names each cell that is not a number, or missing columns.
    """
    absent = [c for c in (*columns.given, columns.time) if c is not None and c not in table.columns]
    if absent:
        raise DataMismatchError(
            f"{table.title} has no column {', '.join(map(repr, absent))}. It has: {', '.join(table.columns)}.",
            fix="A file to be forecast has the columns that the model was trained with, by the same names.",
        )
    reject_units(table, columns.given)
    problems: list[tuple[int, Problem]] = []
    values = np.empty((len(table), len(columns.given)))
    for k, column in enumerate(columns.given):
        kind = _type(columns, column)
        cells = table.text(column)
        values[:, k] = decode(cells, kind)
        for i in np.flatnonzero(unreadable_mask(cells, kind)).tolist():
            problems.append((i, Problem(table.where(i, column), explain_unreadable(cells[i], kind))))
    if problems:
        problems.sort(key=lambda found: found[0])
        raise DataError(
            f"{table.title} has cells that are not numbers:",
            [problem for _, problem in problems],
            "Fix them, or leave them empty and give gaps=fill.",
        )
    return values


def read_moments(table: Table, columns: ColumnRoles) -> npt.NDArray[np.float64]:
    """Read the time of every row, (n,). Raises DataError that names each row with a missing or invalid time."""
    if columns.time is None:
        return np.arange(1, len(table) + 1, dtype=np.float64)
    cells = table.text(columns.time)
    found = parse_times(cells, columns.written)
    bad = np.flatnonzero(np.isnan(found)).tolist()
    if bad:
        like = "a number" if columns.written == NUMBER else f"a time as {FORMATS[columns.written]} is one"
        raise DataError(
            f"{table.title} has rows without a time:",
            [
                Problem(table.where(i, columns.time), f"{cells[i]!r} is not {like}" if cells[i] else "it is empty")
                for i in bad
            ],
            "Every row of a series has its time, written in one way.",
        )
    return found


def _time(table: Table, settings: DataSettings, columns: Sequence[str]) -> tuple[str | None, str]:
    """Return the time column and its format: the one of the setting, else one that holds dates."""
    if settings.time is not None:
        cells = table.text(settings.time)
        written = detect_format(settings.time, cells)
        if written is None and _share_of_numbers(cells) >= MOSTLY:
            written = NUMBER
        if written is None:
            raise DataError(
                f"The column {settings.time!r} of {table.title} holds no times that can be read, for example "
                f"{next(iter(cells.drop_nulls()), '')!r}.",
                fix="Write times as 2020-12-31, 2020-12-31 18:30:00, 2020-12 or as numbers.",
            )
        return settings.time, written
    free = [c for c in columns if c not in (*settings.forecast, *settings.known_future)]
    found: dict[str, str] = {}
    for column in free:
        cells = table.text(column)
        written = detect_format(column, cells)
        if written is not None:
            found[column] = written
    dates = {column: written for column, written in found.items() if written != NUMBER} or found
    if len(dates) > 1:
        raise ColumnError(
            f"{table.title} has several columns of times: {', '.join(map(repr, dates))}.",
            fix="Say which one with time=COLUMN, and leave the others out with ignore=COLUMN.",
        )
    return next(iter(dates.items()), (None, ROW))


def _check_roles(roles: dict[str, tuple[str, ...]]) -> None:
    """Raise SettingError for a column that is named twice."""
    seen: dict[str, str] = {}
    for role, names in roles.items():
        for name in names:
            if name in seen:
                raise SettingError(f"The column {name!r} is named in {seen[name]}= and in {role}=: it can be but one.")
            seen[name] = role


def _kind(name: str, cells: pl.Series, rows: int) -> tuple[ColumnType | None, str]:
    """Return a column's type: number, yes/no or empty. For other types returns None and an example cell."""
    present = cells.drop_nulls()
    if present.is_empty():
        return ColumnType("empty"), ""
    if _share_of_numbers(cells) >= MOSTLY:
        return ColumnType("number"), ""
    kind = infer_type(name, cells, rows)
    if kind.kind in ("number", "yes/no"):
        return kind, ""
    return None, str(present.filter(present.cast(pl.Float64, strict=False).is_null())[0])


def _share_of_numbers(cells: pl.Series) -> float:
    present = cells.drop_nulls()
    return present.cast(pl.Float64, strict=False).count() / len(present) if len(present) else 0.0


def _type(columns: ColumnRoles, name: str) -> ColumnType:
    return ColumnType("yes/no", columns.words[name]) if name in columns.words else ColumnType("number")


Moments = npt.NDArray[np.float64] | npt.NDArray[np.int64]  # numbers, or microseconds since 1970
Positions = npt.NDArray[np.int64]

# Months, weeks and quarters, which strptime cannot parse. Each has an example, and the pattern, replacement and format
# that convert it to its first day.
PERIODS = {
    "%Y-%m": ("2020-12", r"^(\d{4}-\d{1,2})$", "${1}-01", "%Y-%m-%d"),
    "%Y/%m": ("2020/12", r"^(\d{4}/\d{1,2})$", "${1}/01", "%Y/%m/%d"),
    "%B %Y": ("Dec 2020", r"^([A-Za-z]{3,9}) (\d{4})$", "${1} ${2} 01", "%B %Y %d"),
    "%G-W%V": ("2020-W53", r"^(\d{4})-?W(\d{2})$", "${1}-W${2}-1", "%G-W%V-%u"),
    "%Y-Q%q": ("2020-Q4", r"^(\d{4})[- ]?Q([1-4])$", "${1}-q${2}", "%Y-%m-%d"),
    "%Y%m": ("202012", r"^((?:18|19|20)\d{4})$", "${1}01", "%Y%m%d"),
}
QUARTERS = {"q1": "01-01", "q2": "04-01", "q3": "07-01", "q4": "10-01"}
DIGITS = (*COMPACT, "%Y%m")  # recognised only in columns whose name matches DATE_NAME; elsewhere they are numbers
DATE_NAME = re.compile(r"(?i)(time|t|date|datetime|timestamp|year|ds|day|month|period|ym|yyyymm|yearmonth)")
FORMATS = {**DATES, **{written: example for written, (example, *_) in PERIODS.items()}, **COMPACT}
WITH_OFFSET = "%+"  # times with a UTC offset, which are converted to UTC
NUMBER, ROW = "number", "row"  # formats of times that are not dates
STEP_UNITS = ("span", "month", "month end", "weekday", NUMBER, ROW)
TIME_NAME = re.compile(r"(?i)(time|t|date|datetime|timestamp|step|index|year|ds)")

SECOND = 1_000_000  # microseconds
HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
UNITS = {
    7 * DAY: "week",
    DAY: "day",
    HOUR: "hour",
    60 * SECOND: "minute",
    SECOND: "second",
    1000: "millisecond",
    1: "microsecond",
}
WEEKDAYS_FROM = 10  # rows without a Saturday or Sunday that indicate working days
TOLERANCE = 1e-3  # of a step: tolerance for numbers that are rounded in the file


@dataclass(frozen=True)
class Step:
    """The time between consecutive rows."""

    unit: str  # span, month, month end, weekday, number or row
    size: float  # microseconds of a span, otherwise a number of units

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Step:
        """Load a step written by `asdict`. Raises ValueError if it is invalid."""
        found = from_document(cls, data)
        if not found.size > 0 or found.unit not in STEP_UNITS:
            raise ValueError(f"a step of {found.size:g} {shorten(found.unit)}")
        return found

    @property
    def words(self) -> str:
        """Return the step in words: 1 hour; 15 minutes; 1 month; 0.5."""
        if self.unit == NUMBER:
            return f"{self.size:g}"
        count, name = round(self.size), {"weekday": "working day", "month end": "month"}.get(self.unit, self.unit)
        if self.unit == "span":
            length, name = next((length, name) for length, name in UNITS.items() if count % length == 0)
            count //= length
        return f"{count:,} {name}{'' if count == 1 else 's'}"

    @property
    def season(self) -> int:
        """Return the number of steps of a calendar season, or 1 without one.

        A day for steps that divide it, down to the minute; otherwise a week of days, or a year of weeks, months,
        quarters.
        """
        if self.unit in ("month", "month end"):
            return 12 // int(self.size) if 12 % self.size == 0 else 1
        if self.unit == "weekday":
            return 5 if self.size == 1 else 1
        if self.unit == "span":
            if self.size == DAY:
                return 7
            if self.size == 7 * DAY:
                return 52
            if 60 * SECOND <= self.size < DAY and DAY % self.size == 0:
                return DAY // int(self.size)
        return 1

    def positions(self, moments: Moments) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Return the number of steps of each time (n,) after the first, and True where it is not a whole number."""
        if self.unit in (NUMBER, ROW):
            exact = (moments - moments[0]) / self.size
            steps = np.rint(exact).astype(np.int64)
            return steps, np.abs(exact - steps) > TOLERANCE
        times = moments.astype(np.int64)
        if self.unit == "span":
            steps, rest = np.divmod(times - times[0], int(self.size))
            return steps, rest != 0
        count = _weekdays if self.unit == "weekday" else _months
        steps, rest = np.divmod(count(times) - count(times[:1])[0], int(self.size))
        if self.unit == "month":
            return steps, (rest != 0) | (_within_month(times) != _within_month(times[:1])[0])
        astray = rest + times % DAY != times[0] % DAY
        return steps, astray | ~_ends_month(times) if self.unit == "month end" else astray

    def moment(self, first: float, position: int) -> float:
        """Return the time `position` steps after the first."""
        if self.unit in (NUMBER, ROW):
            return first + position * self.size
        whole = int(first)
        if self.unit == "span":
            return whole + int(position) * int(self.size)
        if self.unit == "weekday":
            day = np.busday_offset(np.datetime64(whole // DAY, "D"), int(position) * int(self.size))
            return int(day.astype(np.int64)) * DAY + whole % DAY
        start = np.array([whole])
        month = int(_months(start)[0]) + int(position) * int(self.size)
        if self.unit == "month end":
            return _microseconds(np.datetime64(month + 1, "M")) - DAY + whole % DAY
        return _microseconds(np.datetime64(month, "M")) + int(_within_month(start)[0])


@dataclass(frozen=True)
class Clock:
    """The times of a series: the first time and the step."""

    first: float  # a number, a row, or microseconds since 1970
    step: Step
    written: str  # a format of FORMATS, NUMBER or ROW
    times: Moments | None = field(default=None, compare=False)  # time of each step, if gaps are skipped

    @property
    def words(self) -> str:
        """Return the step in words that follow "every": day; 15 minutes."""
        return self.step.words.removeprefix("1 ") + ("" if self.times is None else ", gaps skipped")

    @property
    def season(self) -> int:
        """Return the season in steps; for series with skipped nights, the rows of a day."""
        if self.times is not None and self.step.unit == "span" and self.step.size < DAY:
            return int(_most_frequent(np.unique(self.times // DAY, return_counts=True)[1]))
        return self.step.season

    def moment(self, position: int) -> float:
        """Return the time of a step. After the last row, skipped gaps are not extrapolated."""
        if self.times is None:
            return self.step.moment(self.first, position)
        last = len(self.times) - 1
        return float(self.times[position]) if position <= last else self.step.moment(self.times[last], position - last)

    def label(self, position: int) -> str:
        """Return the time of a step as text: 2016-07-01 05:00, 1949-01, 12.5, row 7."""
        if self.times is not None and position >= len(self.times) and self.step.unit != "weekday":
            last = len(self.times) - 1
            after = position - last
            return f"{after:,} step{'' if after == 1 else 's'} after {self.label(last)}"
        moment = self.moment(position)
        if self.written == ROW:
            return f"row {round(moment):,}"
        if self.written == NUMBER:
            return f"{moment:.12g}"
        return format_time(
            moment, self.written, days=self.first % DAY == 0 and self.step.moment(self.first, 1) % DAY == 0
        )


def format_time(moment: float, written: str, days: bool = False) -> str:
    """Format a time: a date in ISO 8601 to the month, the day, the minute or finer if needed."""
    if written == NUMBER:
        return f"{moment:.12g}"
    text = str(np.datetime64(int(moment), "us")).replace("T", " ")
    if written == "%Y-Q%q":
        return f"{text[:4]}-Q{(int(text[5:7]) + 2) // 3}"
    if written in PERIODS and "%m" in written.replace("%B", "%m"):
        return text[:7]
    if days:
        return text[:10]
    return text.removesuffix(":00.000000").removesuffix(".000000")


def detect_format(name: str, cells: pl.Series) -> str | None:
    """Return the format of most times in these cells (null where missing); None if they are not times.

    Raises DataError if day and month are ambiguous.
    """
    present = cells.drop_nulls()
    if present.is_empty():
        return None
    named = TIME_NAME.fullmatch(name.strip()) is not None
    dated = DATE_NAME.fullmatch(name.strip()) is not None
    likely = [f for f in FORMATS if (dated or f not in DIGITS) and _matching_fraction(present.head(1000), f) >= MOSTLY]
    fits = {f: _matching_fraction(present, f) for f in likely}
    best = max(fits, key=lambda f: fits[f], default="")  # of equals the first
    if best and fits[best] >= MOSTLY:
        swapped = best.replace("%m/%d", "%d/%m")
        if swapped != best and fits.get(swapped) == fits[best]:
            _reject_two_readings(name, present, (best, swapped))
        return best
    if named and present.cast(pl.Float64, strict=False).count() >= MOSTLY * len(present):
        return NUMBER
    return None


def parse_times(cells: pl.Series, written: str) -> npt.NDArray[np.float64]:
    """Parse the cells to times (n,), NaN where one is missing or in another format.

    Numbers are unchanged; dates become microseconds since 1970, which float64 represents exactly until the year 2255.
    """
    if written == NUMBER:
        values = cells.cast(pl.Float64, strict=False).to_numpy()
        return np.where(np.isfinite(values), values, np.nan)
    if written in PERIODS:
        _, pattern, replacement, written = PERIODS[written]
        days = cells.set(~cells.str.contains(pattern), None).str.replace(pattern, replacement)
        cells = days.str.replace_many(QUARTERS)
        return cells.str.to_datetime(written, time_unit="us", strict=False).cast(pl.Int64).cast(pl.Float64).to_numpy()
    cells = cells.set(~cells.str.contains(r"\d{4}"), None)  # two digits would be a year of antiquity
    return to_moments(cells, written).cast(pl.Float64).to_numpy()


def infer_step(times: Moments, written: str) -> Step:
    """Return the step of increasing times (n,), n at least 2: the most frequent difference."""
    if written == ROW:
        return Step(ROW, 1)
    if written == NUMBER:
        return Step(NUMBER, _most_frequent(np.diff(times)))
    times = times.astype(np.int64)
    if np.diff(times).min() >= 28 * DAY:
        months = _most_frequent(np.diff(_months(times)))
        if len(np.unique(_within_month(times))) == 1:
            return Step("month", months)
        if _ends_month(times).all() and len(np.unique(times % DAY)) == 1:
            return Step("month end", months)
    step = _most_frequent(np.diff(times))
    weekday = (times // DAY + 3) % 7  # 1970 began on a Thursday; Monday is 0
    if step == DAY and len(times) >= WEEKDAYS_FROM and weekday.max() < 5:
        return Step("weekday", 1)
    return Step("span", step)


def _most_frequent(values: Moments) -> float:
    """Return the most frequent value, the smallest on ties, treating values that differ by rounding as equal."""
    rounded = [float(f"{v:.6g}") for v in values.tolist()] if values.dtype == np.float64 else values.tolist()
    _, first, counts = np.unique(rounded, return_index=True, return_counts=True)
    return float(values[first[counts.argmax()]])


def _matching_fraction(cells: pl.Series, written: str) -> float:
    """Return the fraction of cells in this format. Most formats are ruled out by the first few cells."""
    few = cells.head(10)
    if len(few) < len(cells) and np.isnan(parse_times(few, written)).mean() > 1 / 2:
        return 0.0
    return float((~np.isnan(parse_times(cells, written))).mean())


def _reject_two_readings(name: str, cells: pl.Series, both: tuple[str, str]) -> None:
    """Raise DataError if a cell is a different day in the two formats."""
    first, second = (parse_times(cells, written) for written in both)
    differ = np.flatnonzero((first != second) & ~np.isnan(first))
    if len(differ):
        i = int(differ[0])
        raise DataError(
            f"The times in column {name!r} can be read in two ways: {cells[i]!r} may be"
            f" {format_time(first[i], both[0], days=True)} (month/day/year) or"
            f" {format_time(second[i], both[1], days=True)} (day/month/year), and no row tells which.",
            fix="Write them as 2020-12-31.",
        )


def _months(times: Moments) -> Positions:
    """Return months since January 1970, (n,)."""
    return times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def _weekdays(times: Moments) -> Positions:
    """Return working days since 1970, (n,)."""
    days: Positions = np.busday_count(np.datetime64(0, "D"), times.astype("datetime64[us]").astype("datetime64[D]"))
    return days


def _within_month(times: Moments) -> Positions:
    """Return microseconds since the start of the month, (n,)."""
    whole = times.astype("datetime64[us]")
    within: Positions = (whole - whole.astype("datetime64[M]")).astype(np.int64)
    return within


def _ends_month(times: Moments) -> npt.NDArray[np.bool_]:
    """Return True (n,) on the last day of a month."""
    days = times.astype("datetime64[us]").astype("datetime64[D]")
    last: npt.NDArray[np.bool_] = (days + 1).astype("datetime64[M]") > days.astype("datetime64[M]")
    return last


def _microseconds(moment: np.datetime64) -> int:
    return int(moment.astype("datetime64[us]").astype(np.int64))


Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


def _month(times: Times) -> Values:
    return times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64) % 12 / 12


PARTS: dict[str, Callable[[Times], Values]] = {  # times in microseconds since 1970 → u in [0, 1)
    "hour": lambda times: times % DAY / DAY,
    "weekday": lambda times: (times // DAY + 3) % 7 / 7,  # 1970 began on a Thursday; Monday is 0
    "month": _month,
}


def calendar_names(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the variable names of calendar features: hour (sin), hour (cos), …"""
    return tuple(f"{part} ({wave})" for part in parts for wave in ("sin", "cos"))


def calendar_features(clock: Clock, steps: npt.NDArray[np.int64], parts: Sequence[str]) -> Values:
    """Compute the calendar features `names_of(parts)` at these steps of the clock, (n, 2 · parts)."""
    times = np.array([clock.moment(step) for step in steps.tolist()], dtype=np.int64)
    waves = [wave(2 * np.pi * PARTS[part](times)) for part in parts for wave in (np.sin, np.cos)]
    return np.stack(waves, axis=1) if waves else np.empty((len(times), 0))
