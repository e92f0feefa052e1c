"""Streams of tokens cut into windows of one length, on a grid that can be shifted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Windows:
    """The windows of streams that lie one after another.

    Of each stream the windows follow one another from its first place on, and the last may be shorter. `starts`,
    `lengths` and `stream` (n,) are of each window: its first place, how many places it has, and whose it is.
    """

    def __init__(self, places: Sequence[int], gap: int, length: int) -> None:
        """`places` of each stream, at least 1; after each come `gap` places that windows do not begin at. `length` is
        that of a window."""
        self.length = length
        counts = torch.tensor(list(places))  # (S,)
        self.begins = (counts + gap).cumsum(0) - counts - gap  # (S,)
        self.counts = counts
        self.of_stream = (counts + length - 1) // length  # (S,) how many windows it has
        self.stream = torch.arange(len(counts)).repeat_interleave(self.of_stream)  # (n,)
        self._first = self.of_stream.cumsum(0) - self.of_stream  # (S,) the number of its first window
        within = (torch.arange(len(self.stream)) - self._first[self.stream]) * length
        self.starts = self.begins[self.stream] + within  # (n,)
        self.lengths = (counts[self.stream] - within).clamp(max=length)  # (n,)
        self.longest = counts[self.stream].clamp(max=length)  # (n,) of each, wherever the grid is shifted to

    def __len__(self) -> int:
        return len(self.starts)

    def shifted(self, seed: int) -> tuple[Tensor, Tensor]:
        """Starts and lengths (n,) where the grid of each stream is shifted by less than a window, as the seed says.

        A window that would reach beyond its stream is moved back to end with it. A stream of one window stays.
        """
        generator = torch.Generator().manual_seed(seed)
        shift = torch.randint(0, self.length, (len(self.counts),), generator=generator)  # (S,)
        last = self.begins + (self.counts - self.length).clamp(min=0)  # (S,) where the last window can begin
        return torch.minimum(self.starts + shift[self.stream], last[self.stream]), self.longest

    def name(self, i: int, names: Sequence[str]) -> str:
        """What a person calls window i: its stream, and which of its tokens it reads, counted from 0."""
        stream = int(self.stream[i])
        name, first = names[stream], int(self.starts[i] - self.begins[stream])
        if name and self.of_stream[stream] == 1:
            return name
        return ", ".join(part for part in (name, f"tokens {first} to {first + int(self.lengths[i]) - 1}") if part)
