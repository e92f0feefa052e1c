"""A stream of tokens, learned step by step: each token but the first is foretold once, from those before it.

The stream is cut into windows of `length` tokens; the last may be shorter. Read with `carries`, it is laid out in as
many rows as a batch has, and each batch goes on where the one before it ended:

    stream   0 1 2 3 4 5 6 7 8 9 …          windows of 2, in 2 rows:
    row 0    0 1 | 2 3 | 4 5                 batch 0 holds windows 0 and 3, batch 1 windows 1 and 4, …
    row 1    6 7 | 8 9 | …

so that a model can keep its state (truncated back-propagation through time: R. J. Williams, J. Peng, 1990,
https://doi.org/10.1162/neco.1990.2.4.490). Read without, the windows are independent and shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from PIL.Image import Image
from torch import Tensor

from ..sets import IGNORED, Batch

EVALUATED = 32  # rows that a stream is read in when nothing is learned: the same for every larger batch size, so that
# a score does not depend on it
FEWEST = 8  # windows that such a row has at least: only its first is foretold without what stood before


class StreamPart:
    """One or several streams of tokens, as windows.

    inputs are tokens (N, T) and a mask (N, T), True where a token is real; target (N, T) is the token behind each,
    IGNORED at padding. T is `length`, or less where all windows of a batch are shorter. With `carries`, row r of a
    batch goes on where row r of the batch before it ended; the last batches can have fewer rows, the first of those.
    Where there are several streams, each has a row of its own.
    """

    def __init__(
        self,
        streams: Sequence[Tensor],
        length: int,
        carries: bool,
        decode: Callable[[list[int]], str],
        names: Sequence[str] = ("",),
        notes: Sequence[str] = (),
    ) -> None:
        """`streams` are token ids, (n,) int64 with n ≥ 2 each; `decode` gives their text back; `names` are what a
        person calls them. `notes` are sentences on them that a person should read."""
        self.tokens = torch.cat(list(streams))  # (Σ n,)
        self.target: Tensor | None = torch.cat([stream[1:] for stream in streams])
        self.length, self.carries = length, carries
        self.notes = list(notes)
        self._decode, self._names = decode, names
        ends = torch.tensor([len(stream) for stream in streams]).cumsum(0)
        self._begins = (ends - torch.tensor([len(stream) for stream in streams])).tolist()
        starts = [torch.arange(begin, end - 1, length) for begin, end in zip(self._begins, ends.tolist())]
        self._windows = [len(of_stream) for of_stream in starts]
        self.starts = torch.cat(starts)  # (n,) of each window, the place of its first token
        last = (ends - 1).repeat_interleave(torch.tensor(self._windows))  # (n,) the token that nothing comes behind
        self.lengths = (last - self.starts).clamp(max=length)  # (n,)

    def __len__(self) -> int:
        return len(self.starts)

    def plan(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
        """The windows of each batch. With `carries` they stand in the order of the text, and nothing is random."""
        if not self.carries:
            order = torch.arange(len(self)) if generator is None else torch.randperm(len(self), generator=generator)
            return list(torch.split(order, batch_size))
        if generator is None:
            batch_size = min(batch_size, EVALUATED, max(1, len(self) // FEWEST))
        counts = torch.tensor(self._rows(batch_size))
        firsts, order = counts.cumsum(0) - counts, counts.argsort(descending=True, stable=True)
        firsts, counts = firsts[order], counts[order]
        return [firsts[counts > k] + k for k in range(int(counts[0]))]

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """The batches of these windows."""
        del seed
        for index in order:
            lengths = self.lengths[index]
            step = torch.arange(int(lengths.max()) + 1)
            mask = step[:-1] < lengths[:, None]  # (N, T)
            place = self.starts[index, None] + step  # (N, T + 1)
            if mask.all():
                seen = self.tokens[place]
                yield Batch((seen[:, :-1].contiguous(), mask), seen[:, 1:].contiguous())
            else:
                seen = self.tokens[place.clamp(max=len(self.tokens) - 1)]
                yield Batch((seen[:, :-1].masked_fill(~mask, 0), mask), seen[:, 1:].masked_fill(~mask, IGNORED))

    def name(self, i: int) -> str:
        """The stream, and which of its tokens the window reads, counted from 0."""
        stream = self._stream_of(i)
        name, first = self._names[stream], int(self.starts[i]) - self._begins[stream]
        if name and self._windows[stream] == 1:
            return name
        return ", ".join(part for part in (name, f"tokens {first} to {first + int(self.lengths[i]) - 1}") if part)

    def picture(self, i: int) -> Image | None:
        """Text is no picture."""
        del i
        return None

    def row(self, i: int) -> dict[str, str] | None:
        """The window's text, with the last token that it foretells."""
        start = int(self.starts[i])
        return {"text": self._decode(self.tokens[start : start + int(self.lengths[i]) + 1].tolist())}

    def _rows(self, batch_size: int) -> list[int]:
        """The windows of each row: of one stream nearly equal, the longer rows first; of several each stream's own."""
        if len(self._windows) > 1:
            return self._windows
        rows = min(batch_size, len(self))
        return [len(self) // rows + (r < len(self) % rows) for r in range(rows)]

    def _stream_of(self, i: int) -> int:
        stream = 0
        while i >= self._windows[stream]:
            i -= self._windows[stream]
            stream += 1
        return stream
