"""Streams of tokens: each next token once, batches that go on where the ones before ended."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data.dataset_base import IGNORED
from cutaway.data.text.corpus_transforms import EVALUATED, StreamSplit

few = settings(max_examples=40, deadline=None)
lengths_of_streams = st.lists(st.integers(2, 70), min_size=1, max_size=4)


def shown(ids: list[int]) -> str:
    return " ".join(map(str, ids))


def split_of(streams: list[int], length: int, is_stateful: bool) -> StreamSplit:
    """Streams whose tokens all differ: 2, 3, 4, …"""
    whole = torch.arange(2, 2 + sum(streams))
    return StreamSplit(
        torch.split(whole, streams), length, is_stateful, shown, [f"text {k}" for k in range(len(streams))]
    )


@few
@given(lengths_of_streams, st.integers(1, 9), st.integers(1, 12), st.booleans(), st.booleans())
def test_every_next_token_is_a_target_once(
    streams: list[int], length: int, batch_size: int, is_stateful: bool, learns: bool
) -> None:
    split = split_of(streams, length, is_stateful)
    plan = split.plan(batch_size, torch.Generator().manual_seed(0) if learns else None)
    assert torch.cat([*plan]).sort().values.tolist() == list(range(len(split)))
    targets = []
    for (tokens, mask), target in split.batches(plan):
        assert tokens.shape == mask.shape == target.shape
        assert torch.equal(mask, target != IGNORED)
        assert torch.equal(target[mask], tokens[mask] + 1)  # tokens count upwards, so the one after is one more
        assert (tokens[~mask] == 0).all()
        targets.append(target[mask])
    assert split.target is not None
    assert torch.equal(torch.cat(targets).sort().values, split.target)
    assert len(split.target) == sum(streams) - len(streams)


@few
@given(lengths_of_streams, st.integers(1, 9), st.integers(1, 12), st.booleans())
def test_without_a_mask_nothing_is_padding(streams: list[int], length: int, batch_size: int, is_stateful: bool) -> None:
    split = split_of(streams, length, is_stateful)
    for batch in split.batches(split.plan(batch_size, None)):
        (_, mask), (inputs, target) = batch.inputs, batch.without_mask
        assert len(inputs) == (
            1 if mask.all() and not is_stateful else 2
        )  # what is_stateful a state is told of every mask
        assert torch.equal(inputs[0], batch.inputs[0])
        assert torch.equal(target, batch.target)


@few
@given(lengths_of_streams, st.integers(1, 9), st.integers(1, 12), st.booleans())
def test_each_batch_goes_on_where_the_one_before_it_ended(
    streams: list[int], length: int, batch_size: int, learns: bool
) -> None:
    split = split_of(streams, length, is_stateful=True)
    plan = split.plan(batch_size, torch.Generator() if learns else None)
    batches = list(split.batches(plan))
    if len(streams) > 1:
        assert len(plan[0]) == len(streams)
    for before, after in pairwise(batches):
        (tokens, _), target = before
        (later, _), _ = after
        assert len(later) <= len(tokens)
        assert torch.equal(later[:, 0], target[: len(later), -1])
    if learns and len(streams) == 1:
        assert len(plan[0]) == min(batch_size, len(split))


def test_a_score_does_not_depend_on_a_large_batch_size() -> None:
    split = split_of([10_000], 8, is_stateful=True)
    plans = [split.plan(size, None) for size in (EVALUATED, 256)]
    assert all(torch.equal(a, b) for a, b in zip(*plans, strict=True))
    assert len(split.plan(4, None)[0]) == 4


def test_independent_windows_are_shuffled_by_the_generator_alone() -> None:
    split = split_of([100], 3, is_stateful=False)
    first, again, other = (torch.cat([*split.plan(4, torch.Generator().manual_seed(s))]) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.cat([*split.plan(4, None)]), torch.arange(len(split)))


@few
@given(lengths_of_streams, st.integers(1, 9), st.integers(0, 50), st.integers(0, 40))
def test_shifted_windows_hold_the_text_and_what_comes_next(
    streams: list[int], length: int, seed: int, tokens: int
) -> None:
    split = split_of(streams, length, is_stateful=False)
    plan = split.plan(5, torch.Generator().manual_seed(seed), tokens)
    ends = torch.tensor(streams).cumsum(0) + 1  # the last token of each stream
    for (ids, mask), target in split.batches(plan, seed):
        assert torch.equal(target[mask], ids[mask] + 1)
        for row, real in zip(ids, mask):
            own = int((row[0] > ends).sum())
            assert int(real.sum()) == min(length, streams[own] - 1)
            assert row[real][-1] < ends[own]
        if tokens:
            assert ids.numel() <= tokens or len(ids) == 1


def test_training_sees_windows_from_every_place_and_evaluation_always_the_same() -> None:
    split = split_of([400], 8, is_stateful=False)
    plan = split.plan(4, None)

    def firsts(seed: int | None) -> set[int]:
        return {int(row[0]) for (tokens, _), _ in split.batches(plan, seed) for row in tokens}

    assert firsts(None) == firsts(None) == set(range(2, 401, 8))
    assert set().union(*(firsts(seed) for seed in range(80))) == set(range(2, 394))  # 393 is the last whole window's
    carried = split_of([400], 8, is_stateful=True)
    batches = [torch.cat([tokens for (tokens, _), _ in carried.batches(carried.plan(4, None), s)]) for s in (None, 3)]
    assert torch.equal(*batches)


def test_a_number_of_tokens_says_how_many_rows_are_carried() -> None:
    split = split_of([1000], 8, is_stateful=True)
    plan = split.plan(64, torch.Generator(), tokens=50)
    assert len(plan[0]) == 6
    assert len(split.plan(64, torch.Generator(), tokens=3)[0]) == 1


def test_windows_are_called_by_their_tokens() -> None:
    alone = StreamSplit([torch.arange(2, 702)], 64, True, shown)
    assert alone.name(10) == "tokens 640 to 698"  # the last token is predicted and not read
    assert alone.name(0) == "tokens 0 to 63"
    assert alone.row(0) == {"text": shown(list(range(2, 67)))}
    two = split_of([9, 3], 4, is_stateful=True)
    assert [two.name(i) for i in range(len(two))] == ["text 0, tokens 0 to 3", "text 0, tokens 4 to 7", "text 1"]
    assert two.row(2) == {"text": "11 12 13"}
    assert two.image(0) is None


@pytest.mark.parametrize("is_stateful", [True, False])
def test_short_windows_are_not_padded_to_the_length(is_stateful: bool) -> None:
    (((tokens, mask), target),) = split_of([3], 64, is_stateful).batches([torch.tensor([0])])
    assert tokens.tolist() == [[2, 3]]
    assert target.tolist() == [[3, 4]]
    assert mask.all()
