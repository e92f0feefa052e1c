"""Tables as data sets: select the columns, split the rows, fit on the training split, transform every split.

The order keeps test data out of the fit: rows are split before any cell except the target is read, and types, fill
values, means and categories come from the training rows only.

A table that exceeds the allowed memory takes the same steps row group by row group. The target and the split of each
row are kept in memory. Of the other columns only a sample is kept, from which types are inferred, and the state of the
encoders, which are fitted on all training rows.

Notes report the type and use of each column, and cells that were left out, filled or unknown. The distribution of a
column over the training rows is stored as counts between bin edges, or of each value.

Distributions of columns.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from ...core.errors import ColumnError, DataError, Problem, shorten_repr
from ...core.files import MEBIBYTE
from ...core.spec import Episodes, Simple
from ..build import DatasetBuilder, DataSource, DuplicateKeys
from ..dataset_base import DataSet, Split
from ..findings import Finding, count_dropped, dropped_note, missing_class_findings
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import Rows, remaining_fractions, sample_rows
from .column_roles import (
    NUMBER,
    Labels,
    Roles,
    check_learnable,
    check_trained_classes,
    choose_roles,
    complete_rows,
    constant_target_error,
    find_leaks,
    find_sentinels,
    find_similar_categories,
    format_problems,
    incomplete_rows,
    numeric_columns,
    read_labels,
    reject_incomplete,
    reject_units,
)
from .column_types import (
    LEFT_OUT,
    MOST_CATEGORIES,
    Category,
    ColumnType,
    Encoder,
    decode,
    fit_encoder,
    format_cell,
    natural_order,
)
from .delimited import Form
from .row_groups import Encoded, RowGroupSplit, UnreadableCells, fit_encoders, read_cells, unread_cells
from .table_files import (
    TABLE_SUFFIXES,
    RowGroups,
    StreamedTable,
    Table,
    format_count,
    frame_table,
    locate_row_groups,
    parquet_files,
    read_table,
    reject_form,
    text_frame,
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
    unreadable_inputs,
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
    groups = locate_row_groups(path)
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
    return TableBuilder(table, origin, settings, given).build()


def streamed_dataset(groups: RowGroups, settings: DataSettings, shuffled: bool = False) -> DataSet:
    """Return the data set in row groups that exceed the allowed memory; `shuffled` rows are known to be in random
    order.

    Raises as `table_dataset`.
    """
    return StreamedTableBuilder(groups, settings, shuffled).build()


class TableBuilder(DatasetBuilder[TablePreprocessing, Split]):
    """The steps from a table in memory to its data set.

    `sample` are the rows from which types are inferred and columns are described: here all of them.
    """

    noun = "rows"

    def __init__(
        self, table: Table, origin: DataSource, settings: DataSettings, given: Mapping[str, Rows] | None = None
    ) -> None:
        super().__init__(origin, settings)
        reject_changed(
            settings, ("noise", "count"), "is for xor, moons, circles and spirals, whose points are drawn here"
        )
        self.roles = choose_roles(table, settings)
        self.read_targets(table)
        self.sample, self.sample_labels, self.given = table, self.labels, given
        drawn = sum(fraction > 0 for fraction in remaining_fractions(settings, given or ()))
        train = self.rows if given is None else np.intersect1d(given["train"], self.rows)
        check_learnable(self.labels, train, splits=1 + drawn)

    def read_targets(self, table: Table) -> None:
        """Read the target of all rows, and leave out rows without one."""
        self.table = table
        self.labels = read_labels(table, self.roles.target, self.roles.types.get(self.roles.target))
        incomplete = incomplete_rows(table, self.labels, self.roles.group)
        self.rows, self.left_out = complete_rows(table, incomplete)
        self.reject_problems(table, incomplete)

    def reject_problems(self, table: Table, incomplete: Mapping[int, Problem]) -> None:
        """Raise DataError with all problems of the table that `missing` does not allow, if there are any.

        `incomplete` are the rows without a target or a group.
        """
        units = [column for column in numeric_columns(self.roles) if column in table.unit_problems]
        if self.settings.missing == "drop" and not units:
            return
        roles = replace(self.roles, inputs=tuple(c for c in self.roles.inputs if c not in units))
        cells: dict[tuple[int, str], Problem] = {}
        if (incomplete or units) and self.settings.missing == "error":
            rows = self.rows if len(self.rows) else np.arange(len(table))
            cells = unreadable_inputs(table, roles, rows)
        if not units and not incomplete:
            return  # cells that cannot be read are reported once the rows are split
        lines = problem_lines(table, self.roles, incomplete, cells, units, self.settings.missing)
        if units and not incomplete and not cells:
            reject_units(table, units)
        problems = [
            *(Problem(f"column {column}", table.unit_problems[column]) for column in units),
            *_alternate(list(incomplete.values()), list(cells.values())),
        ]
        parts = [f"{format_count(len(units), 'column')} mix units"] if units else []
        if incomplete:
            of = f"{len(incomplete):,} of {format_count(len(table), 'row')}"
            parts.append(f"{of} cannot be used because the target or group is missing")
        if cells:
            parts.append(f"{format_count(len(cells), 'cell')} cannot be read")
        fix = "Fill them in, or leave those rows out with missing=drop."
        if units or cells:
            fix = "`cutaway check` lists each kind with the setting that fixes it."
        error = ColumnError if units else DataError
        raise error(f"{table.title}: {', '.join(parts)}.", problems, fix, lines=lines)

    def split(self) -> dict[str, Rows]:
        """Split the rows, infer the types of columns from training rows, and leave out rows as `missing` says."""
        settings = self.settings
        splits = split_rows(self.table, self.labels, self.roles, self.rows, settings, self.given)
        self.types = self.infer_types(splits["train"])
        self.learned = {column: type for column, type in self.types.items() if type.learned}
        splits, self.unread = _without_unreadable(self.unreadable(splits), splits, settings.missing)
        if settings.max_samples is not None:
            train = splits["train"]
            strata = self.labels.classes(train)
            splits["train"] = sample_rows(train, settings.max_samples, seed=settings.split_seed, strata=strata)
        return splits

    def infer_types(self, train: Rows) -> dict[str, ColumnType]:
        """Read the cells of the inputs, and infer their types from the training rows."""
        table, inputs = self.table, self.roles.inputs
        as_text = {column for column, type in self.roles.types.items() if type != "number"}
        self.cells = {c: table.text(c) if c in as_text else table.cells(c) for c in inputs}
        types = column_types_for(self.cells, self.roles, train, len(table))
        self.cells |= {c: table.text(c) for c, type in types.items() if c in table.numbers and type.kind != "number"}
        return types

    def unreadable(self, splits: Splits) -> UnreadableCells:
        """Return the cells that are not of their column's type."""
        found = bad_cells(self.table, self.cells, self.learned, np.concatenate(list(splits.values())))
        rows = np.array([row for row, _ in found], np.int64)
        lines = problem_lines(self.table, self.roles, {}, found, (), self.settings.missing) if found else []
        return UnreadableCells(self.table.title, len(found), [rows], list(found.values()), lines)

    def fit(self) -> TablePreprocessing:
        """Fit an encoder for each column."""
        train = self.indices["train"]
        encoders = self.fit_encoders(train)
        weights = None if self.origin.weights is None else self.origin.weights[train]
        fitted = fit_preprocessing(encoders, self.types, self.labels, train, self.settings, self.table.form, weights)
        target = fitted.spec.target
        assert not isinstance(target, Episodes), "rows have a target each"
        self.target: Simple = target
        check_trained_classes(self.labels, self.target, self.indices)
        return fitted

    def fit_encoders(self, train: Rows) -> Sequence[Encoder | None]:
        """Return the encoder of each column; None if no cell can be read."""
        training = {column: self.cells[column].gather(train) for column in self.learned}
        weights, scale = self.origin.weights, self.settings.scale
        own = None if weights is None else weights[train]
        return [fit_encoder(column, type, training[column], scale, own) for column, type in self.learned.items()]

    def encode(self, split: str, rows: Rows) -> Split:
        """Return the rows in memory."""
        own, table = {column: cells.gather(rows) for column, cells in self.cells.items()}, self.labels.table
        return TableSplit(
            self.preprocessing.encode(own), self.labels.tensor(self.target, rows), lambda i: (table, int(rows[i]))
        )

    def notes(self) -> list[str]:
        """Return notes on rows, columns and splits."""
        by_split = {
            split: {column: cells.gather(rows) for column, cells in self.cells.items()}
            for split, rows in self.indices.items()
        }
        return [
            *self.table.notes,
            *self.common_notes(),
            *split_notes(self.labels, self.preprocessing, self.indices, by_split),
            *find_leaks(self.labels, self.inputs.to_dict(), self.types, np.concatenate(list(self.indices.values()))),
        ]

    def common_notes(self) -> list[str]:
        """Return notes that a table in memory and one in row groups have."""
        notes = column_notes(self.sample, self.roles, self.types, self.preprocessing)
        target, numeric = self.roles.target, self.sample_labels.numeric
        used = self.sampled(self.used)
        shown = {column: cells.gather(used) for column, cells in self.cells.items()}
        of_target = {target: self.sample_labels.cells.gather(used)} if numeric else {}
        types = {**self.types, **({target: NUMBER} if numeric else {})}
        doubts = [*find_sentinels({**shown, **of_target}, types), *find_similar_categories(shown, types)]
        return [*self.left_out, *self.unread, *self.labels.notes(), *doubts, *notes]

    @property
    def inputs(self) -> pl.DataFrame:
        """The cells of the columns that are inputs."""
        return pl.DataFrame([self.cells[encoder.name] for encoder in self.preprocessing.encoders])

    def duplicate_keys(self) -> DuplicateKeys | None:
        """Return a hash of the inputs of each row."""
        inputs = self.inputs
        aside = self.table.frame.drop(*inputs.columns, self.roles.target)
        return DuplicateKeys(inputs.hash_rows().to_numpy(), self.table.place, aside)

    def columns(self) -> list[dict[str, str]]:
        """Return the type and the role of each column."""
        return describe_columns(self.sample, self.cells, self.roles, self.sample_labels, self.types, self.preprocessing)

    def distributions(self) -> Callable[[], list[dict[str, Any]]]:
        """Return a function that counts the values of each column in the training rows of the sample."""
        labels, train, target = self.sample_labels, self.sampled(self.indices["train"]), self.roles.target
        shown = {column: cells.gather(train) for column, cells in {**self.cells, target: labels.cells}.items()}
        types = {**self.types, target: NUMBER if labels.numeric else ColumnType("category")}
        return lambda: column_distributions(shown, types)

    def sampled(self, rows: Rows) -> Rows:
        """Return the numbers of these rows in the sample."""
        return rows


class StreamedTableBuilder(TableBuilder):
    """The same steps for a table whose rows are read by row groups, of which only a sample is in memory."""

    def __init__(self, groups: RowGroups, settings: DataSettings, shuffled: bool) -> None:
        self.groups = replace(groups, form=replace(Form.from_settings(settings), units={}))
        self.chosen = sample_rows(np.arange(len(groups)), SAMPLE, seed=settings.split_seed)
        self.shuffled = shuffled
        super().__init__(
            _sample_table(self.groups, self.chosen),
            DataSource(groups.path.stem, str(groups.path), groups.fingerprint),
            settings,
        )
        self.sample_labels = self.labels.for_rows(self.sample)

    def read_targets(self, table: Table) -> None:
        """Read the target of all rows, and leave out rows without one."""
        roles = self.roles
        kinds = {roles.target: roles.types.get(roles.target)} | ({roles.group: "category"} if roles.group else {})
        super().read_targets(StreamedTable.compact(self.groups, kinds))

    def reject_problems(self, table: Table, incomplete: Mapping[int, Problem]) -> None:
        """Raise DataError if targets or groups are missing; the inputs are not in memory here."""
        reject_incomplete(table, incomplete, self.settings.missing)

    def sampled(self, rows: Rows) -> Rows:
        """Return the numbers of these rows in the sample."""
        return np.flatnonzero(np.isin(self.chosen, rows))

    def infer_types(self, train: Rows) -> dict[str, ColumnType]:
        """Infer the types of the inputs from the training rows in the sample."""
        self.cells = {column: self.sample.text(column) for column in self.roles.inputs}
        return column_types_for(self.cells, self.roles, self.sampled(train), len(self.groups))

    def unreadable(self, splits: Splits) -> UnreadableCells:
        """Return the cells of all rows that are not of their column's type."""
        return unread_cells(self.groups, np.sort(np.concatenate(list(splits.values()))), self.learned)

    def fit_encoders(self, train: Rows) -> Sequence[Encoder | None]:
        """Return the encoder of each column, fitted on all training rows."""
        return fit_encoders(self.groups, train, self.learned, self.settings.scale)

    def encode(self, split: str, rows: Rows) -> Split:
        """Return the rows, to be read in every epoch."""
        return RowGroupSplit(
            rows,
            self.groups.block_indices(rows),
            self.labels.tensor(self.target, rows),
            _encoded(self.groups, self.preprocessing),
            self.window,
            self.groups.place,
            self.table.row,
            ahead=self.settings.workers != 0,
        )

    @property
    def window(self) -> int:
        """The number of blocks that are mixed at a time."""
        return _num_mixed_blocks(self.groups, len(self.preprocessing.spec.columns), self.settings.memory)

    def notes(self) -> list[str]:
        """Return notes on reading, rows, columns and splits."""
        targets = {split: self.labels.tensor(self.target, rows) for split, rows in self.indices.items()}
        return [
            *_how_it_is_read(self.groups, self.window, len(self.sample), self.settings, self.shuffled),
            *self.common_notes(),
            *_gaps(self.preprocessing),
            *missing_class_findings(targets, self.target),
            *find_leaks(self.sample_labels, self.cells, self.types, self.sampled(self.used)),
        ]

    def duplicate_keys(self) -> None:
        """Return None: rows are not compared."""


def _without_unreadable(found: UnreadableCells, splits: Splits, missing: str) -> tuple[Splits, list[str]]:
    """Return the splits after `missing` is applied to cells that are not of their column's type, and a note on those.

    Raises DataError that names each of them if `missing` is error, or if a split has no rows left.
    """
    if not found.count:
        return splits, []
    if missing == "error":
        raise found.error(MEND)
    named = format_problems(found.problems, found.count)
    if missing == "fill":
        return splits, [f"missing=fill counts {format_count(found.count, 'unreadable cell')} as missing: {named}."]
    bad = np.unique(np.concatenate(found.rows))
    total = sum(map(len, splits.values()))
    splits = drop_rows(splits, bad, found.error(EMPTIED))
    note = f"missing=drop left out {count_dropped(len(bad), total, 'row')} with unreadable cells: {named}."
    return splits, [dropped_note(note, len(bad), total)]


def _alternate(*lists: list[Problem]) -> list[Problem]:
    """Return the items of the lists in turns, so that the first ones show each list."""
    return [one for some in zip_longest(*lists) for one in some if one is not None]


WORDS = 3  # distinct cells that a line names
PLACES = 5  # rows that a line names


def problem_lines(
    table: Table,
    roles: Roles,
    incomplete: Mapping[int, Problem],
    cells: Mapping[tuple[int, str], Problem],
    units: Sequence[str],
    missing: str,
) -> list[str]:
    """Return a line for each kind of problem of a table: column, count, rows, and the setting that fixes it.

    The last lines say what missing=drop and missing=fill would do.
    """
    lines = [
        f"column {column}: {table.unit_problems[column]}; types={column}:category or ignore={column}"
        for column in units
    ]
    of_kind: dict[tuple[str, str], list[int]] = {}
    for row, problem in incomplete.items():
        where, gone = table.where(row, roles.target), table.frame[roles.target][row]
        column = roles.target if problem.where == where else str(roles.group)
        readable = f"{shorten_repr(gone)} " if gone else ""
        of_kind.setdefault((column, problem.what.replace(readable, "") if readable else problem.what), []).append(row)
    for (row, column), problem in cells.items():
        what = problem.what.removeprefix(f"{shorten_repr(str(table.cells(column)[row]))} ") if column else ""
        of_kind.setdefault((column, what), []).append(row)
    for (column, what), rows in of_kind.items():
        words = list(dict.fromkeys(cell for row in rows if (cell := table.text(column)[row])))
        such = f" such as {', '.join(map(shorten_repr, words[:WORDS]))}" if words else ""
        noun, said = format_count(len(rows), "cell" if words else "row"), what.removeprefix("is ").removeprefix("has ")
        lines.append(f"column {column}: {noun}{such} ({_name_rows(table, rows)}): {said}{_way_out(words, what)}")
    dropped = {row: column for (column, _), rows in of_kind.items() for row in rows}
    if dropped:
        counts = ", ".join(f"{c} {len({*rows}):,}" for c, rows in _rows_by_column(of_kind).items())
        share = f"{len(dropped):,} of {format_count(len(table), 'row')} ({len(dropped) / len(table):.1%})"
        lines.append(f"missing=drop leaves out {share}, because of: {counts}")
    if cells and missing == "error":
        target = "; a missing target or group is not filled" if incomplete else ""
        lines.append(
            f"missing=fill counts {format_count(len(cells), 'unreadable cell')} as missing: the training median with a "
            f"missing-value indicator{target}"
        )
    return lines


def _rows_by_column(of_kind: Mapping[tuple[str, str], list[int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for (column, _), rows in of_kind.items():
        found.setdefault(column, []).extend(rows)
    return found


def _name_rows(table: Table, rows: Sequence[int]) -> str:
    """Return the first of these rows as text: lines 2, 22, 42, …"""
    more = ", …" if len(rows) > PLACES else ""
    if table.called or table.parts or table.order is not None:
        return ", ".join(table.place(row) for row in rows[:PLACES]) + more
    numbers = [row + 1 if table.lines is None else int(table.lines[row]) for row in rows[:PLACES]]
    noun = "row" if table.lines is None else "line"
    return f"{noun}{'' if len(rows) == 1 else 's'} {', '.join(f'{n}' for n in numbers)}{more}"


def _way_out(words: Sequence[str], what: str) -> str:
    """Return the setting that reads unreadable cells as missing ones, if they are a few words."""
    plain = [word for word in words if word.isprintable() and not any(sign in word for sign in ',"')]
    if not words or len(plain) > WORDS or len(plain) < len(words) or "thousands" in what or "decimal" in what:
        return ""
    setting = f"missing_values=auto,{','.join(plain)}"
    return f"; {shlex.quote(setting)} if it means missing"


SAMPLE = 100_000  # rows of a table in row groups from which types are inferred
BYTES = 4  # bytes of an input


def _sample_table(groups: RowGroups, chosen: Rows) -> Table:
    """Return these rows with all columns."""
    parts = [
        text_frame(frame[chosen[(chosen >= first) & (chosen < first + frame.height)] - first], groups.path.name)
        for first, frame in groups.frames(list(groups.schema))
    ]
    return Table(groups.path.name, pl.concat(parts, rechunk=True), form=groups.form)


def _encoded(groups: RowGroups, preprocessing: TablePreprocessing) -> Encoded:
    """Return a function that reads rows of a block and prepares them."""
    types = {encoder.name: encoder.type for encoder in preprocessing.encoders}

    def encoded(block: int, rows: Rows) -> Tensor:
        frame = groups.frame(block, list(types))[rows - groups.first[block]]
        return preprocessing.encode(read_cells(groups, frame, types))

    return encoded


def _num_mixed_blocks(groups: RowGroups, num_features: int, memory_mib: int) -> int:
    """Return the number of blocks that are mixed at a time: half of those that fit into the memory, as the next are
    read meanwhile."""
    largest = int(np.diff(groups.first).max())
    return min(groups.blocks, max(1, memory_mib * MEBIBYTE // (2 * largest * num_features * BYTES)))


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
    said = f"Missing cells are replaced by the training median, with a missing-value indicator (columns {some})."
    return [said] if found else []


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
        notes.append(f"Column {roles.group} keeps rows together in the split and is not an input.")
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
        tell = "with a missing-value indicator" if encoder.missing else "training had none to learn from"
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
                " value, set missing_values= to the full list of words that mean missing."
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


Numbers = npt.NDArray[np.float64]


MOST_COLUMNS = 200
BARS = 24
VALUES = 6  # categories counted by name; the others are combined
REST = "all others"


def column_distributions(cells: Mapping[str, pl.Series], types: Mapping[str, ColumnType]) -> list[dict[str, Any]]:
    """Return one document for each column of numbers, dates, yes/no or categories.

    It has `counts` with the `ends` of the range that they divide evenly, or with `labels`, and the number of `missing`
    or unreadable cells.
    """
    found: list[dict[str, Any]] = []
    for column, type in types.items():
        if column not in cells or len(found) == MOST_COLUMNS:
            continue
        if type.ordered:
            document = _to_numbers(cells[column], type)
        elif type.kind in ("category", "yes/no"):
            document = _values(cells[column])
        else:
            continue
        if document:
            found.append({"name": column, "type": type.kind, **document})
    return found


def _to_numbers(cells: pl.Series, type: ColumnType) -> dict[str, Any]:
    values = decode(cells, type)
    known = values[np.isfinite(values)]
    if not len(known):
        return {}
    low, high = float(known.min()), float(known.max())
    whole = bool((known == known.round()).all()) and high / 2 - low / 2 < BARS / 2
    counts = np.bincount((known - low).astype(np.int64)) if whole else histogram(known, BARS)
    return {
        "counts": counts.tolist(),
        "ends": [format_cell(low, type), format_cell(high, type)],
        "missing": len(values) - len(known),
    }


def histogram(values: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """Count finite values in equal bins from the smallest to the largest.

    `np.histogram` raises if a bin is narrower than the distance of two floats, or if the range exceeds the largest
    float. It therefore gets the relative position of each value, 0 to 1, computed from halves.
    """
    half = values / 2
    low, span = half.min(), half.max() - half.min()
    counts, _ = np.histogram((half - low) / (span or 1.0), bins, (0, 1))
    return counts


def _values(cells: pl.Series) -> dict[str, Any]:
    counted = cells.drop_nulls().alias("value").value_counts(sort=True)
    if counted.is_empty():
        return {}
    labels = [str(value) for value in counted.to_series(0).head(VALUES)]
    counts = counted.to_series(1).head(VALUES).to_list()
    if len(counted) > VALUES:
        labels, counts = [*labels[:-1], REST], [*counts[:-1], len(cells) - cells.null_count() - sum(counts[:-1])]
    return {"counts": counts, "labels": labels, "different": len(counted), "missing": cells.null_count()}
