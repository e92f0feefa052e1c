"""The scenes of digits with captions: every caption is true, every true one is there, no digit is in two splits."""

from __future__ import annotations

import re
from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.datasets.digit_scenes import (
    SMALL,
    Placed,
    compose_described,
    relations,
    scikit_learn_digits,
    true_captions,
)
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings

SAID = re.compile(
    r"an? (\d) (left of|right of|above|below) an? (\d)(?: and an? (\d) (left of|right of|above|below) the (\d))?"
)
BOX = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 9), st.integers(1, 9))


def placed(boxes: list[tuple[int, int, int, int]]) -> list[Placed]:
    return [Placed(k, k, left, top, left + w, top + h) for k, (left, top, w, h) in enumerate(boxes)]


def apart(a: Placed, b: Placed) -> bool:
    return a.right <= b.left or b.right <= a.left or a.bottom <= b.top or b.bottom <= a.top


def holds(a: Placed, relation: str, b: Placed) -> bool:
    """By the pixels of the boxes, one by one."""
    columns, rows = ([(x.left, x.right) for x in (a, b)], [(x.top, x.bottom) for x in (a, b)])
    (first, second), ahead = (
        (columns, ("left of", "right of")) if relation.endswith("of") else (rows, ("above", "below"))
    )
    if relation == ahead[1]:
        first, second = second, first
    return all(p < q for p in range(*first) for q in range(*second))


@given(st.lists(BOX, min_size=2, max_size=3))
def test_what_is_said_is_true_and_all_that_is_true_is_said(boxes: list[tuple[int, int, int, int]]) -> None:
    digits = placed(boxes)
    if not all(apart(a, b) for a, b in permutations(digits, 2)):
        return
    captions = true_captions(digits)
    assert len(captions) == len(set(captions))
    found = set()
    for caption in captions:
        match = SAID.fullmatch(caption)
        assert match is not None, caption
        a, first, b, c, second, again = match.groups()
        assert holds(digits[int(a)], first, digits[int(b)])
        if len(digits) == 3:
            assert again == b
            assert holds(digits[int(c)], second, digits[int(b)])
        found.add((a, first, b, c, second))
    ways = ("left of", "right of", "above", "below")
    pairs = {
        (a, b): [w for w in ways if holds(digits[a], w, digits[b])] for a, b in permutations(range(len(digits)), 2)
    }
    assert all(pairs.values())
    if len(digits) == 2:
        assert len(found) == sum(map(len, pairs.values()))
    else:
        assert len(found) == sum(len(pairs[a, b]) * len(pairs[c, b]) for a, b, c in permutations(range(3)))


def test_an_article_fits_its_digit_and_a_relation_its_opposite() -> None:
    a, b = Placed(8, 0, 0, 0, 3, 3), Placed(7, 1, 5, 6, 9, 9)
    assert true_captions([a, b]) == ["an 8 left of a 7", "an 8 above a 7", "a 7 right of an 8", "a 7 below an 8"]
    assert relations(b, a) == ["right of", "below"]


def test_of_three_digits_no_two_are_alike() -> None:
    digits, labels = scikit_learn_digits()
    pixels, texts = compose_described(digits, labels, 60, SMALL, seed=3)
    assert pixels.shape == (60, 24, 24)
    again, same = compose_described(digits, labels, 60, SMALL, seed=3)
    assert np.array_equal(pixels, again)
    assert texts == same
    for of_scene in texts:
        if " and " in of_scene[0]:
            assert len(set(re.findall(r"\d", of_scene[0]))) == 3


def test_the_small_set_has_its_splits_and_all_captions_of_its_test_scenes() -> None:
    data = open_data("digit_captions_small", DataSettings())
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 4000, "val": 250, "test": 500}
    test = data.splits["test"]
    assert {len(test.references(i)) for i in range(50)} >= {2, 4}  # type: ignore[attr-defined]
    assert data.spec.target.column == "caption"
