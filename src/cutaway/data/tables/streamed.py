"""Tables that are larger than the memory they may take: the steps of `opening.table_dataset`, row group by row group.

The target and the split of each row are kept in memory; of the other columns only a sample, from which types are
inferred, and the state of the encoders, which are fitted on all training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl
from torch import Tensor

from ...errors import DataError
from ...files import MEBIBYTE
from ...spec import Episodes
from ..assembly import Origin, assemble
from ..findings import absent_classes
from ..kinds import reject_changed
from ..sets import DataSet, Split
from ..settings import DataSettings
from ..splits import Rows, draw
from .columns import ColumnType
from .distributions import distributions
from .encoders import Category
from .forms import Form
from .leaks import leaks
from .notes import column_notes, describe_columns
from .parquet import RowGroups, StreamedTable
from .passes import cells_of, fit_encoders, unread_cells
from .preprocessing import TablePreprocessing
from .reading import Table, counted, text_frame
from .roles import choose_roles
from .steps import EMPTIED, MEND, Splits, fitted, split_rows, types_of, without_rows
from .streamed_split import Encoded, RowGroupSplit
from .targets import NUMBER, check_learnable, check_taught, complete_rows, named, read_labels

SAMPLE = 100_000  # rows by which types are told
BYTES = 4  # of an input


def streamed_dataset(groups: RowGroups, settings: DataSettings, shuffled: bool = False) -> DataSet:
    """The data set in Parquet files, whose target `settings` name; whether their rows are known to be `shuffled`.
    Raises as `table_dataset`."""
    reject_changed(settings, ("noise", "count"), "is for xor, moons, circles and spirals, whose points are drawn here")
    groups = replace(groups, form=replace(Form.of(settings), units={}))
    chosen = draw(np.arange(len(groups)), SAMPLE, seed=settings.split_seed)
    sample = _sampled(groups, chosen)
    roles = choose_roles(sample, settings)
    kinds = {roles.target: roles.types.get(roles.target)} | ({roles.group: "category"} if roles.group else {})
    of_rows = StreamedTable.compact(groups, kinds)
    labels = read_labels(of_rows, roles.target, roles.types.get(roles.target))
    rows, left_out = complete_rows(of_rows, labels, roles.group, settings.missing)
    check_learnable(labels, rows, splits=3)
    splits = split_rows(of_rows, labels, roles, rows, settings)

    cells = {column: sample.text(column) for column in roles.inputs}
    types = types_of(cells, roles, np.flatnonzero(np.isin(chosen, splits["train"])), len(groups))
    learned = {column: type for column, type in types.items() if type.learned}
    splits, unread = _without_bad_cells(groups, learned, splits, settings.missing)
    if settings.max_samples is not None:
        train = splits["train"]
        splits["train"] = draw(train, settings.max_samples, seed=settings.split_seed, strata=labels.classes(train))
    encoders = fit_encoders(groups, splits["train"], learned, settings.scale)
    preprocessing = fitted(encoders, types, labels, splits["train"], settings, groups.form)
    target = preprocessing.spec.target
    assert not isinstance(target, Episodes), "rows have a target each"
    check_taught(labels, target, splits)

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
    return assemble(
        Origin(groups.path.stem, str(groups.path), groups.fingerprint),
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
            *absent_classes(targets, target),
            *leaks(own, cells, types, used),
        ],
        describe_columns(sample, cells, roles, own, types, preprocessing),
        lambda: distributions({column: c.gather(training) for column, c in shown.items()}, shown_types),
    )


def _sampled(groups: RowGroups, chosen: Rows) -> Table:
    """These rows, with all columns."""
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
        return DataError(f"{counted(found.count, 'cell')} of {groups.path} cannot be read.", found.problems, fix)

    if missing == "error":
        raise error(MEND)
    if missing == "fill":
        said = f"missing=fill counts {counted(found.count, 'unreadable cell')} as missing: {named(found.problems)}."
        return splits, [said]
    bad = np.unique(np.concatenate(found.rows))
    splits = without_rows(splits, bad, error(EMPTIED))
    return splits, [f"missing=drop left out {counted(len(bad), 'row')} with unreadable cells: {named(found.problems)}."]


def _encoded(groups: RowGroups, preprocessing: TablePreprocessing) -> Encoded:
    """Return a function that reads rows of a block and prepares them."""
    types = {encoder.name: encoder.type for encoder in preprocessing.encoders}

    def encoded(block: int, rows: Rows) -> Tensor:
        frame = groups.frame(block, list(types))[rows - groups.first[block]]
        return preprocessing.encode(cells_of(groups, frame, types))

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
        else f"the rows of {window:,} of them, drawn at random from as many stretches of the table, are mixed at a "
        f"time: {'all were shuffled when they were prepared' if shuffled else better}"
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
    """A sentence on missing cells of training."""
    found = [e.name for e in preprocessing.encoders if e.missing and not isinstance(e, Category)]
    some = ", ".join(found[:10]) + (", …" if len(found) > 10 else "")
    said = f"Missing cells count as the training median, and an input of their own tells them apart (columns {some})."
    return [said] if found else []
