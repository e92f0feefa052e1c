"""Tables as data sets: choose the columns, split the rows, fit on the training split, prepare every split.

The order keeps what is learned from apart from what is measured on. Rows are split before any cell but the target is
looked at; types, fill values, means and categories come from the training rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from ...errors import DataError
from ...spec import Episodes, TableSpec
from ..assembly import Origin, assemble
from ..kinds import reject_changed
from ..sets import DataSet
from ..settings import DataSettings
from ..splits import Rows, draw, drawn_splits, fractions_left, straddle_note
from .columns import LEFT_OUT, ColumnType, asked_for, infer, meaning
from .distributions import distributions
from .encoders import fit_encoder
from .forms import Form
from .leaks import leaks
from .notes import column_notes, describe_columns, split_notes
from .preprocessing import Cells, TablePreprocessing, TableSplit, bad_cells, unreadable_cells
from .reading import TABLE_SUFFIXES, Table, counted, read_table
from .roles import Roles, choose_roles
from .targets import NUMBER, Labels, check_learnable, check_taught, complete_rows, group_numbers, named, read_labels

__all__ = ["TABLE_SUFFIXES", "open_table", "table_dataset"]

Splits = dict[str, Rows]


def open_table(path: Path, settings: DataSettings) -> DataSet:
    """The data set in a .csv, .tsv or .parquet file.

    Raises FileError, DataError (with every bad row or cell in `problems`), UnknownName or SettingError.
    """
    return table_dataset(read_table(path, Form.of(settings)), Origin.of_file(path), settings)


def table_dataset(
    table: Table, origin: Origin, settings: DataSettings, fixed: Mapping[str, Rows] | None = None
) -> DataSet:
    """The data set in a table, whose target `settings` name.

    `fixed` are rows for train, val and test instead of a seeded split; they may overlap. Raises as `open_table`.
    """
    reject_changed(settings, ("noise", "count"), "is for xor, moons, circles and spirals, whose points are drawn here")
    roles = choose_roles(table, settings)
    labels = read_labels(table, roles.target, roles.types.get(roles.target))
    rows, left_out = complete_rows(table, labels, roles.group, settings.missing)
    check_learnable(labels, rows, splits=1 if fixed else 3)
    if fixed is None:
        splits = _split(table, labels, roles, rows, settings)
    else:
        splits = {split: np.intersect1d(given, rows) for split, given in fixed.items()}

    cells = {column: meaning(table.frame[column]) for column in roles.inputs}
    types = _types(cells, roles, splits["train"], len(table))
    splits, unread = _without_bad_cells(table, cells, types, splits, settings.missing)
    if settings.max_samples is not None:
        train = splits["train"]
        splits["train"] = draw(train, settings.max_samples, seed=settings.split_seed, strata=labels.classes(train))
    preprocessing = _fit(cells, types, labels, splits["train"], settings, table.form)
    assert not isinstance(preprocessing.spec.target, Episodes), "rows have a target each"
    check_taught(labels, preprocessing.spec.target, splits)

    by_split = {split: {column: c.gather(rows) for column, c in cells.items()} for split, rows in splits.items()}
    inputs = pl.DataFrame([cells[encoder.name] for encoder in preprocessing.encoders])
    return assemble(
        origin,
        settings,
        splits,
        preprocessing,
        {split: _table_split(labels, by_split[split], preprocessing, rows) for split, rows in splits.items()},
        [
            *table.notes,
            *left_out,
            *unread,
            *column_notes(table, roles, types, preprocessing),
            *split_notes(labels, preprocessing, splits, by_split),
            straddle_note(inputs.hash_rows().to_numpy(), splits, table.place),
            *leaks(labels, inputs.to_dict(), types, np.concatenate(list(splits.values()))),
        ],
        describe_columns(table, cells, roles, labels, types, preprocessing),
        lambda: distributions(
            {**by_split["train"], roles.target: labels.cells.gather(splits["train"])},
            {**types, roles.target: NUMBER if labels.numeric else ColumnType("category")},
        ),
    )


def _split(table: Table, labels: Labels, roles: Roles, rows: Rows, settings: DataSettings) -> Splits:
    """The rows of each split, by a seeded split. Raises SettingError or DataError where a split would be empty."""
    val, test = fractions_left(settings)
    groups = None if roles.group is None else group_numbers(table, roles.group, rows, settings)
    indices = drawn_splits(len(rows), settings, val=val, test=test, strata=labels.classes(rows), groups=groups)
    for split, chosen in indices.items():
        if not len(chosen):
            raise DataError(
                f"The {split} split of {table.title} would be empty: {counted(len(rows), 'row')} are split with "
                f"val={val:g} and test={test:g}.",
                fix="Add rows, or give larger fractions: each split needs at least one.",
            )
    return {split: rows[chosen] for split, chosen in indices.items()}


def _types(cells: Cells, roles: Roles, train: Rows, rows: int) -> dict[str, ColumnType]:
    """The type of each input column, from its training rows unless a person said which."""
    types = {}
    for column, all_cells in cells.items():
        training, asked = all_cells.gather(train), roles.types.get(column)
        types[column] = asked_for(column, asked, training) if asked else infer(column, training, rows)
    return types


def _without_bad_cells(
    table: Table, cells: Cells, types: Mapping[str, ColumnType], splits: Splits, missing: str
) -> tuple[Splits, list[str]]:
    """The splits after what `missing` says of cells that are not of their column's type, and a note on those.

    Raises DataError that names each of them where `missing` is error, or where a split is left without rows.
    """
    inputs = {column: type for column, type in types.items() if type.learned}
    problems = bad_cells(table, cells, inputs, np.concatenate(list(splits.values())))
    found = list(problems.values())
    if found and missing == "error":
        raise unreadable_cells(
            table,
            found,
            "Fix them; or missing=fill counts them as missing, missing=drop leaves those rows out, "
            "types=COLUMN:category takes the column's cells as categories, ignore=COLUMN leaves it out.",
        )
    if not found:
        return splits, []
    if missing == "fill":
        return splits, [f"missing=fill counts {counted(len(found), 'unreadable cell')} as missing: {named(found)}."]
    bad = np.array(sorted({row for row, _ in problems}), np.int64)
    splits = {split: np.setdiff1d(rows, bad) for split, rows in splits.items()}
    for split, rows in splits.items():
        if not len(rows):
            raise unreadable_cells(table, found, f"missing=drop would leave the {split} split empty: fix them.")
    return splits, [f"missing=drop left out {counted(len(bad), 'row')} with unreadable cells: {named(found)}."]


def _fit(
    cells: Cells, types: Mapping[str, ColumnType], labels: Labels, train: Rows, settings: DataSettings, form: Form
) -> TablePreprocessing:
    """The preprocessing of the columns that can be learned from, fitted on the training rows."""
    fitted = [
        fit_encoder(column, type, cells[column].gather(train), settings.scale)
        for column, type in types.items()
        if type.learned
    ]
    encoders = tuple(encoder for encoder in fitted if encoder is not None)
    if not encoders:
        reasons = ", ".join(f"{column} ({LEFT_OUT.get(t.kind, 'no cell can be read')})" for column, t in types.items())
        raise DataError(
            f"No column is left to predict {labels.column!r} from: {reasons}.",
            fix="types=COLUMN:number or COLUMN:category keeps a column that was taken for an id or for text.",
        )
    features = tuple(feature for encoder in encoders for feature in encoder.features)
    spec = TableSpec(features, labels.fit(train))
    return TablePreprocessing(spec, encoders, fill=settings.missing == "fill", written=form.kept())


def _table_split(labels: Labels, cells: Cells, preprocessing: TablePreprocessing, rows: Rows) -> TableSplit:
    assert not isinstance(preprocessing.spec.target, Episodes)
    target = labels.tensor(preprocessing.spec.target, rows)
    return TableSplit(preprocessing.encode(cells), target, lambda i: (labels.table, int(rows[i])))
