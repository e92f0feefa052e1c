"""A split of a table that is read by row groups during training: the order of its rows, and its batches.

In an epoch the table is cut into W ranges of equally many blocks, and the rows of one random block of each are mixed at
a time: a batch has rows from the whole table, even if that is sorted by the target. W is the number of blocks that fit
into the allowed memory; if all fit, the order is a full shuffle. It follows from the seed and the epoch, and any batch
from its number: earlier batches are not read.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...errors import Problem
from ..plans import Plan
from ..sets import Batch, Split
from ..verifying import Progress, unreadable

LOOKED_AHEAD = 4096  # batches whose blocks are known before they are needed
Rows = npt.NDArray[np.int64]
Encoded = Callable[[int, Rows], Tensor]  # the inputs (n, F) of these rows of a block, by its number


class RowGroupSplit(Split):
    """Rows (n, F) of a table in blocks, of which few are in memory at a time."""

    def __init__(
        self,
        rows: Rows,
        block: Rows,
        target: Tensor | None,
        encoded: Encoded,
        window: int,
        place: Callable[[int], str],
        row: Callable[[int], dict[str, str]],
        ahead: bool = True,
    ) -> None:
        """`rows` (n,), sorted, are the numbers of the examples in the table, `block` (n,) says in which block each
        is. `window` blocks are mixed at a time; with `ahead` as many again are read in advance. `place` and `row`
        return the name and the cells of a row of the table."""
        self.rows, self.target, self.window = rows, target, window
        self.numbers, starts = np.unique(block, return_index=True)  # of the blocks that have examples
        self.ends = np.append(starts[1:], len(rows)).astype(np.int64)
        self.starts = starts.astype(np.int64)
        self._encoded, self._place, self._row, self._ahead = encoded, place, row, ahead

    def __len__(self) -> int:
        return len(self.rows)

    def plan(self, batch_size: int, generator: torch.Generator | None) -> Plan:
        """Return batches of rows from few blocks, in order without a generator; a last one of a single row,
        which has no variance for batch norm to divide by, joins the one before it."""
        order, n = self.order(generator), len(self)
        count = -(-n // batch_size)
        if generator is not None and count > 1 and n % batch_size == 1 < batch_size:
            count -= 1
        return Plan(range(count), lambda k: order.part(k * batch_size, n if k == count - 1 else (k + 1) * batch_size))

    def order(self, generator: torch.Generator | None) -> BlockOrder:
        """The order of an epoch, which the generator draws."""
        return BlockOrder(self.starts, self.ends, self.window, generator)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches (N, F) in the given order. Blocks are read on demand in another thread, and cached while there
        is room. Raises DataError, naming the file, if one cannot be read."""
        del seed
        room = 2 * self.window if self._ahead else self.window
        held: OrderedDict[int, Future[Tensor]] = OrderedDict()  # the one that was needed longest ago first
        awaited: Counter[int] = Counter()  # by how many of the batches that are known
        waiting: deque[tuple[Tensor, Rows, Rows]] = deque()
        reader = ThreadPoolExecutor(1)
        try:
            for index in order:
                place = self._block_index(index)
                blocks = np.unique(place)
                waiting.append((index, place, blocks))
                awaited.update(blocks.tolist())
                for block in blocks.tolist():
                    if block not in held:
                        held[block] = reader.submit(self._read, block)
                    held.move_to_end(block)
                while waiting and (len(held) > room or len(waiting) > (LOOKED_AHEAD if self._ahead else 0)):
                    yield self._batch(waiting.popleft(), held, awaited)
                    for block in [b for b in held if not awaited[b]][: max(0, len(held) - room)]:
                        del held[block]
            while waiting:
                yield self._batch(waiting.popleft(), held, awaited)
        finally:
            reader.shutdown(cancel_futures=True)

    def name(self, i: int) -> str:
        """The row's place: row 18 of part-2.parquet."""
        return self._place(int(self.rows[i]))

    def row(self, i: int) -> dict[str, str]:
        """The row as the person gave it."""
        return self._row(int(self.rows[i]))

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Every block that cannot be read, by its file."""
        return unreadable(self._read, len(self.numbers), progress)

    def _block_index(self, index: Tensor) -> Rows:
        return np.searchsorted(self.ends, index.numpy(), side="right")

    def _read(self, k: int) -> Tensor:
        return self._encoded(int(self.numbers[k]), self.rows[self.starts[k] : self.ends[k]])

    def _batch(
        self, known: tuple[Tensor, Rows, Rows], held: OrderedDict[int, Future[Tensor]], awaited: Counter[int]
    ) -> Batch:
        index, place, blocks = known
        inputs: Tensor | None = None
        for block in blocks.tolist():
            own = torch.from_numpy(np.flatnonzero(place == block))
            found = held[block].result()
            if inputs is None:
                inputs = found.new_empty(len(index), found.shape[1])
            inputs[own] = found[index[own] - int(self.starts[block])]
            awaited[block] -= 1
        assert inputs is not None, "a batch has rows"
        target = torch.empty(len(index), 0) if self.target is None else self.target[index]
        return Batch((inputs,), target)


class BlockOrder:
    """The examples of blocks in the order of an epoch: a window at a time, of one block of each stretch, in which all
    rows are mixed. It is stratified sampling by the place in the table."""

    def __init__(self, starts: Rows, ends: Rows, window: int, generator: torch.Generator | None) -> None:
        """Block k has the examples `starts[k]` … `ends[k]` − 1. Without a generator they come as they stand."""
        self.starts, self.ends = starts, ends
        self._seed: int | None = None
        windows = -(-len(starts) // window)  # and so many blocks are in a stretch; fewer in the last
        of_block = np.arange(len(starts)) // window
        if generator is not None:
            stretches = -(-len(starts) // windows)
            of_block = torch.rand(stretches, windows, generator=generator).argsort(1).flatten()[: len(starts)].numpy()
            self._seed = int(torch.randint(1 << 62, (), generator=generator))
        self._blocks = np.argsort(of_block, kind="stable")  # window by window
        self._first = np.searchsorted(of_block[self._blocks], np.arange(windows + 1))
        self._upto = np.cumsum((ends - starts)[self._blocks])[self._first[1:] - 1]
        self._drawn: tuple[int, Tensor] = (-1, torch.empty(0, dtype=torch.int64))

    def part(self, start: int, end: int) -> Tensor:
        """The examples from one place of the order on up to another, or to its end, (end − start,)."""
        end, parts = min(end, int(self._upto[-1])), []
        while start < end:
            window = int(np.searchsorted(self._upto, start, side="right"))
            first = int(self._upto[window - 1]) if window else 0
            parts.append(self._mixed(window)[start - first : end - first])
            start += len(parts[-1])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _mixed(self, window: int) -> Tensor:
        """The examples of a window in their order; it is drawn once for all batches that follow one another."""
        if self._drawn[0] != window:
            blocks = self._blocks[self._first[window] : self._first[window + 1]]
            rows = torch.cat([torch.arange(int(self.starts[k]), int(self.ends[k])) for k in blocks])
            if self._seed is not None:
                generator = torch.Generator().manual_seed((self._seed + window) % (1 << 63))
                rows = rows[torch.randperm(len(rows), generator=generator)]
            self._drawn = window, rows
        return self._drawn[1]
