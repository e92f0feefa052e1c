"""Encoding of table rows as tensors: fitted on the training split, saved with the model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ...core import spec as specs
from ...core.errors import (
    ColumnError,
    DataError,
    DataMismatchError,
    IncompatibleSettingError,
    NotEnoughDataError,
    Problem,
    UnsupportedDataError,
)
from ...core.schema import COUNT
from ...core.spec import Episodes, Simple, TableSpec
from ..dataset_base import Preprocessing, Split, TensorSplit, remap_targets
from ..in_memory.container import as_frame
from ..settings import DataSettings
from ..splits import SPLITS, Rows, draw_splits, remaining_fractions
from . import delimited
from .column_roles import (
    Labels,
    Roles,
    format_problems,
    group_numbers,
    read_labels,
    reject_units,
    unusable_targets,
)
from .column_types import (
    ENCODERS,
    LEFT_OUT,
    Category,
    ColumnType,
    Encoder,
    Numbers,
    decode,
    encoder_from_json,
    explain_unreadable,
    format_cell,
    infer_type,
    requested_type,
    unreadable_mask,
)
from .delimited import KEPT, Form
from .table_files import Table, format_count, frame_table, read_table_or_folder, rows_table

Cells = Mapping[str, pl.Series]  # column → (n,) stripped cells


class TableSplit(TensorSplit):
    """Rows of tables in memory, (n, F), with their names and cells in the source."""

    def __init__(
        self, inputs: Tensor, target: Tensor | None, at: Callable[[int], tuple[Table, int]], notes: Sequence[str] = ()
    ) -> None:
        super().__init__(inputs, target)
        self.notes = list(notes)  # messages for the user: categories that were not in training
        self.at = at  # the table and its row that example i is

    def name(self, i: int) -> str:
        """Return the location of the row: line 18 of houses.csv, or row 17."""
        table, row = self.at(i)
        return table.place(row)

    def row(self, i: int) -> dict[str, str]:
        """Return the row before preprocessing."""
        table, row = self.at(i)
        return table.row(row)


@dataclass(frozen=True)
class TablePreprocessing:
    """Preprocessing of a row to F numbers."""

    spec: TableSpec
    encoders: tuple[Encoder, ...]  # one for each column that is an input
    fill: bool = False  # whether a cell that is not of its column's type counts as missing, or is rejected
    written: Form = KEPT  # format of the training table, the default for a new one
    width: int = 0  # columns of the training array; 0 if columns have names
    drop: bool = False  # whether rows of a labelled table that cannot be used are left out; not saved

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "columns": [ENCODERS], "fill": bool, "read?": delimited.SCHEMA, "width?": COUNT,
    }  # fmt: skip

    def with_missing(self, missing: str) -> TablePreprocessing:
        """Return the same preprocessing with another setting `missing`, for new tables."""
        return replace(self, fill=missing == "fill", drop=missing == "drop")

    def examples(self, sources: Any) -> TableSplit:
        """Prepare new rows without targets: paths of tables, tables in memory or dictionaries, one or many.

        The target and other columns may be present and are ignored. Raises DataError that names missing columns
        and every cell that is not of its column's type.
        """
        tables = list(_tables(sources, self.written))
        if not tables:
            raise NotEnoughDataError(
                "No rows were given.", fix="Give the path of a table, a data frame or dictionaries."
            )
        splits = [self._as_split(table, None) for table in tables]
        at = [(table, i) for table in tables for i in range(len(table))]
        notes = [note for split in splits for note in split.notes]
        return TableSplit(torch.cat([split.inputs for split in splits]), None, at.__getitem__, notes)

    def labelled(self, source: str | Path | Table) -> TableSplit:
        """Prepare another table with the target column.

        Raises DataError as `examples` does, and for each row without a target or with an unknown class.
        """
        table = _table(source, self.written)
        target = self.spec.target
        if isinstance(target, Episodes):
            raise UnsupportedDataError(
                "A table does not assign its rows to episodes.", fix="Evaluate on the run's own: cutaway evaluate RUN."
            )
        self._require([target.column], table)
        if not target.classes:
            reject_units(table, [target.column])
        return self._as_split(table, read_labels(table, target.column, target.cells, target.classes))

    def adopted(self, split: Split, theirs: Preprocessing) -> TableSplit:
        """Prepare the rows of another set, with its targets mapped to this one's. Raises DataError as `labelled`."""
        assert split.target is not None, "sets to evaluate on have targets"
        prepared = self.examples([split.row(i) for i in range(len(split))])
        prepared.target = remap_targets(split.target, theirs.spec.target, self.spec.target)
        return prepared

    def encode(self, cells: Cells) -> Tensor:
        """Return the inputs (n, F) float32 of stripped cells. Raises DataError if a number overflows."""
        blocks = [encoder.encode(cells[encoder.name]) for encoder in self.encoders]
        for encoder, block in zip(self.encoders, blocks):
            if not np.isfinite(block).all():
                raise DataMismatchError(
                    f"Column {encoder.name!r} holds a number too far from those of training for 32 bits.",
                    fix="Fix that cell, or leave the column out with ignore=.",
                )
        return torch.from_numpy(np.concatenate(blocks, axis=1))  # (n, F)

    def unknown(self, cells: Cells) -> dict[str, int]:
        """Return the number of cells without an input of their own, for each column of categories that has some."""
        counts = {e.name: e.unknown(cells[e.name]) for e in self.encoders if isinstance(e, Category)}
        return {column: count for column, count in counts.items() if count}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` restores an equal object."""
        return {
            "kind": "table",
            "spec": specs.to_json(self.spec),
            "columns": [encoder.to_json() for encoder in self.encoders],
            "fill": self.fill,
            "read": self.written.to_json(),
            **({"width": self.width} if self.width else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TablePreprocessing:
        """Restore the object that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        spec = specs.read_spec(data["spec"], TableSpec)
        found = tuple(encoder_from_json(column) for column in data["columns"])
        if (features := tuple(feature for encoder in found for feature in encoder.features)) != spec.columns:
            raise ValueError(f"its columns give {len(features)} inputs, and its spec names {len(spec.columns)} others")
        return cls(spec, found, data["fill"], Form.from_json(data.get("read")), data.get("width") or 0)

    def _as_split(self, table: Table, labels: Labels | None) -> TableSplit:
        """Prepare the rows of a table; reject it if a cell is not of its column's type, or a target is missing."""
        self._require([encoder.name for encoder in self.encoders], table)
        reject_units(table, [encoder.name for encoder in self.encoders if encoder.kind == "number"])
        cells = {
            encoder.name: table.cells(encoder.name) if encoder.kind == "number" else table.text(encoder.name)
            for encoder in self.encoders
        }
        notes = []
        without = {} if labels is None else labels.problems()
        if without and not self.drop:
            raise unusable_targets(table, list(without.values()), "leave those rows out with missing=drop")
        problems = bad_cells(table, cells, {encoder.name: encoder.type for encoder in self.encoders})
        found = list(problems.values())
        dropped = sorted({*without, *(row for row, _ in problems)}) if self.drop else []
        kept = np.setdiff1d(np.arange(len(table)), dropped)
        if dropped:
            share = f"{len(dropped):,} of {format_count(len(table), 'row')} ({len(dropped) / len(table):.1%})"
            named = [*without.values(), *found]
            if not len(kept):
                raise NotEnoughDataError(f"missing=drop would leave out all rows of {table.title}.", named)
            notes.append(f"missing=drop left out {share}: {format_problems(named)}.")
            cells = {column: own.gather(kept) for column, own in cells.items()}
        elif problems and not self.fill:
            fix = "Fix them, or count them as missing with missing=fill"
            raise unreadable_cells(
                table, found, f"{fix}." if labels is None else f"{fix}, or leave those rows out with missing=drop."
            )
        elif problems:
            notes.append(
                f"Unreadable cells count as missing ({format_count(len(found), 'cell')}): {format_problems(found)}."
            )
        for encoder in self.encoders:
            if isinstance(encoder, Category) or encoder.missing:
                continue
            if count := int(np.isnan(decode(cells[encoder.name], encoder.type)).sum()):
                notes.append(
                    f"Column {encoder.name}: {format_count(count, 'missing cell')} of {table.name or 'these rows'} "
                    f"replaced by the training median, {format_cell(encoder.fill, encoder.type)}; training had no "
                    "missing cells in this column."
                )
        for column, count in self.unknown(cells).items():
            notes.append(unknown_note(column, count, table.name or "these rows"))
        target = None if labels is None else labels.tensor(self._simple_target, kept)
        return TableSplit(self.encode(cells), target, lambda i: (table, int(kept[i])), notes)

    @property
    def _simple_target(self) -> Simple:
        assert not isinstance(self.spec.target, Episodes), "rows have a target each"
        return self.spec.target

    def _require(self, columns: Sequence[str], table: Table) -> None:
        absent = [column for column in columns if column not in table.columns]
        if absent:
            raise DataMismatchError(
                f"The model was trained with columns that {table.title} lacks: {', '.join(map(repr, absent[:10]))}. "
                f"It has: {', '.join(map(repr, table.columns[:40]))}.",
                fix="Give tables with the columns of training; a column may be empty, not absent.",
            )


def bad_cells(
    table: Table, cells: Cells, types: Mapping[str, ColumnType], rows: Rows | None = None
) -> dict[tuple[int, str], Problem]:
    """Return the cells of `rows` (or all) that are not of their column's type, by row and column, and why."""
    wanted = np.zeros(len(table), bool)
    wanted[slice(None) if rows is None else rows] = True
    found = {}
    for column, type in types.items():
        for i in np.flatnonzero(unreadable_mask(cells[column], type) & wanted):
            row = int(i)
            found[row, column] = Problem(table.where(row, column), explain_unreadable(str(cells[column][row]), type))
    return dict(sorted(found.items(), key=lambda item: item[0][0]))


def unreadable_inputs(table: Table, roles: Roles, rows: Rows) -> dict[tuple[int, str], Problem]:
    """Return the input cells that are not of the type that their column has in these rows, as `bad_cells`."""
    cells = {c: table.text(c) if roles.types.get(c, "number") != "number" else table.cells(c) for c in roles.inputs}
    types = column_types_for(cells, roles, rows, len(table))
    cells |= {c: table.text(c) for c, type in types.items() if c in table.numbers and type.kind != "number"}
    return bad_cells(table, cells, {column: type for column, type in types.items() if type.learned})


def unreadable_cells(table: Table, problems: Sequence[Problem], fix: str) -> DataError:
    """Return the error that names cells which are not of their column's type."""
    return DataError(f"{format_count(len(problems), 'cell')} of {table.title} cannot be read.", problems, fix)


def unknown_note(column: str, count: int, where: str) -> str:
    """Return a note on cells that have no input of their own: unknown categories, and gaps that training had not."""
    return (
        f"Column {column}: cells without a category known from training count as unknown "
        f"({format_count(count, 'cell')} of {where})."
    )


def _tables(sources: Any, form: Form) -> Iterable[Table]:
    """Yield new rows, given in any form, as tables."""
    if isinstance(sources, str) or not isinstance(sources, Sequence):
        sources = [sources]
    for are_rows, group in itertools.groupby(sources, lambda source: isinstance(source, Mapping)):
        if are_rows:
            yield rows_table(list(group), form)
            continue
        for source in group:
            yield _table(source, form)


def _table(source: Any, form: Form) -> Table:
    if isinstance(source, Table):
        return source
    if isinstance(source, str | Path):
        return read_table_or_folder(Path(source).expanduser(), form)
    if (frame := as_frame(source)) is not None:
        return frame_table(frame, form=form)
    raise UnsupportedDataError(
        f"Rows cannot be read from a {type(source).__name__}.",
        fix="Give the path of a table, a data frame, or dictionaries of column and cell.",
    )


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
    """Return the rows of each split: `given` ones, and others drawn from the train split by a seeded split.

    Raises SettingError or DataError if a split would be empty.
    """
    own = {split: np.intersect1d(of_split, rows) for split, of_split in (given or {"train": rows}).items()}
    train = own["train"]
    val, test = remaining_fractions(settings, own)
    if settings.fold is not None and "test" in own:
        raise IncompatibleSettingError(
            f"fold={settings.fold} makes a test split, and this data has its own: leave it out."
        )
    drawn = replace(settings, val=val, test=test)
    groups = None if roles.group is None else group_numbers(table, roles.group, train, drawn)
    indices = draw_splits(len(train), drawn, val=val, test=test, strata=labels.classes(train), groups=groups)
    own |= {split: train[chosen] for split, chosen in indices.items()}
    for split, chosen in own.items():
        if not len(chosen):
            raise NotEnoughDataError(
                f"The {split} split of {table.title} would be empty: {format_count(len(train), 'row')} are split with "
                f"val={val:g} and test={test:g}.",
                fix="Add rows, or give larger fractions: each split needs at least one.",
            )
    return {split: own[split] for split in SPLITS if split in own}


def column_types_for(cells: Cells, roles: Roles, train: Rows, rows: int) -> dict[str, ColumnType]:
    """Return the type of each input column, from its training cells unless a setting names it; `rows` is the number of
    rows of the table."""
    types = {}
    for column, all_cells in cells.items():
        training, asked = all_cells.gather(train), roles.types.get(column)
        types[column] = requested_type(column, asked, training) if asked else infer_type(column, training, rows)
    return types


def drop_rows(splits: Splits, bad: Rows, error: DataError) -> Splits:
    """Return the splits without these rows. Raises the error if one becomes empty."""
    left = {split: np.setdiff1d(rows, bad) for split, rows in splits.items()}
    if not all(map(len, left.values())):
        raise error
    return left


def fit_preprocessing(
    encoders: Sequence[Encoder | None],
    types: Mapping[str, ColumnType],
    labels: Labels,
    train: Rows,
    settings: DataSettings,
    form: Form,
    weights: Numbers | None = None,
) -> TablePreprocessing:
    """Return the preprocessing of the usable columns; `weights` are sample weights of the training rows.

    Raises DataError if no column is usable.
    """
    kept = tuple(encoder for encoder in encoders if encoder is not None)
    if not kept:
        reasons = ", ".join(f"{column} ({LEFT_OUT.get(t.kind, 'no cell can be read')})" for column, t in types.items())
        raise ColumnError(
            f"No column is left to predict {labels.column!r} from: {reasons}.",
            fix="types=COLUMN:number or COLUMN:category keeps a column that was taken for an id or for text.",
        )
    features = tuple(feature for encoder in kept for feature in encoder.features)
    spec = TableSpec(features, labels.fit(train, weights))
    return TablePreprocessing(spec, kept, fill=settings.missing == "fill", written=form.as_default())
