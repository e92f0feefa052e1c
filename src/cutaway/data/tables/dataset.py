"""Tables as data sets: choose the columns, split the rows, fit on the training part, prepare every part.

The order keeps what is learned from apart from what is measured on. Rows are split before any cell but the target is
looked at; types, fill values, means and categories come from the training rows alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from ...errors import DataError, SettingError
from ...spec import TableSpec
from ..applicable import refuse_changed
from ..augment import make_augment
from ..sets import DataSet
from ..settings import DataSettings
from ..splits import Rows, draw, drawn_parts, split_hash, straddle_note
from .columns import LEFT_OUT, ColumnType, asked_for, infer, meaning
from .distributions import distributions
from .encoders import fit_encoder
from .forms import Form
from .leaks import leaks
from .notes import column_notes, describe_columns, part_notes
from .preprocessing import Cells, TablePart, TablePreprocessing, bad_cells, unreadable_cells
from .reading import TABLE_SUFFIXES, Table, counted, frame_table, read_table
from .roles import Roles, choose_roles
from .targets import NUMBER, Labels, check_learnable, check_taught, complete_rows, named, read_labels

__all__ = ["TABLE_SUFFIXES", "open_table", "table_dataset"]

Parts = dict[str, Rows]


def open_table(path: Path, settings: DataSettings) -> DataSet:
    """The data set in a .csv, .tsv or .parquet file.

    Raises FileError, DataError (with every bad row or cell in `problems`), UnknownName or SettingError.
    """
    table = read_table(path, Form.of(settings))
    with path.open("rb") as file:
        fingerprint = hashlib.file_digest(file, "sha256").hexdigest()
    return _dataset(table, settings, path.stem, str(path), fingerprint, None, ())


def table_dataset(
    frame: pl.DataFrame,
    settings: DataSettings,
    *,
    name: str,
    source: str,
    fingerprint: str,
    parts: Mapping[str, Rows] | None = None,
    notes: Sequence[str] = (),
) -> DataSet:
    """The data set in a data frame, whose target `settings` name.

    `parts` are fixed rows for train, val and test instead of a seeded split; they may overlap. Raises as `open_table`.
    """
    return _dataset(frame_table(frame, name), settings, name, source, fingerprint, parts, notes)


def _dataset(
    table: Table,
    settings: DataSettings,
    name: str,
    source: str,
    fingerprint: str,
    fixed: Mapping[str, Rows] | None,
    notes: Sequence[str],
) -> DataSet:
    refuse_changed(settings, ("noise", "count"), "is for xor, moons, circles and spirals, whose points are drawn here")
    roles = choose_roles(table, settings)
    labels = read_labels(table, roles.target, roles.types.get(roles.target))
    rows, left_out = complete_rows(table, labels, roles.group, settings.missing)
    check_learnable(labels, rows, parts=1 if fixed else 3)
    if fixed is None:
        parts = _split(table, labels, roles, rows, settings)
    else:
        parts = {part: np.intersect1d(given, rows) for part, given in fixed.items()}

    cells = {column: meaning(table.frame[column]) for column in roles.inputs}
    types = _types(cells, roles, parts["train"], len(table))
    parts, unread = _without_bad_cells(table, cells, types, parts, settings.missing)
    if settings.max_samples is not None:
        train = parts["train"]
        parts["train"] = draw(train, settings.max_samples, seed=settings.split_seed, strata=labels.classes(train))
    preprocessing = _fit(cells, types, labels, parts["train"], settings, table.form)
    check_taught(labels, preprocessing.spec.target, parts)

    by_part = {part: {column: c.gather(rows) for column, c in cells.items()} for part, rows in parts.items()}
    inputs = pl.DataFrame([cells[encoder.name] for encoder in preprocessing.encoders])
    duplicates = straddle_note(inputs.hash_rows().to_numpy(), parts, table.place)
    return DataSet(
        name=name,
        source=source,
        spec=preprocessing.spec,
        parts={part: _part(labels, by_part[part], preprocessing, rows) for part, rows in parts.items()},
        preprocessing=preprocessing,
        fingerprint=fingerprint,
        split_hash=split_hash(parts),
        notes=[
            *notes,
            *table.notes,
            *left_out,
            *unread,
            *column_notes(table, roles, types, preprocessing),
            *part_notes(labels, preprocessing, parts, by_part),
            *([duplicates] if duplicates else []),
            *leaks(labels, inputs.to_dict(), types, np.concatenate(list(parts.values()))),
        ],
        columns=describe_columns(table, cells, roles, labels, types, preprocessing),
        augment=make_augment(settings, preprocessing.spec),
        distributions=lambda: distributions(
            {**by_part["train"], roles.target: labels.cells.gather(parts["train"])},
            {**types, roles.target: NUMBER if labels.numeric else ColumnType("category")},
        ),
    )


def _split(table: Table, labels: Labels, roles: Roles, rows: Rows, settings: DataSettings) -> Parts:
    """The rows of each part, by a seeded split. Raises SettingError or DataError where a part would be empty."""
    val, test = settings.val, settings.test
    if val + test >= 1:
        raise SettingError(f"val={val:g} and test={test:g} leave no rows to train on: their sum must be below 1.")
    groups = None
    if roles.group is not None:
        groups = meaning(table.frame[roles.group]).gather(rows).rank("dense").to_numpy()
        needed = 1 + (val > 0) + (test > 0)
        if groups.max() < needed:
            raise DataError(
                f"The group column {roles.group!r} has {counted(int(groups.max()), 'different value')}, and the "
                f"{needed} parts of the split need one each.",
                mend="Give another group=COLUMN, or none.",
            )
    split = drawn_parts(len(rows), settings, val=val, test=test, strata=labels.classes(rows), groups=groups)
    for part, chosen in split.items():
        if not len(chosen):
            raise DataError(
                f"The {part} part of {table.title} would be empty: {counted(len(rows), 'row')} are split with "
                f"val={val:g} and test={test:g}.",
                mend="Add rows, or give larger shares: each part needs at least one.",
            )
    return {part: rows[chosen] for part, chosen in split.items()}


def _types(cells: Cells, roles: Roles, train: Rows, rows: int) -> dict[str, ColumnType]:
    """The type of each input column, from its training rows unless a person said which."""
    types = {}
    for column, all_cells in cells.items():
        training, asked = all_cells.gather(train), roles.types.get(column)
        types[column] = asked_for(column, asked, training) if asked else infer(column, training, rows)
    return types


def _without_bad_cells(
    table: Table, cells: Cells, types: Mapping[str, ColumnType], parts: Parts, missing: str
) -> tuple[Parts, list[str]]:
    """The parts after what `missing` says of cells that are not of their column's type, and a note on those.

    Raises DataError that names each of them where `missing` is refuse, or where a part is left without rows.
    """
    inputs = {column: type for column, type in types.items() if type.kind not in LEFT_OUT}
    problems = bad_cells(table, cells, inputs, np.concatenate(list(parts.values())))
    found = list(problems.values())
    if found and missing == "refuse":
        raise unreadable_cells(
            table,
            found,
            "Mend them; or missing=fill counts them as missing, missing=drop leaves those rows out, "
            "types=COLUMN:category takes the column's cells as categories, ignore=COLUMN leaves it out.",
        )
    if not found:
        return parts, []
    if missing == "fill":
        return parts, [f"missing=fill counts {counted(len(found), 'unreadable cell')} as missing: {named(found)}."]
    bad = np.array(sorted({row for row, _ in problems}), np.int64)
    parts = {part: np.setdiff1d(rows, bad) for part, rows in parts.items()}
    for part, rows in parts.items():
        if not len(rows):
            raise unreadable_cells(table, found, f"missing=drop would leave the {part} part empty: mend them.")
    return parts, [f"missing=drop left out {counted(len(bad), 'row')} with unreadable cells: {named(found)}."]


def _fit(
    cells: Cells, types: Mapping[str, ColumnType], labels: Labels, train: Rows, settings: DataSettings, form: Form
) -> TablePreprocessing:
    """The preprocessing of the columns that can be learned from, fitted on the training rows."""
    fitted = [
        fit_encoder(column, type, cells[column].gather(train), settings.scale)
        for column, type in types.items()
        if type.kind not in LEFT_OUT
    ]
    encoders = tuple(encoder for encoder in fitted if encoder is not None)
    if not encoders:
        reasons = ", ".join(f"{column} ({LEFT_OUT.get(t.kind, 'no cell can be read')})" for column, t in types.items())
        raise DataError(
            f"No column is left to predict {labels.column!r} from: {reasons}.",
            mend="types=COLUMN:number or COLUMN:category keeps a column that was taken for an id or for text.",
        )
    features = tuple(feature for encoder in encoders for feature in encoder.features)
    spec = TableSpec(features, labels.fit(train))
    return TablePreprocessing(spec, encoders, fill=settings.missing == "fill", written=form.kept())


def _part(labels: Labels, cells: Cells, preprocessing: TablePreprocessing, rows: Rows) -> TablePart:
    target = labels.tensor(preprocessing.spec.target, rows)
    return TablePart(preprocessing.encode(cells), target, lambda i: (labels.table, int(rows[i])))
