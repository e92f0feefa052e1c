"""The cache: it grows, it is chosen from, and what is read piece by piece is what is read at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.nn.kv_cache import FIRST, Cache, LayerCache
from cutaway.nn.position import rotation
from tests.models.blocks import CACHED, CROSSING, DIM, block
from tests.models.blocks import through as through_block


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Float64 numbers from the standard normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- one slot -----------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(pieces=st.lists(st.integers(1, 90), min_size=1, max_size=6), capacity=st.sampled_from([0, 1, 10, 500]))
def test_a_slot_holds_what_was_put_in(pieces: list[int], capacity: int) -> None:
    slot, k, v = LayerCache(capacity), normal(2, 3, sum(pieces), 4), normal(2, 3, sum(pieces), 5, seed=1)
    for keys, values in zip(k.split(pieces, 2), v.split(pieces, 2)):
        found = slot.append(keys, values)
        assert torch.equal(found[0], k[:, :, : slot.length])
        assert torch.equal(found[1], v[:, :, : slot.length])
    assert slot.length == sum(pieces)
    assert slot.keys is not None
    assert slot.keys.shape[2] >= max(slot.length, capacity)


def test_room_is_taken_before_it_is_needed_and_doubled() -> None:
    slot, token = LayerCache(), normal(1, 1, 1, 2)
    rooms = []
    for _ in range(4 * FIRST):
        slot.append(token, token)
        assert slot.keys is not None
        if not rooms or rooms[-1] is not slot.keys:
            rooms.append(slot.keys)
    assert [room.shape[2] for room in rooms] == [FIRST, 2 * FIRST, 4 * FIRST]
    for capacity in (5, 4 * FIRST):
        whole = LayerCache(capacity)
        whole.append(token, token)
        assert whole.keys is not None
        assert whole.keys.shape[2] == capacity


def test_a_token_is_written_in_place() -> None:
    slot = LayerCache(10)
    known, _ = slot.append(normal(1, 1, 3, 2), normal(1, 1, 3, 2))
    kept = known.clone()
    more, _ = slot.append(normal(1, 1, 1, 2, seed=2), normal(1, 1, 1, 2))
    assert more.data_ptr() == known.data_ptr()
    assert torch.equal(known, kept)  # what was given out stays what it was


def test_what_does_not_grow_is_kept_as_it_is() -> None:
    slot, k = LayerCache(), normal(2, 3, 5, 4)
    slot.hold(k, k)
    assert slot.keys is k
    assert slot.length == 5
    assert torch.equal(slot.known()[0], k)


@pytest.mark.parametrize("rows", [[1, 0], [2, 2, 2, 0], [], [1]], ids=str)
def test_rows_are_chosen_as_often_as_they_are_named(rows: list[int]) -> None:
    slot, k, v = LayerCache(), normal(3, 2, 4, 5), normal(3, 2, 4, 6, seed=1)
    slot.append(k, v)
    chosen = slot.select(torch.tensor(rows, dtype=torch.long))
    assert torch.equal(chosen.known()[0], k[rows])
    assert torch.equal(chosen.known()[1], v[rows])
    chosen.append(normal(len(rows), 2, 1, 5), normal(len(rows), 2, 1, 6))
    assert (chosen.length, slot.length) == (5, 4)
    assert torch.equal(slot.known()[0], k)  # the two have nothing in common
    assert LayerCache(7).select(torch.tensor([0])).length == 0


# --- all layers ---------------------------------------------------------------------------------------------------


def test_nothing_is_masked_where_all_tokens_are_real() -> None:
    cache, tokens = Cache(1), torch.zeros(2, 3, dtype=torch.long)
    positions, mask, causal = cache.read(tokens, torch.ones(2, 3, dtype=torch.bool))
    assert (positions.tolist(), mask, causal) == ([0, 1, 2], None, True)
    positions, mask, causal = cache.read(tokens[:, :1])
    assert (positions.tolist(), mask, causal) == ([3], None, False)
    positions, mask, causal = cache.read(tokens[:, :2])
    assert (positions.tolist(), causal) == ([4, 5], False)
    assert mask is not None
    assert mask.int().tolist() == [[[[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]]]


def test_rows_of_different_lengths_have_positions_of_their_own() -> None:
    cache, tokens = Cache(1), torch.zeros(2, 3, dtype=torch.long)
    positions, mask, causal = cache.read(tokens, torch.tensor([[True, True, True], [True, False, False]]))
    assert positions.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert mask is not None
    assert mask.int()[1, 0].tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
    positions, mask, causal = cache.read(tokens[:, :1])
    assert positions.tolist() == [[3], [1]]
    assert mask is not None
    assert mask.int()[:, 0, 0].tolist() == [[1, 1, 1, 1], [1, 0, 0, 1]]
    assert not causal
    chosen = cache.select(torch.tensor([1]))
    assert chosen.real is not None
    assert chosen.real.int().tolist() == [[1, 0, 0, 1]]
    assert chosen.length == 4


def test_the_cache_knows_how_many_are_read() -> None:
    cache = Cache(2)
    assert len(cache) == 0
    cache.layers[0].append(normal(3, 1, 2, 2), normal(3, 1, 2, 2))
    assert len(cache) == 3
    assert len(cache.select(torch.tensor([0, 0, 1, 2]))) == 4


FORMS = sorted(form for form in CACHED if form not in CROSSING)


@torch.no_grad()
def through(blocks: list[Any], z: Tensor, mask: Tensor | None, cache: Cache) -> Tensor:
    """What leaves the causal blocks, which read on from the cache."""
    positions, seen, causal = cache.read(z[..., 0].long(), mask)
    turn = rotation(positions, DIM // 2, z.dtype)
    for i, one in enumerate(blocks):
        z = through_block(one, z, seen, causal=causal, cache=cache.layers[i], positions=turn)
    return z


@settings(max_examples=30, deadline=None)
@given(
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    form=st.sampled_from(FORMS),
    capacity=st.sampled_from([0, 3, 40]),
)
def test_any_pieces_are_the_whole(pieces: list[int], form: str, capacity: int) -> None:
    blocks, z = [block(form), block(form)], normal(2, sum(pieces), 8)
    whole = through(blocks, z, None, Cache(2))
    cache = Cache(2, capacity)
    parts = [through(blocks, part, None, cache) for part in z.split(pieces, 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-10, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), form=st.sampled_from(FORMS))
def test_rows_that_grow_by_different_pieces_are_the_rows_alone(data: st.DataObject, form: str) -> None:
    """Each piece has so many real tokens of each row, none among them, and padding behind; some of the rows are chosen
    on the way."""
    blocks = [block(form), block(form)]
    sizes = data.draw(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=4))
    sizes = [[max(n, 1) for n in sizes[0]], *(piece for piece in sizes[1:] if max(piece))]
    lengths = [sum(piece[row] for piece in sizes) for row in range(3)]
    rows = [normal(1, max(length, 1), 8, seed=row) for row, length in enumerate(lengths)]
    alone = [through(blocks, z, None, Cache(2)) for z in rows]
    cache, read = Cache(2), [0, 0, 0]
    order_of = [0, 1, 2]
    for piece in sizes:
        longest = max(piece)
        z, mask = torch.full((len(order_of), longest, 8), 9.0, dtype=torch.float64), []
        for i, row in enumerate(order_of):
            z[i, : piece[row]] = rows[row][0, read[row] : read[row] + piece[row]]
            mask.append([place < piece[row] for place in range(longest)])
        found = through(blocks, z, torch.tensor(mask), cache)
        assert found.isfinite().all()
        for i, row in enumerate(order_of):
            expected = alone[row][0, read[row] : read[row] + piece[row]]
            torch.testing.assert_close(found[i, : piece[row]], expected, rtol=1e-9, atol=1e-9)
        for row in range(3):
            read[row] += piece[row]
        chosen = data.draw(st.lists(st.integers(0, len(order_of) - 1), min_size=1, max_size=4))
        cache, order_of = cache.select(torch.tensor(chosen)), [order_of[i] for i in chosen]
