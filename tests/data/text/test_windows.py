"""Windows: every place once on the grid; wherever it is shifted to, windows stay whole and within their stream."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data.text.corpus_transforms import Windows

few = settings(max_examples=60, deadline=None)
places = st.lists(st.integers(1, 60), min_size=1, max_size=5)


def covered(starts: torch.Tensor, lengths: torch.Tensor) -> list[int]:
    return [i for start, length in zip(starts.tolist(), lengths.tolist()) for i in range(start, start + length)]


@few
@given(places, st.integers(0, 2), st.integers(1, 9))
def test_windows_cover_every_place_once(counts: list[int], gap: int, length: int) -> None:
    found = Windows(counts, gap, length)
    begins = [sum(counts[:k]) + k * gap for k in range(len(counts))]
    wanted = [i for begin, count in zip(begins, counts) for i in range(begin, begin + count)]
    starts, lengths = found.grid()(torch.arange(len(found)))
    assert covered(starts, lengths) == wanted
    assert lengths.max() <= length


@few
@given(places, st.integers(0, 2), st.integers(1, 9), st.integers(0, 99))
def test_shifted_windows_are_whole_and_within_their_stream(counts: list[int], gap: int, length: int, seed: int) -> None:
    found = Windows(counts, gap, length)
    every = torch.arange(len(found))
    starts, lengths = found.grid(seed)(every)
    assert len(starts) == len(found)
    for start, size, stream in zip(starts.tolist(), lengths.tolist(), found.stream(every).expand(len(found)).tolist()):
        begin = int(found.begins[stream])
        assert size == min(length, counts[stream])
        assert begin <= start
        assert start + size <= begin + counts[stream]
    assert torch.equal(found.grid(seed)(every)[0], starts)
    assert torch.equal(lengths, found.longest(every))


def test_every_shift_occurs() -> None:
    found = Windows([1000], 1, 8)
    first = torch.tensor([0])
    firsts = {int(found.grid(seed)(first)[0]) for seed in range(200)}
    assert firsts == set(range(8))
    assert torch.equal(Windows([5], 1, 8).grid(3)(first)[0], first)  # a stream of one window stays


def test_windows_are_called_by_their_tokens() -> None:
    found = Windows([9, 3], 1, 4)
    assert [found.name(i, ["a", "b"]) for i in range(4)] == [
        *("a, tokens 0 to 3", "a, tokens 4 to 7", "a, tokens 8 to 8", "b")
    ]
    assert Windows([9], 1, 4).name(1, [""]) == "tokens 4 to 7"
