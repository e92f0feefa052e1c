"""Windows of equal length over streams of tokens, on a grid that can be shifted.

The position of a window is computed from its number, so that the number of windows is not limited by memory.

Streams of tokens for language modelling, in which each token but the first is predicted once, from those before it.

The stream is divided into windows of `length` tokens; the last may be shorter. With `carries`, it is laid out in as
many rows as a batch has, and each batch continues where the previous one ended:

    stream   0 1 2 3 4 5 6 7 8 9 …          windows of 2, in 2 rows:
    row 0    0 1 | 2 3 | 4 5                 batch 0 holds windows 0 and 3, batch 1 windows 1 and 4, …
    row 1    6 7 | 8 9 | …

so that a model can keep its state (truncated back-propagation through time: R. J. Williams, J. Peng, 1990,
https://doi.org/10.1162/neco.1990.2.4.490). Without `carries`, windows are independent and shuffled, and in training the
grid of windows is shifted in each epoch. Otherwise a token would always be predicted from the same context, the first
of a window from none, and a model would see only one of `length` ways to divide the text. In evaluation the grid always
starts at the first token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ...core.errors import Problem
from ..dataset_base import IGNORED, Batch, Split, WholeBatch
from ..parallel import Progress
from ..samplers import Batches, BatchPlan, SampleOrder, bucket_batches
from ..streaming.tokens import ShardTokens, concatenate_streams, damaged_token_shards, prefetch_windows, stream_targets

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


EVALUATED = 32  # maximum rows in evaluation, so that a score does not depend on larger batch sizes
MIN_WINDOWS_PER_ROW = 8  # minimum windows in such a row: only its first has no previous context


class StreamSplit(Split):
    """One or several streams of tokens, as windows.

    inputs are tokens (N, T) and a mask (N, T), True where a token is real; target (N, T) is the next token of each,
    IGNORED at padding. T is `length`, or less if all windows of a batch are shorter. With `carries`, row r of a batch
    continues row r of the previous batch; the last batches may have only the first rows. Several streams have a row
    each. No window crosses from one stream into another.
    """

    def __init__(
        self,
        streams: Sequence[Tensor | ShardTokens],
        length: int,
        carries: bool,
        decode: Callable[[list[int]], str],
        names: Sequence[str] = ("",),
        notes: Sequence[str] = (),
        padding: int = 0,
    ) -> None:
        """Initialize with `streams` of token ids, (n,) int64 with n ≥ 2 each, or one in shards.

        `decode` returns their text, and `names` are their display names. `notes` are messages for the user, and
        `padding` is the id at positions without a token.
        """
        self.tokens = concatenate_streams(streams)  # (Σ n,)
        self.target, self.target_counts = stream_targets(streams, first=1)
        self.length, self.carries, self.padding = length, carries, padding
        self.notes = list(notes)
        self._decode, self._names = decode, names
        self._windows = Windows([len(stream) - 1 for stream in streams], gap=1, length=length)

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def lengths(self) -> Tensor:
        """The number of tokens that each window reads, (n,)."""
        return self._windows.grid()(torch.arange(len(self)))[1]

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> Batches:
        """Return the windows of each batch.

        With `carries` they are in the order of the text, without randomness. With `tokens`, a batch has as many rows as
        fit, at least one.
        """
        size = max(1, tokens // self.length) if tokens else batch_size  # all but the last have the same length
        if self.carries:
            return self._in_rows(size, generator is not None)
        if len(self._windows.of_stream) == 1:
            return SampleOrder(len(self), generator).plan(size)
        lengths = self.lengths if generator is None else self._windows.longest(torch.arange(len(self)))
        return bucket_batches(lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of these windows. With a seed, and without `carries`, the grid is shifted."""
        grid = self._windows.grid(None if self.carries else seed)
        for starts, lengths in prefetch_windows(self.tokens, order, grid):
            step = torch.arange(int(lengths.max()) + 1)
            mask = step[:-1] < lengths[:, None]  # (N, T)
            place = starts[:, None] + step  # (N, T + 1)
            if mask.all():
                seen = self.tokens[place]
                kind = Batch if self.carries else WholeBatch  # a stateful network needs the mask
                yield kind((seen[:, :-1].contiguous(), mask), seen[:, 1:].contiguous())
            else:
                seen = self.tokens[place.clamp(max=len(self.tokens) - 1)]
                inputs = seen[:, :-1].masked_fill(~mask, self.padding)
                yield Batch((inputs, mask), seen[:, 1:].masked_fill(~mask, IGNORED))

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Return every shard whose checksum differs, if the tokens are read from shards."""
        return damaged_token_shards(self.tokens, progress)

    def name(self, i: int) -> str:
        """Return the stream and the range of tokens that the window reads, counted from 0."""
        return self._windows.name(i, self._names)

    def row(self, i: int) -> dict[str, str] | None:
        """Return the window's text, including the last token that it predicts."""
        starts, lengths = self._windows.grid()(torch.tensor([i]))
        start, end = int(starts), int(starts + lengths)
        return {"text": self._decode(self.tokens[start : end + 1].tolist())}

    def _in_rows(self, batch_size: int, learns: bool) -> BatchPlan:
        """Return the windows of each batch, where each row continues the previous batch."""
        if not learns:
            batch_size = min(batch_size, EVALUATED, max(1, len(self) // MIN_WINDOWS_PER_ROW))
        counts = torch.tensor(self._rows(batch_size))
        firsts, order = counts.cumsum(0) - counts, counts.argsort(descending=True, stable=True)
        firsts, counts = firsts[order], counts[order]
        return BatchPlan(range(int(counts[0])), lambda k: firsts[counts > k] + k)

    def _rows(self, batch_size: int) -> list[int]:
        """Return the number of windows in each row.

        One stream is divided nearly equally, longer rows first; several streams have one row each.
        """
        if len(self._windows.of_stream) > 1:
            own: list[int] = self._windows.of_stream.tolist()
            return own
        rows = min(batch_size, len(self))
        return [len(self) // rows + (r < len(self) % rows) for r in range(rows)]
