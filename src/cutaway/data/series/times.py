"""Time columns of series: formats, the step between rows, the time of any step, and calendar features.

A step is a time span (15 minutes, a day), a number of months, of working days or of the unit of a numeric column, or a
row if there is no time column.

Calendar features are the hour, weekday and month of each step in cyclic encoding: sin(2π u) and cos(2π u), with u the
elapsed fraction of the day, the week or the year. 23:00 and midnight are close.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import DataError, shorten
from ...core.schema import from_document
from ..tables.column_types import COMPACT, DATES, MOSTLY, to_moments

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
