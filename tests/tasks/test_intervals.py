"""Intervals hold what they say they hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.tasks.metrics import bootstrap, mean, proportion


@given(st.integers(1, 10_000), st.data())
def test_a_share_lies_in_its_interval(count: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, count))
    m = proportion(right, count)
    assert 0 <= m.low <= m.value <= m.high <= 1


def test_wilson_is_the_published_example() -> None:
    m = proportion(15, 148)  # R. Newcombe, Statistics in Medicine 17, 1998, table I: 15 of 148
    assert (round(m.low, 4), round(m.high, 4)) == (0.0624, 0.1605)


def test_nothing_counted_is_unknown() -> None:
    assert math.isnan(proportion(0, 0).value)
    assert proportion(0, 0).to_json() == {"value": None, "low": None, "high": None}


def test_intervals_cover_as_often_as_they_promise() -> None:
    rng = np.random.default_rng(0)
    hits = {"proportion": 0, "mean": 0, "bootstrap": 0}
    for _ in range(200):
        x = rng.normal(3, 2, 60)
        m = mean(x)
        hits["mean"] += m.low <= 3 <= m.high
        b = bootstrap(lambda i, x=x: float(x[i].mean()), len(x))
        hits["bootstrap"] += b.low <= 3 <= b.high
        s = proportion(rng.binomial(60, 0.9), 60)
        hits["proportion"] += s.low <= 0.9 <= s.high
    assert all(178 <= h <= 199 for h in hits.values()), hits  # 95 % of 200, give or take


def test_a_bootstrap_repeats() -> None:
    x = np.arange(50.0)
    assert bootstrap(lambda i: float(x[i].mean()), 50) == bootstrap(lambda i: float(x[i].mean()), 50)


def test_one_value_has_no_finite_interval() -> None:
    assert mean(np.array([2.0])).high == math.inf
    assert mean(np.array([2.0])).to_json()["high"] is None
    assert mean(np.array([2.0])).value == pytest.approx(2.0)
