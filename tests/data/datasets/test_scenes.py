"""Scenes of digits: what stands where is what is said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cutaway.data.datasets.digit_scenes import INK, Scenes, compose


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    digits = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    return compose(digits, bunch.target.astype(np.int64), 200, 64, seed=3, fewest=2, most=5)


def test_boxes_are_those_of_the_ink(scenes: Scenes) -> None:
    for pixels, placed, owners in zip(scenes.pixels, scenes.placed, scenes.owners):
        for i, digit in enumerate(placed):
            rows, columns = np.nonzero(owners == i + 1)
            box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert box == (digit.left, digit.top, digit.right, digit.bottom)
        assert ((owners > 0) <= (pixels >= INK)).all()
        assert set(np.unique(owners)) == set(range(len(placed) + 1))


def test_masks_name_the_digits(scenes: Scenes) -> None:
    for mask, owners, placed in zip(scenes.classes(), scenes.owners, scenes.placed):
        assert (mask > 0).tolist() == (owners > 0).tolist()
        for i, digit in enumerate(placed):
            assert (mask[owners == i + 1] == digit.label + 1).all()


def test_numbers_and_sizes_are_those_asked_for(scenes: Scenes) -> None:
    counts = {len(placed) for placed in scenes.placed}
    assert counts <= {1, 2, 3, 4, 5}
    assert {2, 3, 4, 5} <= counts
    heights = [digit.bottom - digit.top for placed in scenes.placed for digit in placed]
    assert min(heights) >= 14
    assert max(heights) <= 32
    assert {digit.label for placed in scenes.placed for digit in placed} == set(range(10))


def test_digits_keep_their_distance(scenes: Scenes) -> None:
    for placed in scenes.placed:
        for i, a in enumerate(placed):
            for b in placed[:i]:
                assert a.right < b.left or b.right < a.left or a.bottom < b.top or b.bottom < a.top


def test_a_seed_makes_the_same_scenes_again(scenes: Scenes) -> None:
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    digits = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    again = compose(digits, bunch.target.astype(np.int64), 200, 64, seed=3, fewest=2, most=5)
    other = compose(digits, bunch.target.astype(np.int64), 200, 64, seed=4, fewest=2, most=5)
    assert np.array_equal(again.pixels, scenes.pixels)
    assert again.placed == scenes.placed
    assert not np.array_equal(other.pixels, scenes.pixels)
