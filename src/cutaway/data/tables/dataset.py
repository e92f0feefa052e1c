"""Tables as data sets: select the columns, split the rows, fit on the training split, transform every split.

The order keeps test data out of the fit: rows are split before any cell except the target is read, and types, fill
values, means and categories come from the training rows only.

Encoders fitted block by block without keeping the rows, with the same result as `column_types.fit_encoder`.

Counts, categories and order statistics (the median, the points of a quantile curve) are exact. Mean and standard
deviation are accumulated block by block and equal up to rounding (T. Chan, G. Golub, R. LeVeque, Updating formulae and
a pairwise algorithm for computing sample variances, 1979).

Data sets of tables that exceed the allowed memory: the steps of `table_dataset`, row group by row group.

The target and the split of each row are kept in memory. Of the other columns only a sample is kept, from which types
are inferred, and the state of the encoders, which are fitted on all training rows.

During training, a split is read by row groups. In an epoch the table is divided into W ranges of equally many blocks,
and the rows of one random block of each are shuffled together, so that a batch has rows from the whole table, even if
it is sorted by the target. W is the number of blocks that fit into the allowed memory; if all fit, the order is a full
shuffle. The order depends only on the seed and the epoch, and any batch can be computed directly.

Notes on a table: the type and use of each column, and cells that were left out, filled or unknown.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from ..findings import Finding, duplicate_warning, missing_class_findings
from ..modalities import reject_changed
from ..parallel import Progress, find_unreadable
from ..samplers import BatchPlan
from ..settings import DataSettings
from ..splits import Rows, remaining_fractions, sample_rows
from .column_types import (
    LEFT_OUT,
    MOST_CATEGORIES,
    QUANTILES,
    Category,
    ColumnType,
    Curve,
    Encoder,
    Numbers,
    Numeric,
    decode,
    explain_unreadable,
    fit_encoder,
    format_cell,
    most_frequent,
    natural_order,
    quantile_curve,
    standard_scale,
    strip_missing,
    unreadable_mask,
)
from .delimited import Form
from .distributions import Selection, distributions
from .parquet import EXACT, RowGroups, StreamedTable, parquet_files, reject_form, row_groups
from .table_files import TABLE_SUFFIXES, Table, format_count, frame_table, read_table, text_frame
from .targets import (
    NUMBER,
    Labels,
    Roles,
    check_learnable,
    check_trained_classes,
    choose_roles,
    complete_rows,
    constant_target_error,
    find_leaks,
    format_problems,
    read_labels,
)
from .transforms import (
    EMPTIED,
    MEND,
    Cells,
    Splits,
    TablePreprocessing,
    TableSplit,
    bad_cells,
    column_types_for,
    drop_rows,
    fit_preprocessing,
    split_rows,
    unknown_note,
    unreadable_cells,
)

__all__ = ["TABLE_SUFFIXES", "open_table", "table_dataset"]


def open_table(path: Path, settings: DataSettings) -> DataSet:
    """Return the data set in a .csv, .tsv or .parquet file, or in a folder of .parquet files of one table.

    Parquet that would take more than settings.memory is read by row groups, again in every epoch. Raises FileError,
    DataError (with every bad row or cell in `problems`), UnknownName or SettingError.
    """
    if not parquet_files(path):
        reject_changed(settings, ("memory", "workers"), "is for Parquet, and this table is read as a whole")
        return table_dataset(read_table(path, Form.from_settings(settings)), DataSource.of_file(path), settings)
    groups = row_groups(path)
    if settings.target in groups.schema:
        reject_one_value(groups, settings.target, Form.from_settings(settings))
    if path.is_dir() or groups.are_larger_than(settings.memory):
        return open_groups(groups, settings)
    return table_dataset(read_table(path, Form.from_settings(settings)), DataSource.of_file(path), settings)


def open_groups(groups: RowGroups, settings: DataSettings, shuffled: bool = False) -> DataSet:
    """Return the data set in row groups, in memory if they take at most settings.memory. `shuffled` rows are known to
    be in random order. Raises as `open_table`."""
    if groups.are_larger_than(settings.memory):
        return streamed_dataset(groups, settings, shuffled)
    reject_form(groups.path, Form.from_settings(settings))
    origin = DataSource(groups.path.resolve().name, str(groups.path), groups.fingerprint)
    groups = replace(groups, form=Form.from_settings(settings))
    return table_dataset(StreamedTable.of(groups, list(groups.schema)), origin, settings)


def reject_one_value(groups: RowGroups, column: str, form: Form) -> None:
    """Raise DataError if the target has the same value in all rows.

    The column is read by row groups up to the second value, so that the error comes before the table is loaded.
    """
    values: set[str] = set()
    count = 0
    for _, frame in groups.frames([column]):
        cells = frame_table(frame, form=form).text(column).drop_nulls()
        values.update(cells.unique())
        count += len(cells)
        if len(values) > 1:
            return
    if values:
        raise constant_target_error(column, values.pop(), count)


def table_dataset(
    table: Table, origin: DataSource, settings: DataSettings, given: Mapping[str, Rows] | None = None
) -> DataSet:
    """Return the data set in a table, with the target that `settings` name.

    `given` are the rows of predefined splits, train among them; they may overlap, and absent splits are drawn from
    train. Raises as `open_table`.
    """
    reject_changed(settings, ("noise", "count"), "is for xor, moons, circles and spirals, whose points are drawn here")
    roles = choose_roles(table, settings)
    labels = read_labels(table, roles.target, roles.types.get(roles.target))
    rows, left_out = complete_rows(table, labels, roles.group, settings.missing)
    drawn = sum(fraction > 0 for fraction in remaining_fractions(settings, given or ()))
    check_learnable(labels, rows if given is None else np.intersect1d(given["train"], rows), splits=1 + drawn)
    splits = split_rows(table, labels, roles, rows, settings, given)

    as_text = {column for column, type in roles.types.items() if type != "number"}
    cells = {c: table.text(c) if c in as_text else table.cells(c) for c in roles.inputs}
    types = column_types_for(cells, roles, splits["train"], len(table))
    cells |= {c: table.text(c) for c, type in types.items() if c in table.numbers and type.kind != "number"}
    splits, unread = _without_bad_cells(table, cells, types, splits, settings.missing)
    if settings.max_samples is not None:
        train = splits["train"]
        splits["train"] = sample_rows(
            train, settings.max_samples, seed=settings.split_seed, strata=labels.classes(train)
        )
    learned = {column: type for column, type in types.items() if type.learned}
    training = {column: cells[column].gather(splits["train"]) for column in learned}
    encoders = [fit_encoder(column, type, training[column], settings.scale) for column, type in learned.items()]
    preprocessing = fit_preprocessing(encoders, types, labels, splits["train"], settings, table.form)
    assert not isinstance(preprocessing.spec.target, Episodes), "rows have a target each"
    check_trained_classes(labels, preprocessing.spec.target, splits)

    by_split = {split: {column: c.gather(rows) for column, c in cells.items()} for split, rows in splits.items()}
    inputs = pl.DataFrame([cells[encoder.name] for encoder in preprocessing.encoders])
    aside = table.frame.drop(*inputs.columns, roles.target)
    return build_dataset(
        origin,
        settings,
        splits,
        preprocessing,
        {split: _table_split(labels, by_split[split], preprocessing, rows) for split, rows in splits.items()},
        [
            *table.notes,
            *left_out,
            *unread,
            *labels.notes(),
            *column_notes(table, roles, types, preprocessing),
            *split_notes(labels, preprocessing, splits, by_split),
            duplicate_warning(inputs.hash_rows().to_numpy(), splits, table.place, aside=aside),
            *find_leaks(labels, inputs.to_dict(), types, np.concatenate(list(splits.values()))),
        ],
        describe_columns(table, cells, roles, labels, types, preprocessing),
        lambda: distributions(
            {**by_split["train"], roles.target: labels.cells.gather(splits["train"])},
            {**types, roles.target: NUMBER if labels.numeric else ColumnType("category")},
        ),
    )


def _without_bad_cells(
    table: Table, cells: Cells, types: Mapping[str, ColumnType], splits: Splits, missing: str
) -> tuple[Splits, list[str]]:
    """Return the splits after `missing` is applied to cells that are not of their column's type, and a note on those.

    Raises DataError that names each of them if `missing` is error, or if a split has no rows left.
    """
    inputs = {column: type for column, type in types.items() if type.learned}
    problems = bad_cells(table, cells, inputs, np.concatenate(list(splits.values())))
    found = list(problems.values())
    if found and missing == "error":
        raise unreadable_cells(table, found, MEND)
    if not found:
        return splits, []
    if missing == "fill":
        return splits, [
            f"missing=fill counts {format_count(len(found), 'unreadable cell')} as missing: {format_problems(found)}."
        ]
    bad = np.array(sorted({row for row, _ in problems}), np.int64)
    splits = drop_rows(splits, bad, unreadable_cells(table, found, EMPTIED))
    return splits, [
        f"missing=drop left out {format_count(len(bad), 'row')} with unreadable cells: {format_problems(found)}."
    ]


def _table_split(labels: Labels, cells: Cells, preprocessing: TablePreprocessing, rows: Rows) -> TableSplit:
    assert not isinstance(preprocessing.spec.target, Episodes)
    target = labels.tensor(preprocessing.spec.target, rows)
    return TableSplit(preprocessing.encode(cells), target, lambda i: (labels.table, int(rows[i])))


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
    groups = replace(groups, form=replace(Form.from_settings(settings), units={}))
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
    splits, unread = _without_unread_cells(groups, learned, splits, settings.missing)
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
    own = labels.for_rows(sample)
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


def _without_unread_cells(
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
        f"holds: it is read again in every epoch, in {groups.blocks:,} row groups or parts of them, and {mixed}."
    ]
    if sample < len(groups):
        notes.append(
            f"Column types, column notes and the leakage check use a sample of {sample:,} "
            "rows; training uses all rows. Duplicate rows are not checked."
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


MOST_DOUBTS = 5  # columns of an uncertain type with a note each
SHOWN = 3  # example values of a category


def describe_columns(
    table: Table,
    inputs: Cells,
    roles: Roles,
    labels: Labels,
    types: Mapping[str, ColumnType],
    preprocessing: TablePreprocessing,
) -> list[dict[str, str]]:
    """Return an entry for each column of the table: name, type, role, missing, example (a range, or a few values)."""
    encoded = {encoder.name for encoder in preprocessing.encoders}
    known = dict(types) | {roles.target: NUMBER if labels.numeric else ColumnType("category")}
    lines = []
    for column in table.columns:
        type = known.get(column, ColumnType("category"))
        if column == roles.target:
            role = "target"
        elif column == roles.group:
            role = "group"
        elif column in roles.ignored:
            role = "left out: ignore says so"
        else:
            role = "input" if column in encoded else f"left out: {_reason(type)}"
        cells = labels.cells if column == roles.target else inputs.get(column, table.text(column))
        gaps = cells.null_count()
        lines.append(
            {
                "name": column,
                "type": type.kind if column in known else "",
                "role": role,
                "missing": f"{gaps:,} ({gaps / len(cells):.1%})" if gaps else "0",
                "example": _example(cells.drop_nulls(), type),
            }
        )
    return lines


def column_notes(
    table: Table, roles: Roles, types: Mapping[str, ColumnType], preprocessing: TablePreprocessing
) -> list[str]:
    """Return notes on the choices made for single columns, with the settings that change them."""
    encoders = {encoder.name: encoder for encoder in preprocessing.encoders}
    notes = []
    for column, type in types.items():
        if column not in encoders:
            notes.append(f"Column {column} is left out: {_reason(type)}{_way_back(column, type)}.")
        encoder = encoders.get(column)
        if isinstance(encoder, Category) and encoder.rare:
            notes.append(
                f"Column {column}: the {MOST_CATEGORIES} most frequent values have an input each, "
                f"{encoder.rare:,} rarer ones count as unknown."
            )
    doubtful = {column: type.doubt for column, type in types.items() if type.doubt and type.kind != "id"}
    doubts = [f"Column {column}: {doubt}." for column, doubt in doubtful.items()]
    notes += doubts[:MOST_DOUBTS]
    if len(doubts) > MOST_DOUBTS:
        others = list(doubtful)[MOST_DOUBTS:]
        more = ", …" if len(others) > MOST_DOUBTS else ""
        notes.append(f"The same of {len(others):,} more columns: {', '.join(others[:MOST_DOUBTS])}{more}.")
    notes += _missing_words(table, types)
    if roles.group is not None:
        notes.append(f"Column {roles.group} keeps rows together in the split and is no input.")
    written = [column for column in (*encoders, roles.target) if column not in table.numbers]
    padded = [c for c in written if (table.frame[c] != table.frame[c].str.strip_chars()).any()]
    if padded:
        notes.append(f"Spaces around cells do not count (columns {', '.join(padded)}).")
    return notes


def split_notes(
    labels: Labels, preprocessing: TablePreprocessing, splits: Mapping[str, Rows], cells: Mapping[str, Cells]
) -> list[str]:
    """Return notes on the content of the splits, from the `cells` of each."""
    notes = []
    for encoder in preprocessing.encoders:
        gaps = {split: columns[encoder.name].null_count() for split, columns in cells.items()}
        if isinstance(encoder, Category) or not any(gaps.values()):
            continue
        tell = "an input of their own tells them apart" if encoder.missing else "training had none to learn from"
        counts = ", ".join(f"{gap:,} in {split}" for split, gap in gaps.items() if gap)
        notes.append(
            f"Column {encoder.name}: missing cells ({counts}) count as the training median, "
            f"{format_cell(encoder.fill, encoder.type)}; {tell}."
        )
    for split in splits:
        if split != "train":
            unknown = preprocessing.unknown(cells[split])
            notes += [unknown_note(column, count, f"the {split} split") for column, count in unknown.items()]
    classes = set(preprocessing.spec.target.classes)
    for split, rows in splits.items() if classes else ():
        absent = natural_order(classes - set(labels.cells.gather(rows).unique()))
        if absent:
            said = ", ".join(map(repr, absent[:5]))
            notes.append(Finding(f"No row in {split} has the class {said}: it is not measured there."))
    inputs, examples = len(preprocessing.spec.columns), len(splits["train"])
    if inputs > examples:
        notes.append(
            f"There are more inputs ({inputs:,}) than training rows ({examples:,}): the rows can be learned by heart."
        )
    return notes


def _missing_words(table: Table, types: Mapping[str, ColumnType]) -> list[str]:
    """Return a note on each column of categories or text in which a word that may be a value counts as missing."""
    notes = []
    for column, type in types.items():
        if type.kind not in ("category", "text") or column in table.numbers:
            continue
        words = table.frame[column].str.strip_chars().filter(table.text(column).is_null()).drop_nulls()
        words = words.filter(words != "")
        if len(words):
            said = ", ".join(words.unique().sort().head(SHOWN))
            notes.append(
                f"Column {column}: {said} counts as missing ({format_count(len(words), 'cell')}). To read it as a"
                " value, give missing_values= the words that do count."
            )
    return notes


def _reason(type: ColumnType) -> str:
    return LEFT_OUT.get(type.kind, "no training cell can be read")


def _way_back(column: str, type: ColumnType) -> str:
    """Return the setting that makes an input of a column that was left out."""
    ways = {"id": "category (or number)", "text": "category"}
    return f"; types={column}:{ways[type.kind]} keeps it" if type.kind in ways else ""


def _example(present: pl.Series, type: ColumnType) -> str:
    """Return the range of numbers and dates, or the first few distinct values of other types."""
    if type.ordered:
        values = decode(present, type)
        values = values[~np.isnan(values)]
        return f"{format_cell(values.min(), type)} … {format_cell(values.max(), type)}" if len(values) else ""
    different = present.unique(maintain_order=True).str.replace_all(r"\s+", " ")  # a cell may have several lines
    more = f", … ({len(different):,})" if len(different) > SHOWN else ""
    return ", ".join(different.head(SHOWN)) + more
