"""Draws that belong to places: even, apart from one another, and the same in any company."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.text.corpus_transforms import mix_bits, uniform

PLACES = np.arange(100_000)


def test_the_mixing_is_splitmix64s() -> None:
    # The first outputs of the published generator, for the seed 1234567: its state steps by GAMMA, and is mixed.
    states = [(1234567 + k * 0x9E3779B97F4A7C15) % 2**64 for k in (1, 2, 3)]
    wanted = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert mix_bits(np.array(states, np.uint64)).tolist() == wanted


@pytest.mark.parametrize("draw", [0, 1, 2])
@pytest.mark.parametrize("seed", [0, 7, 2**63 + 5, 2**64 + 1])
def test_draws_are_even(seed: int, draw: int) -> None:
    found = uniform(seed, PLACES, draw)
    assert found.min() >= 0
    assert found.max() < 1
    counts = np.histogram(found, 100, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 160  # chi-square of 99 degrees: passed once in 10⁴


def test_draws_of_neighbours_seeds_and_times_are_unlike() -> None:
    first = uniform(0, PLACES, 0)
    others = [uniform(1, PLACES, 0), uniform(0, PLACES, 1), uniform(1, PLACES, 1), np.roll(first, 1)]
    for other in others:
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.02


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=9), st.integers(0, 2**64))
def test_a_place_has_its_draw_in_any_company(places: list[int], seed: int) -> None:
    together = uniform(seed, np.array([places, places[::-1]]), 2)
    assert together[0].tolist() == together[1][::-1].tolist()
    assert [uniform(seed, np.array([place]), 2)[0] for place in places] == together[0].tolist()
