"""Tables that exceed the allowed memory: encoders fitted block by block, and splits that are read by row groups.

Encoders are fitted without keeping the rows, with the same result as `column_types.fit_encoder`. Counts, categories and
order statistics (the median, the points of a quantile curve) are exact. Mean and standard deviation are accumulated
block by block and equal up to rounding (T. Chan, G. Golub, R. LeVeque, Updating formulae and a pairwise algorithm for
computing sample variances, 1979).

Order statistics need several passes. The bits of a float64, with the sign flipped, sort like the number. The first pass
counts numbers by their leading bits. Each further pass counts, by the next bits, the numbers that share the prefix of a
requested rank, until the rest fits into memory. This is a radix sort restricted to the requested ranks (D. Knuth, The
art of computer programming, vol. 3, 5.2.5). polars' streaming quantiles store the whole column: 293 MiB instead of 49
for 40 million numbers. Its ranks are rounded fractions, and can be off by one.

During training, a split is read by row groups. In an epoch the table is divided into W ranges of equally many blocks,
and the rows of one random block of each are shuffled together, so that a batch has rows from the whole table, even if
it is sorted by the target. W is the number of blocks that fit into the allowed memory; if all fit, the order is a full
shuffle. The order depends only on the seed and the epoch, and any batch can be computed directly.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import Tensor

from ...core.errors import DataError, Problem
from ..dataset_base import Batch, Split
from ..parallel import Progress, find_unreadable
from ..samplers import BatchPlan
from ..splits import Rows
from .column_types import (
    QUANTILES,
    Category,
    ColumnType,
    Curve,
    Encoder,
    Numbers,
    Numeric,
    decode,
    explain_unreadable,
    most_frequent,
    quantile_curve,
    standard_scale,
    strip_missing,
    unreadable_mask,
)
from .table_files import EXACT, RowGroups, format_count, text_frame

NAMED = 1000  # unreadable cells kept by name; more are only counted
Block = tuple[Rows, dict[str, pl.Series]]  # rows of a block, and their cells by column


def read_cells(groups: RowGroups, frame: pl.DataFrame, types: Mapping[str, ColumnType]) -> dict[str, pl.Series]:
    """Return the cells of these columns by their types. Columns of numbers are not converted to text and back, which
    would give the same numbers."""
    found = {}
    for column, type in types.items():
        cells = frame[column]
        if type.kind == "number" and cells.dtype in EXACT:
            found[column] = strip_missing(cells.cast(pl.Float64).fill_nan(None), groups.form.missing)
        else:
            found[column] = strip_missing(
                text_frame(cells.to_frame(), groups.path.name).to_series(), groups.form.missing
            )
    return found


def iterate_blocks(groups: RowGroups, rows: Rows, types: Mapping[str, ColumnType]) -> Iterator[Block]:
    """Yield the cells of these sorted rows block by block."""
    for first, frame in groups.frames(list(types)):
        own = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + frame.height)]
        if len(own):
            yield own, read_cells(groups, frame[own - first], types)


@dataclass
class UnreadableCells:
    """Cells that are not of their column's type."""

    title: str  # of the table
    count: int = 0
    rows: list[Rows] = field(default_factory=list)  # their rows
    problems: list[Problem] = field(default_factory=list)  # the first of them, by name
    lines: list[str] = field(default_factory=list)  # one for each kind of problem

    def error(self, fix: str) -> DataError:
        """Return the error that names them."""
        said = f"{format_count(self.count, 'cell')} of {self.title} cannot be read."
        return DataError(said, self.problems, fix, lines=self.lines)


def unread_cells(groups: RowGroups, rows: Rows, types: Mapping[str, ColumnType]) -> UnreadableCells:
    """Return the cells of these rows that are not of their column's type."""
    found = UnreadableCells(str(groups.path))
    for own, cells in iterate_blocks(groups, rows, types):
        for column, type in types.items():
            bad = np.flatnonzero(unreadable_mask(cells[column], type))
            found.count += len(bad)
            if len(bad):
                found.rows.append(own[bad])
            for i in bad[: NAMED - len(found.problems)].tolist():
                where = f"{groups.place(int(own[i]))}, column {column}"
                found.problems.append(Problem(where, explain_unreadable(str(cells[column][i]), type)))
    return found


def fit_encoders(groups: RowGroups, rows: Rows, types: Mapping[str, ColumnType], scale: str) -> list[Encoder | None]:
    """Return the encoder of each column, fitted on the cells of these rows; None if no cell can be read."""
    fits = {
        column: _Categories() if type.kind == "category" else _Numbers(type, scale) for column, type in types.items()
    }
    open_ = dict(fits)
    while open_:
        for _, cells in iterate_blocks(groups, rows, {column: types[column] for column in open_}):
            for column, fit in open_.items():
                fit.see(cells[column])
        open_ = {column: fit for column, fit in open_.items() if not fit.end_pass()}
    return [fit.encoder(column) for column, fit in fits.items()]


class _Categories:
    """Counts of each value."""

    def __init__(self) -> None:
        self.counts = pl.DataFrame(schema={"value": pl.String, "count": pl.UInt32})
        self.missing = False

    def see(self, cells: pl.Series) -> None:
        own = cells.drop_nulls().alias("value").value_counts(name="count").with_columns(pl.col("count").cast(pl.UInt32))
        self.counts = pl.concat([self.counts, own]).group_by("value").agg(pl.col("count").sum())
        self.missing |= cells.null_count() > 0

    def end_pass(self) -> bool:
        return True

    def encoder(self, name: str) -> Category | None:
        return most_frequent(name, self.counts, self.missing) if self.counts.height else None


class _Numbers:
    """Mean and standard deviation from the first pass; order statistics from as many passes as needed."""

    def __init__(self, type: ColumnType, scale: str) -> None:
        self.type, self.scale = type, scale
        self.cells = self.count = 0
        self.mean = self.squares = 0.0  # Σ (x − mean)²
        self.fractions = False
        self.selection: Selection | None = None

    def see(self, cells: pl.Series) -> None:
        values = decode(cells, self.type)
        known = values[~np.isnan(values)]
        if self.selection is not None:
            self.selection.see(known)
            return
        self.cells += len(values)
        if not len(known):
            return
        self.fractions |= bool((known % 1).any())
        mean, total = float(known.mean()), self.count + len(known)
        apart = mean - self.mean
        self.squares += float(((known - mean) ** 2).sum()) + apart**2 * self.count * len(known) / total
        self.mean += apart * len(known) / total
        self.count = total

    def end_pass(self) -> bool:
        if self.selection is None:
            self.selection = Selection(np.unique(np.concatenate([self._middle(), *self._points()[1:]])))
            return not self.count
        self.selection.end_pass()
        return self.selection.done

    def encoder(self, name: str) -> Numeric | None:
        if not self.count:
            return None
        median = float(self._at(self._middle()).mean())
        mean, std = 0.0, 1.0
        curve: Curve = ()
        if self.scale == "standard":
            mean, std = standard_scale(self.mean, float(np.sqrt(self.squares / self.count)))
        elif self.scale == "quantile":
            fractions, below, above = self._points()
            part = self.count * fractions - 0.5 - below  # interpolation weight of Hazen's definition
            curve = quantile_curve(self._at(below) + (self._at(above) - self._at(below)) * part, fractions)
        return Numeric.of(name, self.type, median, self.count < self.cells, mean, std, curve, self.fractions)

    def _middle(self) -> Rows:
        """Return the ranks of the one or two middle numbers."""
        return np.array([(self.count - 1) // 2, self.count // 2])[: 2 if self.count else 0]

    def _points(self) -> tuple[Numbers, Rows, Rows]:
        """Return the fractions of the curve, and the ranks of the two numbers around each."""
        count = min(QUANTILES, self.count) if self.scale == "quantile" else 0
        fractions = (np.arange(count) + 0.5) / max(1, count)
        below = np.floor(self.count * fractions - 0.5).astype(np.int64).clip(0, max(0, self.count - 1))
        return fractions, below, (below + 1).clip(max=max(0, self.count - 1))

    def _at(self, ranks: Rows) -> Numbers:
        assert self.selection is not None
        return self.selection.values[np.searchsorted(self.selection.ranks, ranks)]


LOOKED_AHEAD = 4096  # batches whose blocks are read ahead
RowIndices = npt.NDArray[np.int64]
Encoded = Callable[[int, RowIndices], Tensor]  # the inputs (n, F) of these rows of a block, by its number


class RowGroupSplit(Split):
    """Rows (n, F) of a table in blocks, few of which are in memory at a time."""

    def __init__(
        self,
        rows: RowIndices,
        block: RowIndices,
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

    def plan(self, batch_size: int, generator: torch.Generator | None) -> BatchPlan:
        """Return batches of rows from few blocks, in order without a generator; a last one of a single row,
        which has no variance for batch norm to divide by, joins the one before it."""
        order, n = self.order(generator), len(self)
        count = -(-n // batch_size)
        if generator is not None and count > 1 and n % batch_size == 1 < batch_size:
            count -= 1
        return BatchPlan(
            range(count), lambda k: order.part(k * batch_size, n if k == count - 1 else (k + 1) * batch_size)
        )

    def order(self, generator: torch.Generator | None) -> BlockOrder:
        """Return the order of an epoch, drawn from the generator."""
        return BlockOrder(self.starts, self.ends, self.window, generator)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches (N, F) in the given order. Blocks are read on demand in another thread, and cached while there
        is room. Raises DataError, naming the file, if one cannot be read."""
        del seed
        room = 2 * self.window if self._ahead else self.window
        held: OrderedDict[int, Future[Tensor]] = OrderedDict()  # least recently used first
        awaited: Counter[int] = Counter()  # number of pending batches that need each block
        waiting: deque[tuple[Tensor, RowIndices, RowIndices]] = deque()
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
        """Return the location of the row: row 18 of part-2.parquet."""
        return self._place(int(self.rows[i]))

    def row(self, i: int) -> dict[str, str]:
        """Return the row before preprocessing."""
        return self._row(int(self.rows[i]))

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Return every block that cannot be read, by its file."""
        return find_unreadable(self._read, len(self.numbers), progress)

    def _block_index(self, index: Tensor) -> RowIndices:
        return np.searchsorted(self.ends, index.numpy(), side="right")

    def _read(self, k: int) -> Tensor:
        return self._encoded(int(self.numbers[k]), self.rows[self.starts[k] : self.ends[k]])

    def _batch(
        self,
        known: tuple[Tensor, RowIndices, RowIndices],
        held: OrderedDict[int, Future[Tensor]],
        awaited: Counter[int],
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
    """The order of examples in an epoch: windows of one block from each stretch, whose rows are shuffled together.

    It is stratified sampling by the position in the table.
    """

    def __init__(self, starts: RowIndices, ends: RowIndices, window: int, generator: torch.Generator | None) -> None:
        """Initialize with blocks: block k has the examples `starts[k]` … `ends[k]` − 1. Without a generator, order is
        kept.
        """
        self.starts, self.ends = starts, ends
        self._seed: int | None = None
        windows = -(-len(starts) // window)  # also the number of blocks in a stretch; the last has fewer
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
        """Return the examples from position `start` to `end` of the order, or to its end, (end − start,)."""
        end, parts = min(end, int(self._upto[-1])), []
        while start < end:
            window = int(np.searchsorted(self._upto, start, side="right"))
            first = int(self._upto[window - 1]) if window else 0
            parts.append(self._shuffled_window(window)[start - first : end - first])
            start += len(parts[-1])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _shuffled_window(self, window: int) -> Tensor:
        """Return the shuffled examples of a window; it is cached for consecutive batches."""
        if self._drawn[0] != window:
            blocks = self._blocks[self._first[window] : self._first[window + 1]]
            rows = torch.cat([torch.arange(int(self.starts[k]), int(self.ends[k])) for k in blocks])
            if self._seed is not None:
                generator = torch.Generator().manual_seed((self._seed + window) % (1 << 63))
                rows = rows[torch.randperm(len(rows), generator=generator)]
            self._drawn = window, rows
        return self._drawn[1]


Keys = npt.NDArray[np.uint64]
Ranks = npt.NDArray[np.int64]
COUNTERS = 1 << 22  # maximum counters: 32 MiB
HELD = 1 << 20  # maximum numbers to store
SIGN = np.uint64(1 << 63)


class Selection:
    """Selection of the numbers at some ranks, in several passes over all numbers."""

    def __init__(self, ranks: Ranks) -> None:
        """Initialize with `ranks`, counted from 0 in ascending order."""
        self.ranks = ranks
        self.values = np.full(len(ranks), np.nan)
        self.done = not len(ranks)
        self._left = ranks.copy()  # the rank among the numbers with the same prefix
        self._bits = 0  # bits known so far
        self._of = np.zeros(len(ranks), np.int64)  # index of the prefix of each rank
        self._prefixes = np.zeros(1, np.uint64)  # sorted
        self._width = 0  # bits determined by the current pass
        self._counts = np.zeros(0, np.int64)
        self._collects = False
        self._found: list[Keys] = []
        self._begin()

    def see(self, numbers: Numbers) -> None:
        """Add numbers without NaN to the current pass."""
        keys = _keys(numbers)
        prefix = keys >> np.uint64(64 - self._bits) if self._bits else np.zeros(len(keys), np.uint64)
        place = np.searchsorted(self._prefixes, prefix).clip(max=len(self._prefixes) - 1)
        alike = self._prefixes[place] == prefix
        if self._collects:
            self._found.append(keys[alike])
            return
        own = (keys[alike] >> np.uint64(64 - self._bits - self._width)) & np.uint64((1 << self._width) - 1)
        self._counts += np.bincount((place[alike] << self._width) + own.astype(np.int64), minlength=len(self._counts))

    def end_pass(self) -> None:
        """Finish the current pass."""
        if self._collects:
            keys = np.sort(np.concatenate(self._found)) if self._found else np.zeros(0, np.uint64)
            starts = np.searchsorted(keys, self._prefixes << np.uint64(64 - self._bits))
            self.values = _numbers(keys[starts[self._of] + self._left])
            self.done, self._found = True, []
            return
        counts = self._counts.reshape(len(self._prefixes), -1)  # (prefixes, 2^width)
        upto = counts.cumsum(1)
        bucket = np.array([np.searchsorted(upto[p], r, side="right") for p, r in zip(self._of, self._left)])
        self._left -= upto[self._of, bucket] - counts[self._of, bucket]
        whole = (self._prefixes[self._of] << np.uint64(self._width)) | bucket.astype(np.uint64)
        pairs = np.unique(np.stack([self._of, bucket], 1), axis=0)
        left = counts[pairs[:, 0], pairs[:, 1]].sum()
        self._prefixes, self._of = np.unique(whole, return_inverse=True)
        self._bits += self._width
        if self._bits == 64:
            self.values, self.done = _numbers(whole), True
            return
        self._begin(collects=left <= HELD)

    def _begin(self, collects: bool = False) -> None:
        self._collects = collects
        room = int(np.log2(COUNTERS / len(self._prefixes)))
        self._width = min(16, max(1, room), 64 - self._bits)
        self._counts = np.zeros(0 if collects else len(self._prefixes) << self._width, np.int64)


def select_ranks(passes: Callable[[], Iterable[Numbers]], ranks: Ranks) -> Numbers:
    """Return the numbers at these ranks; each call of `passes` iterates over all numbers in chunks."""
    selection = Selection(ranks)
    while not selection.done:
        for numbers in passes():
            selection.see(numbers)
        selection.end_pass()
    return selection.values


def _keys(numbers: Numbers) -> Keys:
    bits = np.ascontiguousarray(numbers, np.float64).view(np.uint64)
    return np.where(bits & SIGN, ~bits, bits | SIGN)


def _numbers(keys: Keys) -> Numbers:
    return np.where(keys & SIGN, keys ^ SIGN, ~keys).view(np.float64)
