"""A stream of tokens, learned step by step: each token but the first is predicted once, from those before it.

The stream is cut into windows of `length` tokens; the last may be shorter. Read with `carries`, it is laid out in as
many rows as a batch has, and each batch goes on where the one before it ended:

    stream   0 1 2 3 4 5 6 7 8 9 …          windows of 2, in 2 rows:
    row 0    0 1 | 2 3 | 4 5                 batch 0 holds windows 0 and 3, batch 1 windows 1 and 4, …
    row 1    6 7 | 8 9 | …

so that a model can keep its state (truncated back-propagation through time: R. J. Williams, J. Peng, 1990,
https://doi.org/10.1162/neco.1990.2.4.490). Read without, the windows are independent and shuffled, and in training the
grid that they lie on is shifted in each epoch: else a token would always be predicted from the same few before it, the
first of a window from none, and a model would see but one of `length` ways to cut the text. What is measured lies on
the grid from the first token on, every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ...core.errors import Problem
from ..bucketing import bucketed
from ..dataset_base import IGNORED, Batch, Split, WholeBatch
from ..parallel import Progress
from ..samplers import Batches, Order, Plan
from ..streaming.tokens import ShardTokens, damaged_of, reading_ahead, targets_of, together
from .windows import Windows

EVALUATED = 32  # rows that a stream is read in when nothing is learned: the same for every larger batch size, so that
# a score does not depend on it
FEWEST = 8  # windows that such a row has at least: only its first is predicted without what stood before


class StreamSplit(Split):
    """One or several streams of tokens, as windows.

    inputs are tokens (N, T) and a mask (N, T), True where a token is real; target (N, T) is the token after each,
    IGNORED at padding. T is `length`, or less where all windows of a batch are shorter. With `carries`, row r of a
    batch goes on where row r of the batch before it ended; the last batches can have fewer rows, the first of those.
    Where there are several streams, each has a row of its own. No window reaches from one stream into another.
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
        """`streams` are token ids, (n,) int64 with n ≥ 2 each, or one in shards; `decode` gives their text back;
        `names` are what a person calls them. `notes` are sentences on them that a person should read; `padding` is the
        id that stands where a window has no token."""
        self.tokens = together(streams)  # (Σ n,)
        self.target, self.target_counts = targets_of(streams, first=1)
        self.length, self.carries, self.padding = length, carries, padding
        self.notes = list(notes)
        self._decode, self._names = decode, names
        self._windows = Windows([len(stream) - 1 for stream in streams], gap=1, length=length)

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def lengths(self) -> Tensor:
        """How many tokens each window reads, (n,)."""
        return self._windows.grid()(torch.arange(len(self)))[1]

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> Batches:
        """The windows of each batch. With `carries` they stand in the order of the text, and nothing is random; with
        `tokens` too a batch has so many rows as hold these, at least one."""
        size = max(1, tokens // self.length) if tokens else batch_size  # all but the last are of one length
        if self.carries:
            return self._in_rows(size, generator is not None)
        if len(self._windows.of_stream) == 1:
            return Order(len(self), generator).plan(size)
        lengths = self.lengths if generator is None else self._windows.longest(torch.arange(len(self)))
        return bucketed(lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """The batches of these windows. With a seed, and without `carries`, they lie on the grid that it shifts."""
        grid = self._windows.grid(None if self.carries else seed)
        for starts, lengths in reading_ahead(self.tokens, order, grid):
            step = torch.arange(int(lengths.max()) + 1)
            mask = step[:-1] < lengths[:, None]  # (N, T)
            place = starts[:, None] + step  # (N, T + 1)
            if mask.all():
                seen = self.tokens[place]
                kind = Batch if self.carries else WholeBatch  # a network that carries its state is told of the mask
                yield kind((seen[:, :-1].contiguous(), mask), seen[:, 1:].contiguous())
            else:
                seen = self.tokens[place.clamp(max=len(self.tokens) - 1)]
                inputs = seen[:, :-1].masked_fill(~mask, self.padding)
                yield Batch((inputs, mask), seen[:, 1:].masked_fill(~mask, IGNORED))

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Every shard whose content is not what was written, where the tokens are read from shards."""
        return damaged_of(self.tokens, progress)

    def name(self, i: int) -> str:
        """The stream, and which of its tokens the window reads, counted from 0."""
        return self._windows.name(i, self._names)

    def row(self, i: int) -> dict[str, str] | None:
        """The window's text, with the last token that it predicts."""
        starts, lengths = self._windows.grid()(torch.tensor([i]))
        start, end = int(starts), int(starts + lengths)
        return {"text": self._decode(self.tokens[start : end + 1].tolist())}

    def _in_rows(self, batch_size: int, learns: bool) -> Plan:
        """The windows of each batch, where each goes on where the one before it ended."""
        if not learns:
            batch_size = min(batch_size, EVALUATED, max(1, len(self) // FEWEST))
        counts = torch.tensor(self._rows(batch_size))
        firsts, order = counts.cumsum(0) - counts, counts.argsort(descending=True, stable=True)
        firsts, counts = firsts[order], counts[order]
        return Plan(range(int(counts[0])), lambda k: firsts[counts > k] + k)

    def _rows(self, batch_size: int) -> list[int]:
        """The windows of each row: of one stream nearly equal, the longer rows first; of several each stream's own."""
        if len(self._windows.of_stream) > 1:
            own: list[int] = self._windows.of_stream.tolist()
            return own
        rows = min(batch_size, len(self))
        return [len(self) // rows + (r < len(self) % rows) for r in range(rows)]
