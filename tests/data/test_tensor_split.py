"""Splits in memory: their batches, of which several small ones are cut out at once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data import dataset_base
from cutaway.data.dataset_base import TensorSplit


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 9), st.booleans(), st.integers(0, 99))
@settings(deadline=None)
def test_batches_are_what_indexing_gives(sizes: list[int], columns: int, targets: bool, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    inputs, target = torch.randn(50, columns, generator=rng), torch.randint(9, (50,), generator=rng)
    order = [torch.randint(50, (size,), generator=rng) for size in sizes]
    batches = [*TensorSplit(inputs, target if targets else None).batches(iter(order))]
    assert len(batches) == len(order)
    for batch, index in zip(batches, order):
        assert torch.equal(batch.inputs[0], inputs[index])
        assert torch.equal(batch.target, target[index] if targets else torch.empty(len(index), 0))


@pytest.mark.parametrize("size", [1, 16, 50, 64])
def test_each_batch_begins_where_sums_are_added_up_alike(size: int) -> None:
    """A run that goes on in the middle of an epoch cuts other batches out together, and its sums are the same."""
    inputs = torch.randn(300, 3)
    split = TensorSplit(inputs, torch.arange(300))
    order = [*torch.arange(300).split(size)]  # type: ignore[no-untyped-call]
    for batches in (split.batches(order), split.batches(order[1:])):
        assert {batch.inputs[0].data_ptr() % dataset_base.LINE for batch in batches} == {0}


def test_no_more_is_held_at_once_than_it_says() -> None:
    taken: list[int] = []

    def order() -> object:
        for k in range(200):
            taken.append(k)
            yield torch.arange(64) + k

    split = TensorSplit(torch.zeros(300, 16), None)  # a batch is 4 KiB
    batches = split.batches(order())  # type: ignore[arg-type]
    next(batches)
    assert len(taken) == dataset_base.TOGETHER // (64 * 16 * 4) == 32
