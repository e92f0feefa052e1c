"""Windows of equal length over streams of tokens, on a grid that can be shifted.

The position of a window is computed from its number, so that the number of windows is not limited by memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Grid = Callable[[Tensor], tuple[Tensor, Tensor]]  # window numbers (n,) to starts and lengths


class Windows:
    """The windows of concatenated streams.

    The windows of each stream are consecutive from its first position, and the last may be shorter.
    """

    def __init__(self, places: Sequence[int], gap: int, length: int) -> None:
        """Initialize with the number of positions of each stream, at least 1.

        After each stream come `gap` positions at which no window begins. `length` is that of a window.
        """
        self.length = length
        counts = torch.tensor(list(places))  # (S,)
        self.begins = (counts + gap).cumsum(0) - counts - gap  # (S,)
        self.counts = counts
        self.of_stream = (counts + length - 1) // length  # (S,) number of windows of each
        self._first = self.of_stream.cumsum(0) - self.of_stream  # (S,) the number of its first window
        self._all = int(self.of_stream.sum())
        self._only = torch.tensor(0)

    def __len__(self) -> int:
        return self._all

    def stream(self, index: Tensor) -> Tensor:
        """Return the stream of each of these windows: (n,), or () for one stream."""
        if len(self.counts) == 1:
            return self._only
        return torch.searchsorted(self._first, index, right=True) - 1

    def grid(self, seed: int | None = None) -> Grid:
        """Return the function from window numbers to positions; with a seed, each stream's grid is shifted by less than
        a window.

        A window that would extend beyond its stream is moved back to end with it. A stream of one window is not
        shifted.
        """
        if seed is None:
            return self._unshifted
        generator = torch.Generator().manual_seed(seed)
        shift = torch.randint(0, self.length, (len(self.counts),), generator=generator)  # (S,)
        last = self.begins + (self.counts - self.length).clamp(min=0)  # (S,) where the last window can begin

        if len(self.counts) == 1:  # fast path for a corpus
            first, furthest = int(shift), int(last)
            return lambda index: ((index * self.length + first).clamp(max=furthest), self.longest(index))

        def shifted(index: Tensor) -> tuple[Tensor, Tensor]:
            stream = self.stream(index)
            starts = self.begins[stream] + (index - self._first[stream]) * self.length + shift[stream]
            return torch.minimum(starts, last[stream]), self.longest(index)

        return shifted

    def longest(self, index: Tensor) -> Tensor:
        """Return the length of each of these windows on a shifted grid, for any shift, (n,)."""
        return self.counts[self.stream(index)].clamp(max=self.length).expand(len(index))

    def name(self, i: int, names: Sequence[str]) -> str:
        """Return the name of window i: its stream and the range of tokens it reads, counted from 0."""
        (start,), (length,) = (found.tolist() for found in self._unshifted(torch.tensor([i])))
        stream = int(self.stream(torch.tensor([i])))
        name, first = names[stream], start - int(self.begins[stream])
        if name and self.of_stream[stream] == 1:
            return name
        return ", ".join(part for part in (name, f"tokens {first} to {first + length - 1}") if part)

    def _unshifted(self, index: Tensor) -> tuple[Tensor, Tensor]:
        stream = self.stream(index)
        within = (index - self._first[stream]) * self.length
        return self.begins[stream] + within, (self.counts[stream] - within).clamp(max=self.length)
