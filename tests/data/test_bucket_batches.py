"""Batches of nearly equal length hold every example once; padded batches hold what the examples hold."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data.dataset_base import IGNORED, SequenceSplit
from cutaway.data.samplers import bucket_batches, padding_fraction

many_lengths = st.lists(st.integers(1, 30), min_size=1, max_size=200)


@settings(max_examples=60, deadline=None)
@given(lengths=many_lengths, batch_size=st.integers(1, 16), seed=st.none() | st.integers(0, 5))
def test_every_example_is_in_one_batch(lengths: list[int], batch_size: int, seed: int | None) -> None:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    plan = bucket_batches(torch.tensor(lengths), batch_size, generator)
    assert sorted(torch.cat(plan).tolist()) == list(range(len(lengths)))
    assert all(len(batch) <= batch_size for batch in plan)
    if generator is not None:
        again = bucket_batches(torch.tensor(lengths), batch_size, torch.Generator().manual_seed(seed or 0))
        assert all(torch.equal(a, b) for a, b in zip(plan, again))


@settings(max_examples=60, deadline=None)
@given(lengths=many_lengths, tokens=st.integers(1, 90), seed=st.none() | st.integers(0, 5), backwards=st.booleans())
def test_a_batch_holds_so_many_tokens(lengths: list[int], tokens: int, seed: int | None, backwards: bool) -> None:
    sizes = torch.tensor(lengths)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    plan = bucket_batches(sizes, 3, generator, tokens, by=-sizes if backwards else None)
    assert sorted(torch.cat(plan).tolist()) == list(range(len(lengths)))
    rooms = [len(batch) * int(sizes[batch].max()) for batch in plan]
    assert all(room <= tokens or len(batch) == 1 for room, batch in zip(rooms, plan))
    if generator is None:  # none would have taken in the first of the next
        for batch, after in pairwise(plan):
            both = torch.cat([batch, after[:1]])
            assert len(both) * int(sizes[both].max()) > tokens


def test_tokens_in_a_batch_keep_the_pools() -> None:
    lengths = torch.arange(1, 101).repeat(40)
    plans = [bucket_batches(lengths, 1, torch.Generator().manual_seed(s), 2000) for s in (0, 0, 1)]
    assert [b.tolist() for b in plans[0]] == [b.tolist() for b in plans[1]]
    assert [b.tolist() for b in plans[0]] != [b.tolist() for b in plans[2]]
    assert padding_fraction(lengths, plans[0]) < 0.06
    assert len(plans[0]) < 1.15 * int(lengths.sum()) / 2000


def test_lengths_spread_evenly_leave_little_padding() -> None:
    lengths = torch.arange(1, 101).repeat(64)
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(0))
    at_random = padding_fraction(lengths, torch.split(order, 64))
    assert 0.45 < at_random < 0.52
    assert padding_fraction(lengths, bucket_batches(lengths, 64, torch.Generator().manual_seed(0))) < 0.05
    assert padding_fraction(lengths, bucket_batches(lengths, 64, None)) < 0.02


def test_the_share_of_padding_is_counted() -> None:
    assert padding_fraction(torch.tensor([1, 3, 4]), [torch.tensor([0, 1]), torch.tensor([2])]) == 1 - 8 / 10
    assert padding_fraction(torch.tensor([2, 2]), [torch.tensor([0, 1])]) == 0


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=20), by_step=st.booleans(), seed=st.integers(0, 9))
def test_a_padded_batch_holds_what_its_examples_hold(lengths: list[int], by_step: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(sum(lengths), 2, generator=generator)
    target = torch.arange(sum(lengths) if by_step else len(lengths))
    split = SequenceSplit(values, torch.tensor(lengths), target, by_step=by_step)
    pieces, answers = values.split(lengths), target.split(lengths) if by_step else target
    plan = split.plan(4, generator)
    for index, ((x, mask), y) in zip(plan, split.batches(plan)):
        assert x.shape[:2] == mask.shape == (len(index), max(lengths[i] for i in index))
        for row, real, wanted, i in zip(x, mask, y, index.tolist()):
            assert torch.equal(row[real], pieces[i])
            assert not row[~real].any()
            assert int(real.sum()) == lengths[i]
            assert real[: lengths[i]].all()
            if by_step:
                assert torch.equal(wanted[real], answers[i])
                assert (wanted[~real] == IGNORED).all()
            else:
                assert wanted == answers[i]


def test_padding_is_what_it_is_told_to_be() -> None:
    split = SequenceSplit(torch.arange(5, 10), torch.tensor([3, 2]), None, padding=1)
    (((values, mask), _),) = split.batches([torch.arange(2)])
    assert values.tolist() == [[5, 6, 7], [8, 9, 1]]
    assert mask.tolist() == [[True] * 3, [True, True, False]]
    assert [batch.tolist() for batch in split.plan(64, None, tokens=3)] == [[1], [0]]
