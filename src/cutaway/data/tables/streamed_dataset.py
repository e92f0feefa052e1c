"""Encoders fitted block by block without keeping the rows, with the same result as `encoders.fit_encoder`.

Counts, categories and order statistics (the median, the points of a quantile curve) are exact. Mean and standard
deviation are accumulated block by block and equal up to rounding (T. Chan, G. Golub, R. LeVeque, Updating formulae and
a pairwise algorithm for computing sample variances, 1979).

Data sets of tables that exceed the allowed memory: the steps of `dataset.table_dataset`, row group by row group.

The target and the split of each row are kept in memory. Of the other columns only a sample is kept, from which types
are inferred, and the state of the encoders, which are fitted on all training rows.

During training, a split is read by row groups. In an epoch the table is divided into W ranges of equally many blocks,
and the rows of one random block of each are shuffled together, so that a batch has rows from the whole table, even if
it is sorted by the target. W is the number of blocks that fit into the allowed memory; if all fit, the order is a full
shuffle. The order depends only on the seed and the epoch, and any batch can be computed directly.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import Tensor

from ...core.errors import DataError, Problem
from ...core.files import MEBIBYTE
from ...core.spec import Episodes
from ..build import DataSource, build_dataset
from ..dataset_base import Batch, DataSet, Split
from ..findings import missing_class_findings
from ..modalities import reject_changed
from ..parallel import Progress, find_unreadable
from ..samplers import BatchPlan
from ..settings import DataSettings
from ..splits import Rows, sample_rows
from .column_types import ColumnType, Numbers, decode, explain_unreadable, strip_missing, unreadable_mask
from .delimited import Form
from .distributions import Selection, distributions
from .encoders import QUANTILES, Category, Curve, Encoder, Numeric, most_frequent, quantile_curve, standard_scale
from .parquet import EXACT, RowGroups, StreamedTable
from .roles import choose_roles
from .summary import column_notes, describe_columns
from .table_files import Table, format_count, text_frame
from .targets import (
    NUMBER,
    check_learnable,
    check_trained_classes,
    complete_rows,
    find_leaks,
    format_problems,
    read_labels,
)
from .transforms import (
    EMPTIED,
    MEND,
    Splits,
    TablePreprocessing,
    column_types_for,
    drop_rows,
    fit_preprocessing,
    split_rows,
)

NAMED = 1000  # unreadable cells kept by name; more are only counted
Block = tuple[Rows, dict[str, pl.Series]]  # rows of a block, and their cells by column


def read_cells(groups: RowGroups, frame: pl.DataFrame, types: Mapping[str, ColumnType]) -> dict[str, pl.Series]:
    """Return the cells of these columns by their types. Columns of numbers are not converted to text and back, which
    would give the same numbers."""
    found = {}
    for column, type in types.items():
        cells = frame[column]
        if type.kind == "number" and cells.dtype in EXACT:
            found[column] = cells.cast(pl.Float64).fill_nan(None)
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

    count: int = 0
    rows: list[Rows] = field(default_factory=list)  # their rows
    problems: list[Problem] = field(default_factory=list)  # the first of them, by name


def unread_cells(groups: RowGroups, rows: Rows, types: Mapping[str, ColumnType]) -> UnreadableCells:
    """Return the cells of these rows that are not of their column's type."""
    found = UnreadableCells()
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


SAMPLE = 100_000  # rows from which types are inferred
BYTES = 4  # bytes of an input


def streamed_dataset(groups: RowGroups, settings: DataSettings, shuffled: bool = False) -> DataSet:
    """Build the data set of Parquet files with the target in `settings`; `shuffled` rows are known to be in random
    order.

    Raises as `table_dataset`.
    """
    reject_changed(settings, ("noise", "count"), "is for xor, moons, circles and spirals, whose points are drawn here")
    groups = replace(groups, form=replace(Form.of(settings), units={}))
    chosen = sample_rows(np.arange(len(groups)), SAMPLE, seed=settings.split_seed)
    sample = _sample_table(groups, chosen)
    roles = choose_roles(sample, settings)
    kinds = {roles.target: roles.types.get(roles.target)} | ({roles.group: "category"} if roles.group else {})
    of_rows = StreamedTable.compact(groups, kinds)
    labels = read_labels(of_rows, roles.target, roles.types.get(roles.target))
    rows, left_out = complete_rows(of_rows, labels, roles.group, settings.missing)
    check_learnable(labels, rows, splits=3)
    splits = split_rows(of_rows, labels, roles, rows, settings)

    cells = {column: sample.text(column) for column in roles.inputs}
    types = column_types_for(cells, roles, np.flatnonzero(np.isin(chosen, splits["train"])), len(groups))
    learned = {column: type for column, type in types.items() if type.learned}
    splits, unread = _without_bad_cells(groups, learned, splits, settings.missing)
    if settings.max_samples is not None:
        train = splits["train"]
        splits["train"] = sample_rows(
            train, settings.max_samples, seed=settings.split_seed, strata=labels.classes(train)
        )
    encoders = fit_encoders(groups, splits["train"], learned, settings.scale)
    preprocessing = fit_preprocessing(encoders, types, labels, splits["train"], settings, groups.form)
    target = preprocessing.spec.target
    assert not isinstance(target, Episodes), "rows have a target each"
    check_trained_classes(labels, target, splits)

    window = _window(groups, len(preprocessing.spec.columns), settings.memory)
    targets = {split: labels.tensor(target, rows) for split, rows in splits.items()}
    held: dict[str, Split] = {
        split: RowGroupSplit(
            rows,
            groups.block_of(rows),
            targets[split],
            _encoded(groups, preprocessing),
            window,
            groups.place,
            of_rows.row,
            ahead=settings.workers != 0,
        )
        for split, rows in splits.items()
    }
    own = labels.of(sample)
    used = np.flatnonzero(np.isin(chosen, np.concatenate(list(splits.values()))))
    training = np.flatnonzero(np.isin(chosen, splits["train"]))
    shown = {**cells, roles.target: own.cells}
    shown_types = {**types, roles.target: NUMBER if labels.numeric else ColumnType("category")}
    return build_dataset(
        DataSource(groups.path.stem, str(groups.path), groups.fingerprint),
        settings,
        splits,
        preprocessing,
        held,
        [
            *_how_it_is_read(groups, window, len(sample), settings, shuffled),
            *left_out,
            *unread,
            *labels.notes(),
            *column_notes(sample, roles, types, preprocessing),
            *_gaps(preprocessing),
            *missing_class_findings(targets, target),
            *find_leaks(own, cells, types, used),
        ],
        describe_columns(sample, cells, roles, own, types, preprocessing),
        lambda: distributions({column: c.gather(training) for column, c in shown.items()}, shown_types),
    )


def _sample_table(groups: RowGroups, chosen: Rows) -> Table:
    """Return these rows with all columns."""
    parts = [
        text_frame(frame[chosen[(chosen >= first) & (chosen < first + frame.height)] - first], groups.path.name)
        for first, frame in groups.frames(list(groups.schema))
    ]
    return Table(groups.path.name, pl.concat(parts, rechunk=True), form=groups.form)


def _without_bad_cells(
    groups: RowGroups, types: Mapping[str, ColumnType], splits: Splits, missing: str
) -> tuple[Splits, list[str]]:
    """Return the splits after `missing` is applied to cells that are not of their column's type, and a note on them."""
    found = unread_cells(groups, np.sort(np.concatenate(list(splits.values()))), types)
    if not found.count:
        return splits, []

    def error(fix: str) -> DataError:
        return DataError(f"{format_count(found.count, 'cell')} of {groups.path} cannot be read.", found.problems, fix)

    if missing == "error":
        raise error(MEND)
    if missing == "fill":
        said = (
            f"missing=fill counts {format_count(found.count, 'unreadable cell')} as missing:"
            f" {format_problems(found.problems)}."
        )
        return splits, [said]
    bad = np.unique(np.concatenate(found.rows))
    splits = drop_rows(splits, bad, error(EMPTIED))
    return splits, [
        f"missing=drop left out {format_count(len(bad), 'row')} with unreadable cells:"
        f" {format_problems(found.problems)}."
    ]


def _encoded(groups: RowGroups, preprocessing: TablePreprocessing) -> Encoded:
    """Return a function that reads rows of a block and prepares them."""
    types = {encoder.name: encoder.type for encoder in preprocessing.encoders}

    def encoded(block: int, rows: Rows) -> Tensor:
        frame = groups.frame(block, list(types))[rows - groups.first[block]]
        return preprocessing.encode(read_cells(groups, frame, types))

    return encoded


def _window(groups: RowGroups, features: int, memory: int) -> int:
    """Return the number of blocks that are mixed at a time: half of those that fit into the memory, as the next are
    read meanwhile."""
    largest = int(np.diff(groups.first).max())
    return min(groups.blocks, max(1, memory * MEBIBYTE // (2 * largest * features * BYTES)))


def _how_it_is_read(groups: RowGroups, window: int, sample: int, settings: DataSettings, shuffled: bool) -> list[str]:
    """Return notes on how the table is streamed and shuffled."""
    better = "a larger memory= mixes them better, and where they are sorted `cutaway prepare` shuffles them once"
    mixed = (
        "all are mixed"
        if window == groups.blocks
        else (
            f"the rows of {window:,} of them, drawn at random from as many stretches of the table, are mixed at a "
            f"time: {'all were shuffled when they were prepared' if shuffled else better}"
        )
    )
    notes = [
        f"{groups.path} has {len(groups):,} rows of {len(groups.schema):,} columns, more than memory={settings.memory} "
        f"holds: it is read anew in every epoch, in {groups.blocks:,} row groups or parts of them, and {mixed}."
    ]
    if sample < len(groups):
        notes.append(
            f"Types of columns, what is told of columns and what gives the target away are of a sample of {sample:,} "
            "rows; what is learned from is of all. Copies of rows are not looked for."
        )
    return notes


def _gaps(preprocessing: TablePreprocessing) -> list[str]:
    """Return a note on missing cells in training."""
    found = [e.name for e in preprocessing.encoders if e.missing and not isinstance(e, Category)]
    some = ", ".join(found[:10]) + (", …" if len(found) > 10 else "")
    said = f"Missing cells count as the training median, and an input of their own tells them apart (columns {some})."
    return [said] if found else []


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
