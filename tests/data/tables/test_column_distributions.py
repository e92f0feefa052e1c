"""How the cells of columns are spread."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cutaway.data.tables import dataset as module
from cutaway.data.tables.column_types import ColumnType
from cutaway.data.tables.dataset import column_distributions, histogram


def test_numbers_are_counted_between_edges_and_values_by_name() -> None:
    cells = {
        "rooms": pl.Series(["1", "2", "2", "4", None]),
        "price": pl.Series(["0.5", "1.5", "2.5", "x", "10.5"]),
        "day": pl.Series(["2020-01-01", "2020-01-01", "2020-03-01", None, None]),
        "town": pl.Series(["b", "b", "a", None, "c"]),
        "key": pl.Series(list("vwxyz")),
    }
    types = {
        "rooms": ColumnType("number"),
        "price": ColumnType("number"),
        "day": ColumnType("date", "%Y-%m-%d"),
        "town": ColumnType("category"),
        "key": ColumnType("id"),
    }
    rooms, price, day, town = column_distributions(cells, types)
    assert rooms == {"name": "rooms", "type": "number", "counts": [1, 2, 0, 1], "ends": ["1", "4"], "missing": 1}
    assert (price["ends"], sum(price["counts"]), price["missing"]) == (["0.5", "10.5"], 4, 1)
    assert day["ends"] == ["2020-01-01", "2020-03-01"]
    assert town["labels"][0] == "b"
    assert (town["counts"][0], town["different"], town["missing"]) == (2, 3, 1)


def test_many_values_and_many_columns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    many = pl.Series([str(k % 50) for k in range(500)])
    (found,) = column_distributions({"a": many}, {"a": ColumnType("category")})
    assert found["labels"][-1] == module.REST
    assert (len(found["counts"]), sum(found["counts"]), found["different"]) == (module.VALUES, 500, 50)
    monkeypatch.setattr(module, "MOST_COLUMNS", 2)
    assert len(column_distributions(dict.fromkeys("abc", many), dict.fromkeys("abc", ColumnType("category")))) == 2
    empty = pl.Series([None, None], dtype=pl.String)
    assert (
        column_distributions({"a": empty, "b": empty}, {"a": ColumnType("number"), "b": ColumnType("category")}) == []
    )


def test_equal_bins_are_those_of_numpy_where_it_has_them() -> None:
    values = np.random.default_rng(0).normal(3, 2, 500)
    assert histogram(values, 24).tolist() == np.histogram(values, 24)[0].tolist()


@pytest.mark.parametrize(
    "cells",
    [
        [repr(0.1 + k % 5 * 2**-56) for k in range(12)],  # the last bits alone are different
        [str(10**17 + 16 * k) for k in range(12)],
        [str(123456789012345678 + 16 * (k % 3)) for k in range(12)],
        [repr((-1) ** k * (3e38 - k)) for k in range(12)],
        ["7.5"] * 12,
        ["123456789012345678"] * 12,
    ],
)
def test_a_range_that_numpy_cannot_divide_is_counted(cells: list[str]) -> None:
    (found,) = column_distributions({"a": pl.Series([*cells, None])}, {"a": ColumnType("number")})
    numbers = np.array(cells, np.float64)
    assert (sum(found["counts"]), found["missing"]) == (12, 1)
    assert found["counts"][0] >= (numbers == numbers.min()).sum()
    if numbers.max() > numbers.min():
        assert found["counts"][-1] >= (numbers == numbers.max()).sum()


def test_the_largest_range_of_floats_is_divided() -> None:
    assert histogram(np.array([-1.7e308, 1.7e308, 0.1]), 3).tolist() == [1, 1, 1]
