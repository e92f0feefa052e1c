"""What cells mean: missing marks, types, the numbers that cells stand for, and the words for those that have none."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cutaway.core.errors import SettingError
from cutaway.data.tables.column_types import (
    DATES,
    ColumnType,
    decode,
    explain_unreadable,
    format_cell,
    infer_type,
    natural_order,
    requested_type,
    strip_missing,
)


def column(*cells: str | None) -> pl.Series:
    return strip_missing(pl.Series(list(cells), dtype=pl.String))


def test_marks_of_missing_cells_in_any_case_and_spaces_around() -> None:
    marks = ["", "NA", "n/a", "nan", "NaN", "NULL", "None", "?", "-", "  ", " NA ", None]
    assert column(*marks).null_count() == len(marks)
    assert column(" a b ", "0", "--", "no").to_list() == ["a b", "0", "--", "no"]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5", "-1e3", "+4", ".5", " 6 ", "7", "7"], "number"),
        (["1", "1", "2", "2", "", "NA"], "number"),
        (["1"] * 10 + ["2"] * 10 + ["oops"], "number"),  # 95 %: the one cell is a mistake
        (["1", "2", "2", "three", "three"], "category"),
        (["0", "1", "1", "0"], "number"),
        (["yes", "No", "YES"], "yes/no"),
        (["t", "f", "t"], "yes/no"),
        (["t", "f", "n", "n"], "category"),
        (["True", "False", ""], "yes/no"),
        (["red", "blue", "red"], "category"),
        (["2020-01-31", "2020-02-01", "NA"], "date"),
        (["2020-01-31 10:30:00", "2020-02-01 11:00:00.5"], "date"),
        (["2020-01-31T10:30:00Z", "2020-02-01T11:00:00+02:00"], "date"),
        (["31.01.2020", "1.2.2020"], "date"),
        (["Jan 31, 2020", "December 1, 2020"], "date"),
        (["", "NA", "?"], "empty"),
        (["same", "same"], "constant"),
        (["7", "7", "7"], "constant"),
        (["there", "there", ""], "category"),  # that it is missing may tell something
        (["k1", "k2", "k3"], "id"),
        (["a b", "c d", "e f"], "text"),
        ([f"word {i}" for i in range(30)] + [f"word {i}" for i in range(10)], "text"),
        (["1,5", "2,5", "2,5"], "number"),  # unreadable, and not to be hidden as categories
        (["$1,200", "$900", "$900"], "number"),
        (["1.2.3", "1.2.4", "1.2.4"], "category"),
        (["inf", "1", "2", "2"], "number"),
    ],
)
def test_types_are_inferred(cells: list[str], kind: str) -> None:
    assert infer_type("c", column(*cells), rows=len(cells)).kind == kind


def test_in_a_few_rows_small_whole_numbers_are_no_keys() -> None:
    assert infer_type("c", column(*"0123456789"), rows=12).kind == "number"


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("c", range(1, 41), "id"),
        ("c", [*range(0, 80, 2)], "number"),  # not the numbers of 40 rows
        ("PassengerId", range(1000, 1040), "id"),
        ("customer_id", range(0, 4000, 100), "id"),
        ("paid", range(1000, 1040), "number"),
        ("id", [*range(1000, 1039), 1000], "number"),
        ("id", [v + 0.5 for v in range(40)], "number"),
        ("year", range(1980, 2020), "number"),
    ],
)
def test_numbers_are_keys_when_they_count_rows_or_are_named_so(name: str, values: range, kind: str) -> None:
    shuffled = np.random.default_rng(0).permutation([str(v) for v in values])
    assert infer_type(name, column(*shuffled), rows=40).kind == kind


@pytest.mark.parametrize(("written", "example"), DATES.items())
def test_every_date_format_is_read(written: str, example: str) -> None:
    type = infer_type("day", column(example, example.replace("2020", "2021")), rows=2)
    assert type.kind == "date"
    days = decode(column(example), type)[0]
    midnight = np.datetime64("2020-12-31").astype("datetime64[D]").astype(int)
    assert days - midnight == pytest.approx(18.5 / 24 if "18:30" in example else 0.0, abs=1e-9)
    assert type.written == written or decode(column(example), ColumnType("date", written))[0] == days


@pytest.mark.parametrize(
    ("cells", "kind", "words"),
    [
        (["02139", "2139", "02139", "10001"], "category", "cells such as 02139 begin with zeros"),
        (["02139", "02140", "10001"], "id", "begin with zeros"),
        (["0", "0.5", "00.5", "10"], "number", ""),
        (["0", "10", "0", "20"], "number", ""),
        (["1"] * 100 + ["2"] * 99 + ["007"], "number", "1 of 200 cells begin with zeros"),
        (["123456789012345678", "123456789012345679"] * 2, "category", "more digits than a number keeps"),
        (["9007199254740992", "1", "1"], "number", ""),  # 2^53 is kept
        (["20240213", "20231231", "20240213"], "date", "20240213 is read as the date 2024-02-13"),
        (["20240213.0", "20231231.0"], "date", ""),
        (["20240213", "20241399", "20249999"], "number", ""),
    ],
)
def test_digits_that_are_codes_or_dates_are_no_numbers(cells: list[str], kind: str, words: str) -> None:
    found = infer_type("c", column(*cells), rows=len(cells))
    assert found.kind == kind
    assert words in found.doubt
    assert bool(found.doubt) == (bool(words) or kind == "date")


def test_days_that_a_spreadsheet_counts_are_told_by_the_column_s_name() -> None:
    days = column("45291", "45300", "45291")
    assert infer_type("price", days, rows=3) == ColumnType("number")
    told = infer_type("Order Date", days, rows=3)
    assert told.kind == "number"
    assert "45291 may be a date as spreadsheets count days (2023-12-31)" in told.doubt


def test_compact_dates_are_days() -> None:
    type = ColumnType("date", "%Y%m%d")
    assert decode(column("20201231", "20201232", "2020123", "x", ""), type)[0] == decode(
        column("2020-12-31"), ColumnType("date", "%Y-%m-%d")
    )
    assert np.isnan(decode(column("20201232", "2020123", "x", ""), type)).all()
    assert "not a date written like 20201231" in explain_unreadable("2020-12-31", type)
    assert requested_type("day", "date", column("20201231", "20210101")).written == "%Y%m%d"


def test_a_date_that_two_formats_fit_is_told() -> None:
    both = infer_type("day", column("03/04/2020", "05/06/2020"), rows=2)
    assert both.written == "%m/%d/%Y"
    assert "03/04/2020 could be day/month/year" in both.doubt
    one = infer_type("day", column("03/04/2020", "25/06/2020"), rows=2)
    assert (one.written, one.doubt) == ("%d/%m/%Y", "")


def test_numbers_that_cells_stand_for() -> None:
    number = decode(column("1", " 2.5 ", "", "x", "inf", "1e300", "-0"), ColumnType("number"))
    assert np.array_equal(number, [1, 2.5, np.nan, np.nan, np.nan, np.nan, 0], equal_nan=True)
    answer = decode(column("Y", "n", "", "maybe"), ColumnType("yes/no", "y/n"))
    assert np.array_equal(answer, [1, 0, np.nan, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("cell", "type", "words"),
    [
        ("abc", ColumnType("number"), "'abc' is not a number"),
        ("1_000", ColumnType("number"), "'1_000' is not a number"),
        ("inf", ColumnType("number"), "infinite"),
        ("1e39", ColumnType("number"), "beyond ±3.4e+38"),
        ("3,5", ColumnType("number"), "decimal comma: write 3.5"),
        ("1,234", ColumnType("number"), "thousands separators"),
        ("1.234,5", ColumnType("number"), "thousands separators"),
        ("12 %", ColumnType("number"), "with a unit"),
        ("2020-02-30", ColumnType("date", "%Y-%m-%d"), "not a date written like 2020-12-31"),
        ("maybe", ColumnType("yes/no", "yes/no"), "neither of yes/no"),
    ],
)
def test_unreadable_cells_are_explained(cell: str, type: ColumnType, words: str) -> None:
    assert np.isnan(decode(column(cell), type)[0])
    assert words in explain_unreadable(cell, type)


def test_types_that_were_asked_for() -> None:
    assert requested_type("zip", "category", column("10115", "20095")).kind == "category"
    assert requested_type("id", "number", column("1", "2")).kind == "number"
    assert requested_type("flag", "yes/no", column("1", "0", "1")) == ColumnType("yes/no", "1/0")
    assert requested_type("day", "date", column("31.12.2020", "1.1.2021")).written == "%d.%m.%Y"
    assert requested_type("same", "number", column("1", "1")).kind == "constant"
    assert requested_type("none", "number", column("", "?")).kind == "empty"
    for kind in ("date", "yes/no"):
        with pytest.raises(SettingError, match=f"Invalid types=color:{kind}: its cells, such as 'red'"):
            requested_type("color", kind, column("red", "blue"))


def test_names_are_sorted_as_people_do() -> None:
    assert natural_order(["10", "9", "-1", "1.5"]) == ["-1", "1.5", "9", "10"]
    assert natural_order(["class 10", "Class 9", "a", "class"]) == ["a", "class", "Class 9", "class 10"]
    assert natural_order({"b", "a", "2", "10"}) == ["2", "10", "a", "b"]


def test_numbers_are_shown_as_cells() -> None:
    assert format_cell(2.5, ColumnType("number")) == "2.5"
    assert format_cell(1.0, ColumnType("yes/no", "on/off")) == "on"
    assert format_cell(18627.0, ColumnType("date", "%Y-%m-%d")) == "2020-12-31"
    assert format_cell(18627.5, ColumnType("date", "%Y-%m-%d")) == "2020-12-31T12:00:00"
