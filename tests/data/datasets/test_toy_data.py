"""The toys: on the curves that they are said to be on, and the same every time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cutaway.data.datasets import toy_data


def test_xor_is_the_truth_table() -> None:
    points, labels = toy_data.xor()
    assert [int(a) ^ int(b) for a, b in points] == labels.tolist()
    assert len({tuple(p) for p in points}) == 4


@pytest.mark.parametrize("toy", [toy_data.moons, toy_data.circles, toy_data.spirals])
def test_seeded_noisy_and_even(toy: Callable[[int, float, int], toy_data.Points]) -> None:
    points, labels = toy(300, 0.1, 7)
    again, _ = toy(300, 0.1, 7)
    other, _ = toy(300, 0.1, 8)
    clean, same = toy(300, 0.0, 7)
    assert np.array_equal(points, again)
    assert not np.array_equal(points, other)
    assert np.array_equal(labels, same)
    assert len(set(np.bincount(labels))) == 1
    assert np.std(points - clean) == pytest.approx(0.1, rel=0.15)


def test_without_noise_points_lie_on_their_curves() -> None:
    points, labels = toy_data.circles(200, 0.0, 0)
    np.testing.assert_allclose(np.hypot(*points.T), np.where(labels == 0, 1.0, 0.5))
    points, labels = toy_data.moons(200, 0.0, 0)
    centre = np.where(labels[:, None] == 0, [0.0, 0.0], [1.0, 0.5])
    np.testing.assert_allclose(np.hypot(*(points - centre).T), 1.0)
    assert ((points[:, 1] >= 0) == (labels == 0))[np.abs(points[:, 1]) > 0.5].all()
    points, labels = toy_data.spirals(300, 0.0, 0)
    radius = np.hypot(*points.T)
    turns = (np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi) - 0.75 * radius - labels / 3) % 1
    assert np.minimum(turns, 1 - turns).max() < 1e-9
