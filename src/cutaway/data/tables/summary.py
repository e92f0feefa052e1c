"""Notes on a table: the type and use of each column, and cells that were left out, filled or unknown."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from ..findings import Finding
from ..splits import Rows
from .column_types import LEFT_OUT, ColumnType, decode, format_cell, natural_order
from .encoders import MOST_CATEGORIES, Category
from .roles import Roles
from .table_files import Table, format_count
from .targets import NUMBER, Labels
from .transforms import Cells, TablePreprocessing, unknown_note

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
