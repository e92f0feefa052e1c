"""One split of pairs: how its batches are put together, and which sources a model cannot read."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError
from cutaway.data.pairs.transforms import PairsSplit
from cutaway.data.samplers import padding_fraction

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)


def split_of(lengths: list[tuple[int, int]]) -> PairsSplit:
    """Sources and targets of these lengths."""
    sources, targets = (torch.tensor(side) for side in zip(*lengths))
    made = [(torch.randint(4, 9, (int(side.sum()),)), side) for side in (sources, targets)]
    return PairsSplit(made[0], made[1], 2, lambda i: f"pair {i}")


@settings(max_examples=50, deadline=None)
@given(LENGTHS, st.integers(1, 120), st.one_of(st.none(), st.integers(0, 9)))
def test_tokens_bound_a_batch_on_both_sides(lengths: list[tuple[int, int]], tokens: int, seed: int | None) -> None:
    split = split_of(lengths)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    plan = split.plan(8, generator, tokens)
    assert torch.cat(plan).sort().values.tolist() == list(range(len(split)))
    for index, batch in zip(plan, split.batches(plan)):
        longest = max(batch.inputs[0].shape[1], batch.inputs[2].shape[1])
        assert longest == int(split.lengths[index].max())
        assert len(index) == 1 or len(index) * longest <= tokens


def test_both_sides_of_a_batch_are_of_nearly_one_length() -> None:
    draw = torch.Generator().manual_seed(0)
    source = torch.randint(5, 30, (2000,), generator=draw)
    target = (source + torch.randint(-3, 4, (2000,), generator=draw)).clamp(min=1)
    split = split_of(list(zip(source.tolist(), target.tolist())))
    plan = split.plan(64, draw, 1000)
    for lengths in (source, target):
        assert padding_fraction(lengths, plan) < 0.12
        assert padding_fraction(lengths, torch.split(torch.randperm(2000, generator=draw), 60)) > 0.3
    assert split.lengths.tolist() == torch.maximum(source, target).tolist()


def test_sources_that_a_model_cannot_read_are_named() -> None:
    split = split_of([(3, 9), (8, 2), (5, 5), (9, 1)])
    split.reject_longer(9)
    said = r"at most 5 tokens.*pair 1: it has 8 tokens; pair 3: it has 9 tokens"
    with pytest.raises(DataError, match=said) as caught:
        split.reject_longer(5)
    assert len(caught.value.problems) == 2
