"""Batches that are computed when they are asked for, and permutations of which nothing is held."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data import samplers
from cutaway.data.samplers import BatchPlan, Permutation, SampleOrder


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**62))
def test_every_number_stands_at_one_place(n: int, seed: int) -> None:
    found = Permutation(n, seed).part(0, n)
    assert found.sort().values.tolist() == list(range(n))


@pytest.mark.parametrize("n", [4_194_305, 100_000_007, 3_000_000_019])
def test_a_part_is_the_same_wherever_it_is_begun(n: int) -> None:
    order = Permutation(n, 7)
    end = n - 3 * samplers.AT_ONCE // 2
    whole = order.part(end, n)
    assert len(whole) == n - end
    assert len(whole.unique()) == len(whole)
    assert 0 <= int(whole.min()) <= int(whole.max()) < n
    assert torch.equal(Permutation(n, 7).part(end + 10_000, end + 10_100), whole[10_000:10_100])
    assert not torch.equal(Permutation(n, 8).part(end, n), whole)


def test_it_mixes_as_well_as_a_drawn_order() -> None:
    """Places and what stands there, in 64 × 64 cells, have a χ² of 63² degrees of freedom, so a mean of 3 969 with a
    deviation of 89. Neighbours have nothing to do with each other: their correlation has a deviation of 1/√n."""
    n = 1 << 20
    for seed in range(3):
        found = Permutation(n, seed).part(0, n).numpy()
        cells = np.histogram2d(np.arange(n), found, bins=64)[0]
        assert abs(((cells - n / 4096) ** 2 / (n / 4096)).sum() - 3969) < 5 * 89
        steps = np.diff(found.astype(np.float64))
        assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 5 / np.sqrt(n)
        assert int((np.abs(steps) == 1).sum()) < 16  # two are expected
        assert int((found == np.arange(n)).sum()) < 12  # one is


@pytest.mark.parametrize("held", [1 << 22, 10])
def test_an_order_is_cut_into_batches_and_gone_on_with(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(samplers, "HELD", held)
    plan = SampleOrder(103, torch.Generator().manual_seed(3)).plan(10)
    assert isinstance(plan, BatchPlan)
    assert [len(batch) for batch in plan] == [*[10] * 10, 3]
    assert torch.cat([*plan]).sort().values.tolist() == list(range(103))
    assert [batch.tolist() for batch in plan[7:]] == [batch.tolist() for batch in plan][7:]
    assert [batch.tolist() for batch in plan[1::3]] == [batch.tolist() for batch in plan][1::3]
    assert plan[-1].tolist() == [*plan][-1].tolist()
    with pytest.raises(IndexError):
        plan[11]
    other = SampleOrder(103, torch.Generator().manual_seed(4)).plan(10)
    assert other[0].tolist() != plan[0].tolist()
    assert torch.cat([*SampleOrder(103, None).plan(10)]).tolist() == list(range(103))


def test_few_examples_are_drawn_as_they_always_were() -> None:
    drawn = torch.randperm(100, generator=torch.Generator().manual_seed(5))
    assert torch.equal(torch.cat([*SampleOrder(100, torch.Generator().manual_seed(5)).plan(7)]), drawn)
