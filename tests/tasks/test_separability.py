"""Whether a hyperplane separates two classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from cutaway.tasks.classification import linearly_separable

CORNERS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([0, 0, 0, 1], True), ([0, 1, 1, 1], True), ([0, 1, 1, 0], False), ([0, 0, 1, 1], True), ([1, 1, 1, 1], True)],
    ids=["and", "or", "xor", "first", "one class"],
)
def test_functions_of_two_bits(labels: list[int], expected: bool) -> None:
    assert linearly_separable(CORNERS, np.array(labels)) is expected


@pytest.mark.parametrize(("kind", "expected"), [(0, True), (1, False), (2, False)])
def test_the_irises_against_the_rest(kind: int, expected: bool) -> None:
    x, y = load_iris(return_X_y=True)
    assert linearly_separable(x, y == kind) is expected


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 30), features=st.integers(1, 5), seed=st.integers(0, 1000), power=st.integers(-6, 6))
def test_what_a_hyperplane_made_is_separable_whatever_its_units(n: int, features: int, seed: int, power: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(n, features)), rng.normal(size=features)
    score = x @ w
    x = x[np.abs(score) > 1e-3]
    y = x @ w > 0
    if len(x) == 0:
        return
    units = 10.0 ** (power * np.arange(features) / features)
    assert linearly_separable(x * units + 5 * units, y)


def test_the_same_example_in_both_classes_is_not_separable() -> None:
    assert not linearly_separable(np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([True, False]))


def test_a_constant_column_changes_nothing() -> None:
    assert linearly_separable(np.column_stack([CORNERS, np.full(4, 7.0)]), np.array([0, 0, 0, 1]))
