"""Times of the rows of a series: formats, the step between rows, the time of any step, and calendar features.

A step is a span of time (15 minutes, a day), a number of months, of working days, of the unit of a column of numbers,
or, where there is no time column, a row.

Calendar features are the hour, weekday and month of each step, each as a point on a circle:
sin(2π u) and cos(2π u), u the part of the day, the week or the year that has passed: 23:00 stands beside midnight.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import DataError, short
from ...core.schema import from_document
from ..tables.column_types import COMPACT, DATES, MOSTLY, to_moments

Moments = npt.NDArray[np.float64] | npt.NDArray[np.int64]  # numbers, or microseconds since 1970
Positions = npt.NDArray[np.int64]

# Months, weeks and quarters, which strptime alone cannot read: an example, and the pattern, replacement and format by
# which they become their first day.
PERIODS = {
    "%Y-%m": ("2020-12", r"^(\d{4}-\d{1,2})$", "${1}-01", "%Y-%m-%d"),
    "%Y/%m": ("2020/12", r"^(\d{4}/\d{1,2})$", "${1}/01", "%Y/%m/%d"),
    "%B %Y": ("Dec 2020", r"^([A-Za-z]{3,9}) (\d{4})$", "${1} ${2} 01", "%B %Y %d"),
    "%G-W%V": ("2020-W53", r"^(\d{4})-?W(\d{2})$", "${1}-W${2}-1", "%G-W%V-%u"),
    "%Y-Q%q": ("2020-Q4", r"^(\d{4})[- ]?Q([1-4])$", "${1}-q${2}", "%Y-%m-%d"),
    "%Y%m": ("202012", r"^((?:18|19|20)\d{4})$", "${1}01", "%Y%m%d"),
}
QUARTERS = {"q1": "01-01", "q2": "04-01", "q3": "07-01", "q4": "10-01"}
DIGITS = (*COMPACT, "%Y%m")  # read so in columns with a name of DATE_NAME alone: elsewhere they are numbers
DATE_NAME = re.compile(r"(?i)(time|t|date|datetime|timestamp|year|ds|day|month|period|ym|yyyymm|yearmonth)")
FORMATS = {**DATES, **{written: example for written, (example, *_) in PERIODS.items()}, **COMPACT}
WITH_OFFSET = "%+"  # times that say how far they are from UTC, to which they are brought
NUMBER, ROW = "number", "row"  # how times are written that are no dates
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
WEEKDAYS_FROM = 10  # rows without a Saturday or Sunday that show a series of working days
TOLERANCE = 1e-3  # of a step, by which numbers may miss it: they are rounded where they are written


@dataclass(frozen=True)
class Step:
    """The time from one row to the next."""

    unit: str  # span, month, month end, weekday, number or row
    size: float  # of a span microseconds; else how many of the unit

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Step:
        """The step that `asdict` wrote. Raises ValueError where it cannot be."""
        found = from_document(cls, data)
        if not found.size > 0 or found.unit not in STEP_UNITS:
            raise ValueError(f"a step of {found.size:g} {short(found.unit)}")
        return found

    @property
    def words(self) -> str:
        """1 hour; 15 minutes; 1 month; 0.5."""
        if self.unit == NUMBER:
            return f"{self.size:g}"
        count, name = round(self.size), {"weekday": "working day", "month end": "month"}.get(self.unit, self.unit)
        if self.unit == "span":
            length, name = next((length, name) for length, name in UNITS.items() if count % length == 0)
            count //= length
        return f"{count:,} {name}{'' if count == 1 else 's'}"

    @property
    def season(self) -> int:
        """Steps after which days, weeks or years repeat themselves, by the calendar; 1 where it knows of none.

        A day for steps that divide it, down to the minute; else a week of days, or a year of weeks, months, quarters.
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
        """How many steps each moment (n,) is after the first; and True where it is not a whole number of them."""
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
        """The moment that is so many steps after the first."""
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
    """The times of a series: when it begins, and the step."""

    first: float  # a number, a row, or microseconds since 1970
    step: Step
    written: str  # a format of FORMATS, NUMBER or ROW
    times: Moments | None = field(default=None, compare=False)  # of each step, where gaps between them are skipped

    @property
    def words(self) -> str:
        """The step in words that follow "every": day; 15 minutes."""
        return self.step.words.removeprefix("1 ") + ("" if self.times is None else ", gaps skipped")

    @property
    def season(self) -> int:
        """Steps after which days, weeks or years repeat themselves; of skipped nights the rows of a day."""
        if self.times is not None and self.step.unit == "span" and self.step.size < DAY:
            return int(_commonest(np.unique(self.times // DAY, return_counts=True)[1]))
        return self.step.season

    def moment(self, position: int) -> float:
        """The time of a step. Of skipped gaps those after the last one are told as if there were none."""
        if self.times is None:
            return self.step.moment(self.first, position)
        last = len(self.times) - 1
        return float(self.times[position]) if position <= last else self.step.moment(self.times[last], position - last)

    def label(self, position: int) -> str:
        """The time of a step as a person writes it: 2016-07-01 05:00, 1949-01, 12.5, row 7."""
        if self.times is not None and position >= len(self.times) and self.step.unit != "weekday":
            last = len(self.times) - 1
            after = position - last
            return f"{after:,} step{'' if after == 1 else 's'} after {self.label(last)}"
        moment = self.moment(position)
        if self.written == ROW:
            return f"row {round(moment):,}"
        if self.written == NUMBER:
            return f"{moment:.12g}"
        return show(moment, self.written, days=self.first % DAY == 0 and self.step.moment(self.first, 1) % DAY == 0)


def show(moment: float, written: str, days: bool = False) -> str:
    """A moment as a person writes it: a date in ISO 8601, to the month, the day, the minute or what it needs."""
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


def format_of(name: str, cells: pl.Series) -> str | None:
    """How the times in these cells (null where missing) are written, most of them; None where they are no times.

    Raises DataError where day and month could each be the other.
    """
    present = cells.drop_nulls()
    if present.is_empty():
        return None
    named = TIME_NAME.fullmatch(name.strip()) is not None
    dated = DATE_NAME.fullmatch(name.strip()) is not None
    likely = [f for f in FORMATS if (dated or f not in DIGITS) and _fitting(present.head(1000), f) >= MOSTLY]
    fits = {f: _fitting(present, f) for f in likely}
    best = max(fits, key=lambda f: fits[f], default="")  # of equals the first
    if best and fits[best] >= MOSTLY:
        swapped = best.replace("%m/%d", "%d/%m")
        if swapped != best and fits.get(swapped) == fits[best]:
            _reject_two_readings(name, present, (best, swapped))
        return best
    if named and present.cast(pl.Float64, strict=False).count() >= MOSTLY * len(present):
        return NUMBER
    return None


def moments(cells: pl.Series, written: str) -> npt.NDArray[np.float64]:
    """The moments (n,) that the cells stand for, NaN where one is missing or not written so.

    Numbers as they are; dates in microseconds since 1970, which float64 holds exactly until the year 2255.
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


def step_of(times: Moments, written: str) -> Step:
    """The step of times (n,) that increase, n at least 2: what most of them are after the one before."""
    if written == ROW:
        return Step(ROW, 1)
    if written == NUMBER:
        return Step(NUMBER, _commonest(np.diff(times)))
    times = times.astype(np.int64)
    if np.diff(times).min() >= 28 * DAY:
        months = _commonest(np.diff(_months(times)))
        if len(np.unique(_within_month(times))) == 1:
            return Step("month", months)
        if _ends_month(times).all() and len(np.unique(times % DAY)) == 1:
            return Step("month end", months)
    step = _commonest(np.diff(times))
    weekday = (times // DAY + 3) % 7  # 1970 began on a Thursday; Monday is 0
    if step == DAY and len(times) >= WEEKDAYS_FROM and weekday.max() < 5:
        return Step("weekday", 1)
    return Step("span", step)


def _commonest(values: Moments) -> float:
    """The commonest of these, of equals the least; of numbers that differ by rounding alone, one of them."""
    rounded = [float(f"{v:.6g}") for v in values.tolist()] if values.dtype == np.float64 else values.tolist()
    _, first, counts = np.unique(rounded, return_index=True, return_counts=True)
    return float(values[first[counts.argmax()]])


def _fitting(cells: pl.Series, written: str) -> float:
    """The fraction of cells that are times written so; most formats are ruled out by the first few."""
    few = cells.head(10)
    if len(few) < len(cells) and np.isnan(moments(few, written)).mean() > 1 / 2:
        return 0.0
    return float((~np.isnan(moments(cells, written))).mean())


def _reject_two_readings(name: str, cells: pl.Series, both: tuple[str, str]) -> None:
    """Raise DataError where some cell is one day by the first way of writing and another by the second."""
    first, second = (moments(cells, written) for written in both)
    differ = np.flatnonzero((first != second) & ~np.isnan(first))
    if len(differ):
        i = int(differ[0])
        raise DataError(
            f"The times in column {name!r} can be read in two ways: {cells[i]!r} may be "
            f"{show(first[i], both[0], days=True)} (month/day/year) or {show(second[i], both[1], days=True)} "
            "(day/month/year), and no row tells which.",
            fix="Write them as 2020-12-31.",
        )


def _months(times: Moments) -> Positions:
    """Months since January 1970, (n,)."""
    return times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def _weekdays(times: Moments) -> Positions:
    """Working days since 1970, (n,)."""
    days: Positions = np.busday_count(np.datetime64(0, "D"), times.astype("datetime64[us]").astype("datetime64[D]"))
    return days


def _within_month(times: Moments) -> Positions:
    """Microseconds since the month began, (n,)."""
    whole = times.astype("datetime64[us]")
    within: Positions = (whole - whole.astype("datetime64[M]")).astype(np.int64)
    return within


def _ends_month(times: Moments) -> npt.NDArray[np.bool_]:
    """True (n,) on the last day of a month."""
    days = times.astype("datetime64[us]").astype("datetime64[D]")
    last: npt.NDArray[np.bool_] = (days + 1).astype("datetime64[M]") > days.astype("datetime64[M]")
    return last


def _microseconds(moment: np.datetime64) -> int:
    return int(moment.astype("datetime64[us]").astype(np.int64))


Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


def _month(times: Times) -> Values:
    return times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64) % 12 / 12


PARTS: dict[str, Callable[[Times], Values]] = {  # of moments in microseconds since 1970: u, from 0 to below 1
    "hour": lambda times: times % DAY / DAY,
    "weekday": lambda times: (times // DAY + 3) % 7 / 7,  # 1970 began on a Thursday; Monday is 0
    "month": _month,
}


def names_of(parts: Sequence[str]) -> tuple[str, ...]:
    """The variables that parts of the calendar become: hour (sin), hour (cos), …"""
    return tuple(f"{part} ({wave})" for part in parts for wave in ("sin", "cos"))


def circles(clock: Clock, steps: npt.NDArray[np.int64], parts: Sequence[str]) -> Values:
    """The variables of `names_of(parts)` at these steps after the clock's first, (n, 2 · parts)."""
    times = np.array([clock.moment(step) for step in steps.tolist()], dtype=np.int64)
    waves = [wave(2 * np.pi * PARTS[part](times)) for part in parts for wave in (np.sin, np.cos)]
    return np.stack(waves, axis=1) if waves else np.empty((len(times), 0))
