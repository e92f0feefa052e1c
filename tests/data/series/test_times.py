"""Times: how they are written, the step between them, and the time of any step."""

from __future__ import annotations

import datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError
from cutaway.data.series.column_roles import COMPACT, DAY, NUMBER, Clock, Step, detect_format, infer_step, parse_times


def cells(*written: str) -> pl.Series:
    return pl.Series(written, dtype=pl.String)


def clock_of(name: str, *written: str) -> Clock:
    found = detect_format(name, cells(*written))
    assert found is not None
    times = parse_times(cells(*written), found)
    return Clock(float(times[0]), infer_step(times, found), found)


@pytest.mark.parametrize(
    ("written", "words", "season", "next_one"),
    [
        (("2016-07-01 00:00:00", "2016-07-01 01:00:00", "2016-07-01 02:00:00"), "1 hour", 24, "2016-07-01 03:00"),
        (("2016-07-01T00:00", "2016-07-01T00:15"), "15 minutes", 96, "2016-07-01 00:30"),
        (("2016-07-01 00:00:01", "2016-07-01 00:00:02"), "1 second", 1, "2016-07-01 00:00:03"),
        (("1949-01", "1949-02", "1949-03"), "1 month", 12, "1949-04"),
        (("2020-01-31", "2020-02-29", "2020-03-31"), "1 month", 12, "2020-04-30"),
        (("2020-01-15", "2020-04-15", "2020-07-15"), "3 months", 4, "2020-10-15"),
        (("1981-12-30", "1981-12-31", "1982-01-01"), "1 day", 7, "1982-01-02"),
        (("2024-01-01", "2024-01-08", "2024-01-15"), "1 week", 52, "2024-01-22"),
        (("13/01/2016", "14/01/2016"), "1 day", 7, "2016-01-15"),
        (("01/13/2016", "01/14/2016"), "1 day", 7, "2016-01-15"),
        (("2020-12-31T23:30:00+02:00", "2020-12-31T22:30:00Z"), "1 hour", 24, "2020-12-31 23:30"),
        (("1949", "1950", "1951"), "1", 1, "1952"),
        (("0.25", "0.5", "0.75"), "0.25", 1, "1"),
        (("20160630", "20160701"), "1 day", 7, "2016-07-02"),
        (("201611", "201612"), "1 month", 12, "2017-01"),
        (("Nov 2016", "Dec 2016"), "1 month", 12, "2017-01"),
        (("Jan 31 2000", "Feb 1 2000"), "1 day", 7, "2000-02-02"),
        (("2015-W52", "2015-W53", "2016-W01"), "1 week", 52, "2016-01-11"),
        (("2015W52", "2015W53"), "1 week", 52, "2016-01-04"),
        (("1980Q3", "1980Q4"), "3 months", 4, "1981-Q1"),
        (("1980-Q1", "1980-Q2"), "3 months", 4, "1980-Q3"),
    ],
)
def test_steps_and_labels(written: tuple[str, ...], words: str, season: int, next_one: str) -> None:
    clock = clock_of("time", *written)
    assert (clock.step.words, clock.step.season) == (words, season)
    assert clock.label(len(written)) == next_one


def test_working_days_have_no_weekends() -> None:
    days = [str(d) for d in np.arange("2024-01-01", "2024-02-03", dtype="datetime64[D]") if np.is_busday(d)]
    clock = clock_of("date", *days)
    assert (clock.step.words, clock.step.season) == ("1 working day", 5)
    assert clock.label(len(days)) == "2024-02-05"  # the Monday after
    positions, astray = clock.step.positions(parse_times(cells(*days), clock.written))
    assert positions.tolist() == list(range(len(days)))
    assert not astray.any()


def test_what_is_no_time() -> None:
    assert detect_format("value", cells("1949", "1950")) is None  # a number, unless the column says that it is a time
    assert detect_format("year", cells("1949", "1950")) == NUMBER
    assert detect_format("value", cells("20160630", "20160701")) is None
    assert detect_format("value", cells("201606", "201607")) is None
    assert detect_format("month", cells("1", "2", "3")) is None
    assert detect_format("date", cells("2015-W54", "2015-W99")) is None
    assert detect_format("date", cells("1980Q5", "1980Q0")) is None
    assert detect_format("date", cells("20160630", "20160701")) in COMPACT
    assert detect_format("date", cells("30/06/16", "01/07/16")) is None  # of which century?
    assert detect_format("date", cells("Monday", "Tuesday")) is None
    assert detect_format("date", pl.Series([None, None], dtype=pl.String)) is None


def test_a_few_bad_cells_do_not_hide_the_others() -> None:
    written = [f"2016-07-{d:02}" for d in range(1, 21)]
    written[4] = "2016-07-32"
    found = detect_format("date", cells(*written))
    assert found == "%Y-%m-%d"
    assert np.flatnonzero(np.isnan(parse_times(cells(*written), found))).tolist() == [4]


def test_day_and_month_that_could_each_be_the_other_are_rejected() -> None:
    with pytest.raises(DataError, match=r"'02/01/2016' may be 2016-02-01 .* or 2016-01-02") as caught:
        detect_format("date", cells("01/01/2016", "02/01/2016", "03/01/2016"))
    assert "Write them as 2020-12-31" in str(caught.value)
    assert detect_format("date", cells("01/01/2016", "02/02/2016")) is not None  # either reading is the same


def test_times_between_two_steps_are_seen() -> None:
    times = parse_times(
        cells("2016-07-01 00:00", "2016-07-01 01:00", "2016-07-01 02:30", "2016-07-01 03:00"), "%Y-%m-%d %H:%M"
    )
    positions, astray = infer_step(times[:2], "%Y-%m-%d %H:%M").positions(times)
    assert positions.tolist() == [0, 1, 2, 3]
    assert astray.tolist() == [False, False, True, False]
    months = parse_times(cells("2020-01-15", "2020-02-15", "2020-03-16"), "%Y-%m-%d")
    assert Step("month", 1).positions(months)[1].tolist() == [False, False, True]


STEPS = st.sampled_from(
    [
        *(Step("span", DAY / 24), Step("span", DAY), Step("weekday", 1)),
        *(Step("month", 1), Step("month", 3), Step("month end", 1)),
    ]
)


@given(step=STEPS, day=st.dates(datetime.date(1950, 1, 1), datetime.date(2050, 1, 1)), position=st.integers(0, 3000))
@settings(max_examples=40, deadline=None)
def test_labels_and_positions_say_the_same(step: Step, day: datetime.date, position: int) -> None:
    if step.unit == "month":
        day = day.replace(day=min(day.day, 28))
    elif step.unit == "month end":
        day = (day.replace(day=28) + datetime.timedelta(4)).replace(day=1) - datetime.timedelta(1)
    elif step.unit == "weekday" and day.weekday() > 4:
        day -= datetime.timedelta(2)
    first = (day - datetime.date(1970, 1, 1)).days * DAY
    times = np.array([first, step.moment(first, position)], dtype=np.int64)
    positions, astray = step.positions(times)
    assert positions.tolist() == [0, position]
    assert not astray.any()
