"""Tables as data sets: select the columns, split the rows, fit on the training split, transform every split.

The order keeps test data out of the fit: rows are split before any cell except the target is read, and types, fill
values, means and categories come from the training rows only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from ...core.spec import Episodes
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet
from ..modalities import reject_changed
from ..quality.duplicates import duplicate_warning
from ..settings import DataSettings
from ..splits import Rows, remaining_fractions, sample_rows
from .column_types import ColumnType
from .delimited import Form
from .distributions import distributions
from .encoders import fit_encoder
from .parquet import RowGroups, StreamedTable, parquet_files, reject_form, row_groups
from .roles import choose_roles
from .streamed_dataset import streamed_dataset
from .summary import column_notes, describe_columns, split_notes
from .table_files import TABLE_SUFFIXES, Table, format_count, frame_table, read_table
from .targets import (
    NUMBER,
    Labels,
    check_learnable,
    check_trained_classes,
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
        return table_dataset(read_table(path, Form.of(settings)), DataSource.of_file(path), settings)
    groups = row_groups(path)
    if settings.target in groups.schema:
        reject_one_value(groups, settings.target, Form.of(settings))
    if path.is_dir() or groups.are_larger_than(settings.memory):
        return open_groups(groups, settings)
    return table_dataset(read_table(path, Form.of(settings)), DataSource.of_file(path), settings)


def open_groups(groups: RowGroups, settings: DataSettings, shuffled: bool = False) -> DataSet:
    """Return the data set in row groups, in memory if they take at most settings.memory. `shuffled` rows are known to
    be in random order. Raises as `open_table`."""
    if groups.are_larger_than(settings.memory):
        return streamed_dataset(groups, settings, shuffled)
    reject_form(groups.path, Form.of(settings))
    origin = DataSource(groups.path.resolve().name, str(groups.path), groups.fingerprint)
    groups = replace(groups, form=Form.of(settings))
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
