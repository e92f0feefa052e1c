"""Steps that tables in memory and tables that are read by row groups have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...errors import DataError, SettingError
from ...spec import TableSpec
from ..settings import DataSettings
from ..splits import SPLITS, Rows, drawn_splits, fractions_left
from .columns import LEFT_OUT, ColumnType, asked_for, infer
from .encoders import Encoder
from .forms import Form
from .preprocessing import Cells, TablePreprocessing
from .reading import Table, counted
from .roles import Roles
from .targets import Labels, group_numbers

Splits = dict[str, Rows]
MEND = (
    "Fix them; or missing=fill counts them as missing, missing=drop leaves those rows out, types=COLUMN:category takes "
    "the column's cells as categories, ignore=COLUMN leaves it out."
)
EMPTIED = "missing=drop would leave a split empty: fix them."


def split_rows(
    table: Table,
    labels: Labels,
    roles: Roles,
    rows: Rows,
    settings: DataSettings,
    given: Mapping[str, Rows] | None = None,
) -> Splits:
    """The rows of each split: those that are `given`, the others drawn from its train split by a seeded split. Raises
    SettingError or DataError where a split would be empty."""
    own = {split: np.intersect1d(of_split, rows) for split, of_split in (given or {"train": rows}).items()}
    train = own["train"]
    val, test = fractions_left(settings, own)
    if settings.fold is not None and "test" in own:
        raise SettingError(f"fold={settings.fold} makes a test split, and this data has its own: leave it out.")
    drawn = replace(settings, val=val, test=test)
    groups = None if roles.group is None else group_numbers(table, roles.group, train, drawn)
    indices = drawn_splits(len(train), drawn, val=val, test=test, strata=labels.classes(train), groups=groups)
    own |= {split: train[chosen] for split, chosen in indices.items()}
    for split, chosen in own.items():
        if not len(chosen):
            raise DataError(
                f"The {split} split of {table.title} would be empty: {counted(len(train), 'row')} are split with "
                f"val={val:g} and test={test:g}.",
                fix="Add rows, or give larger fractions: each split needs at least one.",
            )
    return {split: own[split] for split in SPLITS if split in own}


def types_of(cells: Cells, roles: Roles, train: Rows, rows: int) -> dict[str, ColumnType]:
    """Return the type of each input column, from its training cells unless a setting names it; `rows` is the number of
    rows of the table."""
    types = {}
    for column, all_cells in cells.items():
        training, asked = all_cells.gather(train), roles.types.get(column)
        types[column] = asked_for(column, asked, training) if asked else infer(column, training, rows)
    return types


def without_rows(splits: Splits, bad: Rows, error: DataError) -> Splits:
    """The splits without these rows. Raises the error where one is left empty."""
    left = {split: np.setdiff1d(rows, bad) for split, rows in splits.items()}
    if not all(map(len, left.values())):
        raise error
    return left


def fitted(
    encoders: Sequence[Encoder | None],
    types: Mapping[str, ColumnType],
    labels: Labels,
    train: Rows,
    settings: DataSettings,
    form: Form,
) -> TablePreprocessing:
    """Return the preprocessing of the usable columns. Raises DataError if no column is usable."""
    kept = tuple(encoder for encoder in encoders if encoder is not None)
    if not kept:
        reasons = ", ".join(f"{column} ({LEFT_OUT.get(t.kind, 'no cell can be read')})" for column, t in types.items())
        raise DataError(
            f"No column is left to predict {labels.column!r} from: {reasons}.",
            fix="types=COLUMN:number or COLUMN:category keeps a column that was taken for an id or for text.",
        )
    features = tuple(feature for encoder in kept for feature in encoder.features)
    spec = TableSpec(features, labels.fit(train))
    return TablePreprocessing(spec, kept, fill=settings.missing == "fill", written=form.kept())
