"""Streams of tokens cut into windows of one length, on a grid that can be shifted.

Where a window stands is computed from its number, so that there can be as many as a corpus has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Grid = Callable[[Tensor], tuple[Tensor, Tensor]]  # numbers of windows (n,) to where each starts, and its length


class Windows:
    """The windows of streams that lie one after another.

    Of each stream the windows follow one another from its first place on, and the last may be shorter.
    """

    def __init__(self, places: Sequence[int], gap: int, length: int) -> None:
        """`places` of each stream, at least 1; after each come `gap` places that windows do not begin at. `length` is
        that of a window."""
        self.length = length
        counts = torch.tensor(list(places))  # (S,)
        self.begins = (counts + gap).cumsum(0) - counts - gap  # (S,)
        self.counts = counts
        self.of_stream = (counts + length - 1) // length  # (S,) how many windows it has
        self._first = self.of_stream.cumsum(0) - self.of_stream  # (S,) the number of its first window
        self._all = int(self.of_stream.sum())
        self._only = torch.tensor(0)

    def __len__(self) -> int:
        return self._all

    def stream(self, index: Tensor) -> Tensor:
        """Whose each of these windows is: (n,), or () where there is one stream."""
        if len(self.counts) == 1:
            return self._only
        return torch.searchsorted(self._first, index, right=True) - 1

    def grid(self, seed: int | None = None) -> Grid:
        """Where windows stand: as they are, or, with a seed, with the grid of each stream shifted by less than a window
        as it says.

        A window that would reach beyond its stream is moved back to end with it. A stream of one window stays.
        """
        if seed is None:
            return self._unshifted
        generator = torch.Generator().manual_seed(seed)
        shift = torch.randint(0, self.length, (len(self.counts),), generator=generator)  # (S,)
        last = self.begins + (self.counts - self.length).clamp(min=0)  # (S,) where the last window can begin

        if len(self.counts) == 1:  # as every batch of a corpus asks
            first, furthest = int(shift), int(last)
            return lambda index: ((index * self.length + first).clamp(max=furthest), self.longest(index))

        def shifted(index: Tensor) -> tuple[Tensor, Tensor]:
            stream = self.stream(index)
            starts = self.begins[stream] + (index - self._first[stream]) * self.length + shift[stream]
            return torch.minimum(starts, last[stream]), self.longest(index)

        return shifted

    def longest(self, index: Tensor) -> Tensor:
        """How long each of these windows is where the grid is shifted, wherever to, (n,)."""
        return self.counts[self.stream(index)].clamp(max=self.length).expand(len(index))

    def name(self, i: int, names: Sequence[str]) -> str:
        """What a person calls window i: its stream, and which of its tokens it reads, counted from 0."""
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
