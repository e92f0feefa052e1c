"""Reading a series: what is rejected with its lines, and what is filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway.core.errors import DataError, SettingError, UnknownName
from cutaway.data.series.column_roles import ROW, ColumnRoles, choose_columns
from cutaway.data.series.series_files import Series, read_series
from cutaway.data.settings import DataSettings
from cutaway.data.tables.table_files import Table, read_table

HEAD = "date,load,wind,holiday\n"
GOOD = [f"2024-03-{d:02},{100 + d},{d % 7},{'no' if d % 5 else 'yes'}" for d in range(1, 25)]


def table(folder: Path, rows: list[str], head: str = HEAD, end: str = "\n") -> Table:
    path = folder / "load.csv"
    path.write_text((head + "\n".join(rows) + "\n").replace("\n", end), newline="")
    return read_table(path)


def read(folder: Path, rows: list[str], head: str = HEAD, **settings: Any) -> Series:
    given = DataSettings(**{"forecast": ("load",), **settings})
    found = table(folder, rows, head)
    return read_series(found, choose_columns(found, given), given.gaps)


def problems(caught: pytest.ExceptionInfo[DataError]) -> list[str]:
    return [str(p) for p in caught.value.problems]


def test_columns_have_their_roles(tmp_path: Path) -> None:
    series = read(tmp_path, GOOD, known_future=("holiday",))
    assert series.columns.time == "date"
    assert series.columns.names == ("load", "wind", "holiday")
    assert series.columns.words == {"holiday": "yes/no"}
    assert series.values[4].tolist() == [105.0, 5.0, 1.0]
    assert series.clock.label(len(series)) == "2024-03-25"
    assert series.observed.all()


def test_line_ends_of_windows_change_nothing(tmp_path: Path) -> None:
    found = table(tmp_path, GOOD, end="\r\n")
    columns = choose_columns(found, DataSettings(forecast=("load",)))
    assert np.array_equal(read_series(found, columns, "error").values, read(tmp_path, GOOD).values)


def test_rows_without_times_are_counted(tmp_path: Path) -> None:
    series = read(tmp_path, ["3", "1", "4", "1"], head="load\n")
    assert series.clock.label(4) == "row 5"
    assert series.clock.step.words == "1 row"


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"forecast": ("lod",)}, UnknownName, "Similar: load"),
        (
            {"forecast": ("load",), "known_future": ("load",)},
            SettingError,
            "'load' is named in forecast= and in known_future=",
        ),
        ({"forecast": ()}, SettingError, "give forecast=COLUMN"),
        ({"forecast": ("load",), "time": "wind", "ignore": ("date",)}, DataError, "several rows of one time"),
        ({"forecast": ("load",), "time": "holiday"}, DataError, "'holiday' of load.csv holds no times .* 'no'"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, settings: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        read(tmp_path, GOOD, **settings)


def test_text_is_rejected_with_a_way_out(tmp_path: Path) -> None:
    rows = [f"{row},{'fair' if i % 2 else 'cloudy'} sky {i}" for i, row in enumerate(GOOD)]
    head = HEAD.replace("\n", ",sky\n")
    with pytest.raises(DataError, match=r"column sky: 'cloudy sky 0' .* not numbers.*ignore=COLUMN"):
        read(tmp_path, rows, head)
    assert read(tmp_path, rows, head, ignore=("sky",)).columns.past == ("wind", "holiday")


def test_several_columns_of_times_are_told_apart_by_the_person(tmp_path: Path) -> None:
    rows = [f"{row},2025-03-{i + 1:02}" for i, row in enumerate(GOOD)]
    head = HEAD.replace("\n", ",delivered\n")
    with pytest.raises(DataError, match=r"several columns of times: 'date', 'delivered'.*time=COLUMN"):
        read(tmp_path, rows, head)
    chosen = read(tmp_path, rows, head, time="date", ignore=("delivered",))
    assert chosen.clock.label(0) == "2024-03-01"


def test_cells_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    rows = list(GOOD)
    rows[3] = "2024-03-04,1O4,4,no"
    rows[6] = "2024-03-07,107,inf,no"
    with pytest.raises(DataError) as caught:
        read(tmp_path, rows)
    assert problems(caught) == [
        "load.csv, line 5, column load: '1O4' is not a number",
        "load.csv, line 8, column wind: 'inf' is infinite, or beyond ±3.4e+38",
    ]


def test_repeated_and_unsorted_times_are_named(tmp_path: Path) -> None:
    rows = [*GOOD[:6], GOOD[4], *GOOD[6:10], GOOD[11], GOOD[10], *GOOD[12:]]
    with pytest.raises(DataError, match="several rows of one time") as caught:
        read(tmp_path, rows)
    assert problems(caught) == [
        "load.csv, line 8, column date: the time 2024-03-05 is repeated: it is that of line 6 of load.csv too"
    ]
    with pytest.raises(DataError, match=r"several series, one below another.*id=COLUMN"):
        read(tmp_path, GOOD + GOOD)
    both = [f"{row},{shop}" for shop in (7, 9, 11) for row in GOOD]
    with pytest.raises(DataError, match="id=shop"):
        read(tmp_path, both, HEAD.replace("\n", ",shop\n"))
    with pytest.raises(DataError, match=r"holds several series, one below another.*column shop has 3 values.*id=shop"):
        read(tmp_path, [f"{row},{shop}" for shop in "abc" for row in GOOD], HEAD.replace("\n", ",shop\n"))


def test_rows_are_sorted_by_time_and_keep_their_lines(tmp_path: Path) -> None:
    expected = read(tmp_path, GOOD)
    order = np.random.default_rng(0).permutation(len(GOOD))
    for rows, how in ((GOOD[::-1], "stand newest first"), ([GOOD[i] for i in order], "are not in the order of time")):
        series = read(tmp_path, rows)
        assert np.array_equal(series.values, expected.values)
        assert series.clock == expected.clock
        assert series.notes == (f"The rows of load.csv {how}: they are sorted by column date.",)
    with pytest.raises(DataError) as caught:
        read(tmp_path, [*GOOD[:4:-1], *GOOD[:4]])  # the newest first, then four more, without the fifth
    assert problems(caught) == ["line 20 of load.csv: 1 step missing before it: 2024-03-05"]


def test_gaps_can_be_skipped(tmp_path: Path) -> None:
    days = [row for i, row in enumerate(GOOD) if i % 7 not in (1, 2) and i != 10]  # 2024-03-01 was a Friday
    series = read(tmp_path, days, gaps="skip")
    assert (len(series), series.clock.step.words, series.clock.season) == (len(days), "1 working day", 5)
    assert series.values[:, 0].tolist() == [float(row.split(",")[1]) for row in days]
    assert series.observed.all()
    assert [series.clock.label(i) for i in (0, 1, len(days) - 1, len(days), len(days) + 5)] == [
        "2024-03-01", "2024-03-04", "2024-03-22", "2024-03-25", "2024-04-01",
    ]  # fmt: skip
    hours = [f"2024-03-{d:02} {h:02}:00,{d * h}" for d in (4, 5, 6, 7, 8, 11) for h in range(9, 17)]
    with pytest.raises(DataError, match="gaps=skip") as caught:
        read(tmp_path, [f"2024-{m:02}-{row[8:]}" for m in (3, 4, 5) for row in hours], "time,load\n")
    assert [p.split(": ")[1].split(",")[0] for p in problems(caught)] == [
        "16 steps missing before 12 rows", "64 steps missing before 3 rows",
        "568 steps missing before 1 row", "544 steps missing before 1 row",
    ]  # fmt: skip
    series = read(tmp_path, hours, "time,load\n", gaps="skip")
    assert (series.clock.words, series.clock.season) == ("hour, gaps skipped", 8)
    assert series.clock.label(8) == "2024-03-05 09:00"
    assert series.clock.label(len(hours) + 1) == "2 steps after 2024-03-11 16:00"
    with pytest.raises(SettingError, match="calendar=hour"):
        read(tmp_path, hours, "time,load\n", gaps="skip", calendar=("hour",))
    with pytest.raises(DataError, match="line 5, column load: the value is missing"):
        read(tmp_path, [*days[:3], "2024-03-06,,1,no", *days[4:]], gaps="skip")


def test_times_that_are_missing_or_astray_are_named(tmp_path: Path) -> None:
    rows = list(GOOD)
    rows[3] = ",104,4,no"
    rows[7] = "8 March,108,1,no"
    with pytest.raises(DataError) as caught:
        read(tmp_path, rows)
    assert problems(caught) == [
        "load.csv, line 5, column date: it is empty",
        "load.csv, line 9, column date: '8 March' is not a time as 2020-12-31 is one",
    ]
    hours = [f"2024-03-01 {h:02}:00,{h}" for h in range(12)]
    hours[5] = "2024-03-01 05:20,5"
    with pytest.raises(DataError, match="most are 1 hour apart") as caught:
        read(tmp_path, hours, head="time,load\n")
    assert problems(caught) == ["load.csv, line 7, column time: 2024-03-01 05:20"]


def test_gaps_are_rejected_by_place(tmp_path: Path) -> None:
    rows = [*GOOD[:5], *GOOD[6:12], *GOOD[15:]]
    rows[2] = "2024-03-03,,3,no"
    with pytest.raises(DataError, match=r"has gaps.*gaps=fill") as caught:
        read(tmp_path, rows)
    assert problems(caught) == [
        "load.csv, line 4, column load: the value is missing",
        "line 7 of load.csv: 1 step missing before it: 2024-03-06",
        "line 13 of load.csv: 3 steps missing before it: 2024-03-13 to 2024-03-15",
    ]


def test_gaps_are_filled_by_straight_lines_and_counted(tmp_path: Path) -> None:
    rows = [*GOOD[:5], *GOOD[6:12], *GOOD[15:]]
    rows[2] = "2024-03-03,,3,no"
    series = read(tmp_path, rows, gaps="fill")
    assert len(series) == len(GOOD)
    np.testing.assert_allclose(series.values[:, 0], [100.0 + d for d in range(1, 25)])
    assert np.flatnonzero(~series.observed[:, 0]).tolist() == [2, 5, 12, 13, 14]
    assert np.flatnonzero(~series.observed[:, 1]).tolist() == [5, 12, 13, 14]
    assert series.notes[:2] == (
        "4 missing steps of load.csv, the first at 2024-03-06, filled in.",
        "1 missing value of column load filled in.",
    )
    assert read(tmp_path, GOOD, gaps="fill").notes == ()


def test_what_cannot_be_filled_is_rejected(tmp_path: Path) -> None:
    rows = ["2024-03-01,,1,no", *GOOD[1:-1], "2024-03-24,124,,no"]
    with pytest.raises(DataError, match="gaps at its ends") as caught:
        read(tmp_path, rows, gaps="fill")
    assert problems(caught) == [
        "load.csv, line 2, column load: the value is missing, and no value before it to interpolate from",
        "load.csv, line 25, column wind: the value is missing, and no value after it to interpolate from",
    ]
    far = [*GOOD, "2029-03-01,1,1,no"]
    with pytest.raises(DataError, match="25 rows, and 1,802 steps of 1 day are missing"):
        read(tmp_path, far, gaps="fill")


def test_rows_of_the_future_hold_only_what_is_known(tmp_path: Path) -> None:
    ahead = [*GOOD, "2024-03-25,,,yes", "2024-03-26,,,no"]
    series = read(tmp_path, ahead, known_future=("holiday",))
    assert (len(series), len(series.values)) == (24, 26)
    assert series.values[24:, 2].tolist() == [1.0, 0.0]
    with pytest.raises(DataError, match="line 26, column load: the value is missing"):
        read(tmp_path, ahead)
    with pytest.raises(DataError, match="line 27, column holiday: the value is missing"):
        read(tmp_path, [*ahead[:-1], "2024-03-26,,,"], known_future=("holiday",))


@pytest.mark.parametrize("words", ["", "yes", "a/b/c", 3])
def test_words_of_a_saved_yes_no_column_are_two(words: Any) -> None:
    document = {"time": None, "written": ROW, "forecast": ["y"], "past": ["open"], "words": {"open": words}}
    with pytest.raises(ValueError, match=r"^the words of a yes/no column are none$"):
        ColumnRoles.from_json(document)
    assert ColumnRoles.from_json({**document, "words": {"open": "yes/no"}}).words == {"open": "yes/no"}
