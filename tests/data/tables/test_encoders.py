"""Columns become inputs: scaled as asked, missing and unknown cells told apart, and the same after JSON."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cutaway.data.tables.column_types import (
    MOST_CATEGORIES,
    Category,
    ColumnType,
    Encoder,
    Numeric,
    encoder_from_json,
    fit_encoder,
    strip_missing,
)

NUMBER, CATEGORY = ColumnType("number"), ColumnType("category")


def column(*cells: object) -> pl.Series:
    return strip_missing(pl.Series("c", [None if c is None else str(c) for c in cells], dtype=pl.String))


def fitted(type: ColumnType, *cells: object, scale: str = "standard") -> Encoder:
    encoder = fit_encoder("c", type, column(*cells), scale)
    assert encoder is not None
    return encoder


def test_standard_equals_scikit_learn() -> None:
    values = np.random.default_rng(0).normal(50, 9, 200)
    ours = fitted(NUMBER, *values).encode(column(*values))
    np.testing.assert_allclose(ours, StandardScaler().fit_transform(values[:, None]), rtol=1e-5, atol=1e-6)


def test_one_hot_equals_scikit_learn() -> None:
    cells = np.random.default_rng(0).choice(["red", "green", "blue"], 50)
    ours = fitted(CATEGORY, *cells)
    assert ours.features == ("c=blue", "c=green", "c=red", "c=(unknown)")
    theirs = OneHotEncoder(sparse_output=False).fit_transform(cells[:, None])
    np.testing.assert_array_equal(ours.encode(column(*cells))[:, :3], theirs)


def test_missing_numbers_take_the_median_and_are_told_apart() -> None:
    encoder = fitted(NUMBER, 1, 2, 3, 10, None, scale="none")
    assert encoder.features == ("c", "c missing")
    np.testing.assert_array_equal(encoder.encode(column(7, None)), [[7, 0], [2.5, 1]])
    complete = fitted(NUMBER, 1, 2, 3, 10, scale="none")
    np.testing.assert_array_equal(complete.encode(column(None)), [[2.5]])


def test_a_column_that_is_constant_in_training_stays_at_zero() -> None:
    encoder = fitted(NUMBER, *[0.1] * 7)  # their mean is not 0.1 to the last bit
    np.testing.assert_allclose(encoder.encode(column(0.1)), [[0]], atol=1e-6)
    assert np.isfinite(encoder.encode(column(5))).all()


def test_quantiles_map_to_the_normal_curve_and_clip() -> None:
    values = np.random.default_rng(0).exponential(size=5000)
    encoder = fitted(NUMBER, *values, scale="quantile")
    assert isinstance(encoder, Numeric)
    assert len(encoder.curve) == 1000
    mapped = encoder.encode(column(*values))[:, 0]
    assert abs(mapped.mean()) < 0.01
    assert abs(mapped.std() - 1) < 0.01
    np.testing.assert_array_equal(np.argsort(mapped, kind="stable")[500:-500], np.argsort(values)[500:-500])
    low, high = encoder.encode(column(-1e9, 1e9))[:, 0]
    assert (low, high) == (mapped.min(), mapped.max())


def test_quantiles_with_ties_give_each_value_one_place() -> None:
    encoder = fitted(NUMBER, *[0] * 50, *[1] * 50, scale="quantile")
    zero, one = encoder.encode(column(0, 1))[:, 0]
    assert zero == pytest.approx(-one)  # the quarter and three quarters of the curve
    assert one == pytest.approx(0.6745, abs=1e-3)


def test_dates_have_days_and_places_in_year_week_and_day() -> None:
    day = ColumnType("date", "%Y-%m-%d")
    encoder = fitted(day, "2020-01-06", "2020-06-01", None)
    assert encoder.features == (
        "c (days)",
        *("c (sin of year)", "c (cos of year)", "c (sin of week)", "c (cos of week)"),
        "c missing",
    )
    two_mondays, missing = encoder.encode(column("2020-01-13", "2020-01-20", None))[:2], encoder.encode(column(None))[0]
    np.testing.assert_allclose(two_mondays[0, 3:5], two_mondays[1, 3:5], atol=1e-5)
    np.testing.assert_array_equal(missing[1:], [0, 0, 0, 0, 1])
    with_time = fitted(ColumnType("date", "%Y-%m-%d %H:%M"), "2020-01-06 06:00", "2020-06-01 18:00")
    assert with_time.features[-1] == "c (cos of day)"
    np.testing.assert_allclose(with_time.encode(column("2021-03-03 06:00"))[0, -2:], [1, 0], atol=1e-4)


def test_rare_missing_and_unseen_categories() -> None:
    cells = [f"v{i}" for i in range(MOST_CATEGORIES + 5)] * 2 + ["v104", "v103", None]
    encoder = fitted(CATEGORY, *cells)
    assert isinstance(encoder, Category)
    assert len(encoder.features) == MOST_CATEGORIES + 2
    assert encoder.rare == 5
    assert encoder.features[-2:] == ("c=(missing)", "c=(unknown)")
    assert {"v103", "v104"} <= set(encoder.categories)  # the two that are most frequent, though last by name
    coded = encoder.encode(column("v104", None, "never seen"))
    assert coded.sum(1).tolist() == [1, 1, 1]
    assert coded.argmax(1)[1:].tolist() == [MOST_CATEGORIES, MOST_CATEGORIES + 1]
    assert encoder.unknown(column("v104", None, "never seen")) == 1
    no_gaps = fitted(CATEGORY, "a", "b")
    assert isinstance(no_gaps, Category)
    assert no_gaps.unknown(column(None, "a")) == 1  # training had no missing cell to learn from


def test_nothing_to_fit() -> None:
    assert fit_encoder("c", NUMBER, column("x", None), "standard") is None
    assert fit_encoder("c", CATEGORY, column(None), "standard") is None


@settings(max_examples=60, deadline=None)
@given(
    cells=st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6), st.sampled_from(["?", "x"])), min_size=2, max_size=30),
    scale=st.sampled_from(["standard", "quantile", "none"]),
    category=st.booleans(),
)
def test_json_gives_an_equal_encoder_and_a_cell_alone_is_coded_as_among_others(
    cells: list[float | str | None], scale: str, category: bool
) -> None:
    encoder = fit_encoder("c", CATEGORY if category else NUMBER, column(*cells), scale)
    if encoder is None:
        return
    again = encoder_from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))
    assert again == encoder
    together = encoder.encode(column(*cells))
    assert together.shape == (len(cells), len(encoder.features))
    assert np.isfinite(together).all()
    np.testing.assert_array_equal(again.encode(column(*cells)), together)
    for i, cell in enumerate(cells):
        np.testing.assert_array_equal(encoder.encode(column(cell))[0], together[i])
