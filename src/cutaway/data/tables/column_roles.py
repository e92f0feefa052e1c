"""Roles of the columns of a table (target, group, input, left out), and checks of the target.

The target is a class or a number for each row. Columns that alone determine it are reported: they are often copies of
it, or known only after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import Tensor

from ...core.errors import (
    ColumnError,
    DataError,
    DataMismatchError,
    IncompatibleSettingError,
    MissingSettingError,
    NotEnoughDataError,
    Problem,
    SettingError,
    UnknownName,
    closest_names,
    shorten_repr,
)
from ...core.spec import Classes, Simple, Value
from ..findings import Finding, count_dropped, dropped_note, similar_name_hint
from ..settings import DataSettings
from ..splits import Array, Rows
from .column_types import (
    MOSTLY,
    TYPES,
    ColumnType,
    Numbers,
    decode,
    explain_unreadable,
    find_codes,
    find_yes_no,
    format_cell,
    mean_and_std,
    natural_order,
    strip_missing,
    unreadable_mask,
)
from .table_files import MOST_VALUES_OF_CLASSES, Table, format_count

LISTED = 40  # maximum columns in an error


@dataclass(frozen=True)
class Roles:
    """Columns by role."""

    target: str
    group: str | None
    ignored: tuple[str, ...]
    inputs: tuple[str, ...]  # in the table's order
    types: dict[str, str]  # column → the type asked for


def choose_roles(table: Table, settings: DataSettings) -> Roles:
    """Return the roles of the columns by the settings.

    Raises SettingError if no target is given or the settings contradict each other, UnknownName for a missing column,
    and DataError if no input is left.
    """
    if len(table.columns) < 2:
        raise ColumnError(
            f"Column {table.columns[0]!r} is the only one of {table.title}: there is nothing to predict a target from.",
            fix="Are its cells separated by something else than commas, semicolons or tabs? Save it as CSV.",
        )
    if settings.target is None:
        raise MissingSettingError(
            f"Which column of {table.title} is to be predicted? Say target=COLUMN. {_listed(table)}"
        )
    target = find_column(table, "target", settings.target)
    group = None if settings.group is None else find_column(table, "group", settings.group)
    if group == target:
        raise IncompatibleSettingError(
            f"group={group} is the target itself: each of its values would be in one split only. Give another column."
        )
    ignored = find_columns(table, "ignore", settings.ignore)
    if target in ignored:
        raise IncompatibleSettingError(f"ignore={target} leaves the target out. Take it from the list.")
    inputs = tuple(c for c in table.columns if c not in (target, group, *ignored))
    if not inputs:
        raise ColumnError(
            f"No column of {table.title} is left to predict {target!r} from.", fix="Ignore fewer columns."
        )
    return Roles(target, group, ignored, inputs, _types(table, settings.types, target))


def numeric_columns(roles: Roles) -> list[str]:
    """Return the columns that may hold numbers: the target and the inputs that are not given as categories."""
    return [column for column in (roles.target, *roles.inputs) if roles.types.get(column) != "category"]


def reject_units(table: Table, columns: Sequence[str]) -> None:
    """Raise DataError if numbers in one of these columns have several units, or other units than in training."""
    if problems := [Problem(f"column {c}", table.unit_problems[c]) for c in columns if c in table.unit_problems]:
        raise ColumnError(
            f"{table.title} has columns whose units do not agree:",
            problems,
            "Convert each to one unit, that of training where it is for a run; or leave a column out with "
            "ignore=COLUMN, or take its cells as categories with types=COLUMN:category.",
        )


def find_column(table: Table, setting: str, column: str) -> str:
    """Return the column with this name, ignoring outer spaces.

    Raises UnknownName, which mentions a column that differs only in case.
    """
    if (found := _match(table, [column])) is not None:
        return found
    alike = [c for c in table.columns if c.strip().casefold() == column.strip().casefold()]
    words = _listed(table)
    if alike:
        how = "spaces" if alike[0].strip() == column.strip() else "capitals"
        words = (
            f"There is {alike[0]!r}, which differs by {how}: write {setting}={alike[0]!r} or fix the header. {words}"
        )
    raise UnknownName(
        "column",
        column,
        [] if alike else closest_names(column, table.columns),
        f"{words} Name one of them with {setting}=.",
        code="CUT-203",
    )


def find_columns(table: Table, setting: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a comma-separated list names; a name may hold commas itself. Raises UnknownName."""
    found = _resolve(table, list(words))
    return tuple(find_column(table, setting, word) for word in words) if found is None else tuple(found)


def _resolve(table: Table, words: list[str]) -> list[str] | None:
    """Return the columns named by consecutive words, trying the shortest names first; None if there is no match."""
    if not words:
        return []
    for end in range(1, len(words) + 1):
        column = _match(table, words[:end])
        rest = None if column is None else _resolve(table, words[end:])
        if column is not None and rest is not None:
            return [column, *rest]
    return None


def _match(table: Table, words: Sequence[str]) -> str | None:
    """Return the only column whose name is these words joined by commas, ignoring spaces; None if there is not exactly
    one.
    """
    name = ",".join(words)
    if name in table.columns:
        return name
    parts = [part.strip() for part in name.split(",")]
    alike = [c for c in table.columns if [part.strip() for part in c.split(",")] == parts]
    return alike[0] if len(alike) == 1 else None


def _types(table: Table, given: tuple[str, ...], target: str) -> dict[str, str]:
    types = {}
    words: list[str] = []  # of a name with commas
    for word in given:
        column, colon, kind = word.rpartition(":")
        words.append(column if colon and kind.strip() in TYPES else word)
        if colon and kind.strip() in TYPES:
            if len(words) > 1 and _match(table, words) is None:
                words = [words[0]]
                break
            types[find_column(table, "types", ",".join(words))] = kind.strip()
            words = []
    if words:
        raise SettingError(f"Invalid types={words[0]}: write COLUMN:TYPE with one of {', '.join(TYPES)}.")
    if types.get(target, "number") not in ("number", "category"):
        raise SettingError(f"Invalid types={target}:{types[target]}: a target is a number or a category.")
    return types


def _listed(table: Table) -> str:
    more = len(table.columns) - LISTED
    names = ", ".join(f"{c!r}" if c != c.strip() else c for c in table.columns[:LISTED])
    return f"Its columns are: {names}{f' and {more} more' if more > 0 else ''}."


NUMBER = ColumnType("number")
NAMES = ("na", "none", "null")  # words for a missing cell that may be names of classes


@dataclass(frozen=True)
class Labels:
    """The target of every row of a table, before the training rows are selected."""

    table: Table
    column: str
    numeric: bool  # whether it is a quantity, not a class
    cells: pl.Series  # (n,) stripped cells
    names: tuple[str, ...] = ()  # words for a missing cell that are classes in this column

    def for_rows(self, table: Table) -> Labels:
        """Return the targets of other rows of the same table."""
        return Labels(table, self.column, self.numeric, _with_names(table, self.column, self.names), self.names)

    def notes(self) -> list[str]:
        """Return a finding if a class is named like a marker of missing cells."""
        if not self.names:
            return []
        said = ", ".join(f"{name!r} ({int((self.cells == name).sum()):,} rows)" for name in self.names)
        words = ",".join(sorted({name.lower() for name in self.names}))
        return [
            Finding(
                f"Read as a class of {self.column}: {said}. If it means a missing target, set "
                f"missing_values=auto,{words}, and missing=drop to leave those rows out."
            )
        ]

    def problems(self) -> dict[int, Problem]:
        """Return the rows whose target is missing or unreadable, and why."""
        found = {}
        for i in np.flatnonzero(self.cells.is_null().to_numpy()):
            given = self.table.frame[self.column][int(i)]
            found[int(i)] = "the target is missing" + (
                f", which is what {shorten_repr(given)} stands for" if given else ""
            )
        if self.numeric:
            bad = np.flatnonzero(unreadable_mask(self.cells, NUMBER))
            found |= {int(i): explain_unreadable(str(self.cells[int(i)]), NUMBER) for i in bad}
        return {i: Problem(self.table.where(i, self.column), found[i]) for i in sorted(found)}

    def classes(self, rows: Rows) -> Array | None:
        """Return the class number of each of `rows` for splitting; None if the target is a quantity."""
        if self.numeric:
            return None
        return self.cells.gather(rows).rank("dense").to_numpy()

    def fit(self, train: Rows, weights: Numbers | None = None) -> Simple:
        """Return the target fitted on the training rows: their classes, or their mean and standard deviation.

        `weights` are sample weights of these rows.
        """
        cells = self.cells.gather(train)
        if self.numeric:
            return Value(self.column, *mean_and_std(decode(cells, NUMBER), weights))
        return Classes(tuple(natural_order(cells.unique())), self.column)

    def tensor(self, target: Simple, rows: Rows) -> Tensor:
        """Return the target of these rows as a tensor: class numbers (n,) int64, or standardised values (n,) float32.

        None of the rows may be among `problems`. Raises DataError that names those whose class is not in `target`.
        """
        cells = self.cells.gather(rows)
        if isinstance(target, Value):
            values = torch.from_numpy((decode(cells, NUMBER) - target.mean) / target.scale).float()
            if not values.isfinite().all():
                row = int(rows[int((~values.isfinite()).nonzero()[0])])
                raise DataMismatchError(
                    f"{self.table.where(row, self.column)}: too far from the targets of training for 32 bits.",
                    fix="Fix that cell, or take the row out.",
                )
            return values
        known = {name: k for k, name in enumerate(target.names)}
        numbers = cells.replace_strict(known, default=None, return_dtype=pl.Int64)
        if numbers.null_count():
            strange = [int(k) for k in np.flatnonzero(numbers.is_null().to_numpy())]
            raise DataMismatchError(
                f"{format_count(len(strange), 'row')} of {self.table.title} have a class that training did not know.",
                [
                    Problem(self.table.where(int(rows[k]), self.column), f"{shorten_repr(cells[k])} is not a class")
                    for k in strange
                ],
                f"The classes are: {', '.join(target.names[:20])}.{similar_name_hint(cells[strange[0]], target.names)} "
                "Fix those cells, or take the rows out.",
            )
        return torch.from_numpy(numbers.to_numpy().copy())


def read_labels(table: Table, column: str, kind: str | None, known: Sequence[str] = ()) -> Labels:
    """Read the target in `column`; `kind` is number or category if the user gave it.

    Otherwise it is a quantity if at least nine in ten cells are numbers, with more than 20 distinct values. A word for
    a missing cell is a class if it is one of the `known` classes, or is in NAMES and the other classes are names.
    Raises DataError if the whole column is missing.
    """
    words = table.frame[column].unique().cast(pl.String).str.strip_chars().unique().drop_nulls().sort().to_list()
    names = [word for word in words if word in known and word.lower() in table.form.missing]
    cells = _with_names(table, column, names)
    present = cells.drop_nulls()
    if present.is_empty():
        raise NotEnoughDataError(
            f"The target {column!r} is missing in every row of {table.title}.",
            fix="Give another target=COLUMN, or fill the column in.",
        )
    numbers = decode(present, NUMBER)
    are_numbers = bool(np.isfinite(numbers).mean() >= MOSTLY)
    distinct = np.unique(numbers[~np.isnan(numbers)])
    numeric = are_numbers and len(distinct) > MOST_VALUES_OF_CLASSES and not find_codes(column, present)[0]
    if kind is not None:
        numeric = kind == "number"
    if numeric:
        return Labels(table, column, True, cells)
    are_names = not are_numbers and find_yes_no(present.unique().cast(pl.String)) is None
    if not known and are_names:
        names = [word for word in words if word.lower() in NAMES and word.lower() in table.form.default_missing]
        cells = _with_names(table, column, names)
    return Labels(table, column, False, cells, tuple(names))


def _with_names(table: Table, column: str, names: Sequence[str]) -> pl.Series:
    """Return the text of a column's cells, null where they are missing; the words in `names` are not missing."""
    own = {name.lower() for name in names}
    return strip_missing(table.frame[column], [word for word in table.form.missing if word not in own])


def check_learnable(labels: Labels, rows: Rows, splits: int) -> None:
    """Reject targets that cannot be learned from `rows`: a single value, or classes with fewer examples than splits."""
    if len(rows) < splits:
        raise NotEnoughDataError(
            f"{labels.table.title} has {format_count(len(rows), 'usable row')}: train, val and test need at least one"
            " each.",
            fix="Add rows.",
        )
    cells = labels.cells.gather(rows)
    column = labels.column
    counts = cells.alias("class").value_counts(name="examples")
    if counts.height == 1:
        raise constant_target_error(column, cells[0], len(rows))
    if labels.numeric:
        return
    scarce = counts.filter(pl.col("examples") < splits)
    if scarce.is_empty():
        return
    names = natural_order(scarce["class"])
    first = {name: int(rows[cells.index_of(name)]) for name in names[:5]}
    told = ", ".join(f"{name!r} ({labels.table.place(i)})" for name, i in first.items())
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    hint = ""
    if counts.height > max(5, len(rows) / 2):
        hint = f" {column!r} has {counts.height:,} different values in {len(rows):,} rows: is it a class at all?"
        hint += f" If it is a quantity, say types={column}:number."
    fewer = "one example" if scarce["examples"].max() == 1 else f"fewer than {splits} examples"
    raise NotEnoughDataError(
        f"These classes of the target {column!r} have {fewer}: {told}{more}. A class needs at least {splits}, "
        f"to be learned in training and be seen in validation and test.{hint}",
        fix="Add examples of them, or take those rows out.",
    )


def constant_target_error(column: str, value: object, rows: int) -> DataError:
    """Return the error for a target with one value."""
    return NotEnoughDataError(
        f"The target {column!r} is {value!r} in all {rows:,} rows: at least two different values are needed.",
        fix="Add rows of another kind, or give another target=COLUMN.",
    )


def read_targets(table: Table, column: str, target: Simple) -> Tensor:
    """Return the targets of another table's rows, encoded as in training.

    Raises DataError for each row without a target or with a class that was not in training.
    """
    labels = read_labels(table, column, target.cells, target.classes)
    if problems := list(labels.problems().values()):
        raise unusable_targets(table, problems, "take the rows out")
    return labels.tensor(target, np.arange(len(table)))


def unusable_targets(table: Table, problems: Sequence[Problem], otherwise: str) -> DataError:
    """Return the error that names the rows of a table to evaluate on that have no usable target."""
    return DataError(
        f"{format_count(len(problems), 'row')} of {table.title} cannot be compared with predictions.",
        problems,
        f"Fix those targets, or {otherwise}.",
    )


def check_trained_classes(labels: Labels, target: Simple, splits: dict[str, Rows]) -> None:
    """Reject classes that occur only outside the training split: they cannot be learned."""
    if not target.classes:
        return
    outside = {name: set(labels.cells.gather(rows).unique()) - set(target.classes) for name, rows in splits.items()}
    strange = natural_order(set().union(*outside.values()))
    if strange:
        where = " and ".join(name for name, classes in outside.items() if classes)
        raise NotEnoughDataError(
            f"Classes of {labels.column!r} are found in {where} and not in training: "
            f"{', '.join(map(repr, strange[:5]))}{', …' if len(strange) > 5 else ''}.",
            fix="Use another split_seed, smaller val and test or a larger max_samples, or take those rows out.",
        )
    if len(target.classes) == 1:
        raise NotEnoughDataError(
            f"The training split holds one class only, {target.classes[0]!r}.",
            fix="Use another split_seed or a larger max_samples.",
        )


def incomplete_rows(table: Table, labels: Labels, group: str | None) -> dict[int, Problem]:
    """Return the rows without a target or, if required, a group, and why."""
    problems = labels.problems()
    if group is not None:
        for i in np.flatnonzero(table.text(group).is_null().to_numpy()):
            problems.setdefault(int(i), Problem(table.where(int(i), group), "the group is missing"))
    return dict(sorted(problems.items()))


def reject_incomplete(table: Table, incomplete: Mapping[int, Problem], missing: str) -> None:
    """Raise DataError that names the rows without a target or group, unless `missing` is drop."""
    if incomplete and missing != "drop":
        raise DataError(
            f"{len(incomplete):,} of {format_count(len(table), 'row')} cannot be used because the target or group is "
            "missing.",
            list(incomplete.values()),
            "Fill them in, or leave those rows out with missing=drop.",
        )


def complete_rows(table: Table, problems: Mapping[int, Problem]) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the rows without these problems, and a note on the others, which missing=drop leaves out."""
    complete = np.ones(len(table), bool)
    complete[list(problems)] = False
    if not problems:
        return np.flatnonzero(complete), []
    count = count_dropped(len(problems), len(table), "row")
    named = format_problems(list(problems.values()))
    note = f"missing=drop left out {count} because the target or group is missing: {named}."
    return np.flatnonzero(complete), [dropped_note(note, len(problems), len(table))]


def group_numbers(table: Table, group: str, rows: Rows, settings: DataSettings) -> Array:
    """Return the group number of each of `rows`. Raises DataError if there are fewer groups than splits."""
    groups = table.text(group).gather(rows).rank("dense").to_numpy()
    needed = 1 + (settings.val > 0) + (settings.test > 0)
    if groups.max() < needed:
        raise NotEnoughDataError(
            f"The group column {group!r} has {format_count(int(groups.max()), 'different value')}, and the {needed}"
            " splits need one each.",
            fix="Give another group=COLUMN, or none.",
        )
    return groups


def format_problems(problems: list[Problem], count: int | None = None) -> str:
    """Return the first three problems as text, and the number of the others; `count` is that of all, if not listed."""
    count = count or len(problems)
    more = f"; and {count - 3:,} more" if count > 3 else ""
    return "; ".join(map(str, problems[:3])) + more


ROWS = 20  # with fewer, it may be chance
ROWS_OF_NUMBERS = 100  # the same for unique numbers, along which classes may be ordered by chance
COVERED = 0.5  # minimum fraction of rows with an informative value
WRONG = 0.002  # maximum fraction of errors among rows outside the majority class
MINORITY = 5  # minimum rows outside the majority class
LIKE = 0.9999  # squared correlation from which a column is the target in other units
FEW = 20  # maximum values of a category; a column with more may identify the subject of a row

Codes = npt.NDArray[np.int64]

SENTINELS = (*(sign * (10**k - 1) for k in range(2, 7) for sign in (-1, 1)), -9.0, -8.0, 8888.0, -8888.0)
MIN_SENTINELS = 3  # cells with the same sentinel
MIN_NEGATIVES = 5  # the same for -1, which is not far from others
FREQUENT, NEIGHBORS = 3, 10  # -1 is that many times as frequent as the next values on average
MISSING_DAYS = ("0001-01-01", "1899-12-30", "1900-01-01", "1970-01-01", "2099-12-31", "9999-12-31")
APART = 5 * 365.25  # days between such a day and all others
ALIKE = 3  # groups of categories that a finding names


def find_sentinels(cells: Mapping[str, pl.Series], types: Mapping[str, ColumnType]) -> list[str]:
    """Return a finding for each column in which a number or a day probably means a missing cell.

    That value occurs several times, and is at one end of the column, farther from all other values than these are from
    each other: 999 in a column of ages. -1 is reported if all others are quantities of at least 0, and it is frequent.
    """
    found: list[str] = []
    for column, own in cells.items():
        type = types.get(column)
        if type is None or not type.ordered:
            continue
        values = decode(own, type)
        known = values[np.isfinite(values)]
        value = _sentinel_day(known) if type.kind == "date" else _sentinel_number(known)
        if value is None:
            continue
        at = np.flatnonzero(values == value)
        word = str(own[int(at[0])]) if type.kind == "date" else f"{value:.15g}"
        ends = [format_cell(end, type) for end in (known[known != value].min(), known[known != value].max())]
        found.append(
            Finding(
                f"Column {column}: {word} may mean a missing cell ({len(at):,} of {format_count(len(own), 'cell')}; "
                f"all others are {ends[0]} to {ends[1]}). If it does, set missing_values=auto,{word}."
            )
        )
    return found


def _sentinel_number(known: Numbers) -> float | None:
    """Return the number that probably means a missing cell, or None."""
    different, counts = np.unique(known, return_counts=True)
    if len(different) <= FEW:
        return None
    for at, others in ((0, different[1:]), (-1, different[:-1])):
        value, count = float(different[at]), int(counts[at])
        distance, reach = abs(value - others[at]), others[-1] - others[0]
        if count < MIN_SENTINELS:
            continue
        if value in SENTINELS and distance > reach:
            return value
        if value == -1 and others[0] >= 0 and len(others) > FEW:
            near = counts[1 : 1 + NEIGHBORS].mean()
            return value if count >= max(MIN_NEGATIVES, FREQUENT * near) else None
    return None


def _sentinel_day(known: Numbers) -> float | None:
    """Return the day, in days since 1970, that probably means a missing cell, or None."""
    different, counts = np.unique(known, return_counts=True)
    days = np.array(MISSING_DAYS, "datetime64[D]").astype(np.float64)
    for at, others in ((0, different[1:]), (-1, different[:-1])) if len(different) > 2 else ():
        if counts[at] >= MIN_SENTINELS and different[at] in days and abs(different[at] - others[at]) > APART:
            return float(different[at])
    return None


def find_similar_categories(cells: Mapping[str, pl.Series], types: Mapping[str, ColumnType]) -> list[str]:
    """Return a finding for each column of categories that differ only by capitals or by spaces between words."""
    found: list[str] = []
    for column, own in cells.items():
        if types.get(column) is None or types[column].kind != "category":
            continue
        counts = own.drop_nulls().cast(pl.String).alias("value").value_counts(name="count").sort("value")
        plain = counts["value"].str.to_lowercase().str.split(" ").list.eval(pl.element().filter(pl.element() != ""))
        named = counts.with_columns(plain.list.join(" ").alias("plain"))
        groups = named.group_by("plain", maintain_order=True).agg("value", "count")
        groups = groups.filter(pl.col("value").list.len() > 1)
        if groups.is_empty():
            continue
        said = "; ".join(
            ", ".join(f"{value!r} ({count:,})" for value, count in zip(values, numbers))
            for _, values, numbers in groups.head(ALIKE).iter_rows()
        )
        more = f"; and {groups.height - ALIKE:,} more" if groups.height > ALIKE else ""
        found.append(
            Finding(
                f"Column {column}: categories that differ only by capitals or spaces are read as different ones: "
                f"{said}{more}. If they are one, write them alike in the file."
            )
        )
    return found


def find_leaks(
    labels: Labels, cells: Mapping[str, pl.Series], types: Mapping[str, ColumnType], rows: Rows
) -> list[str]:
    """Return a finding for each input column that alone determines the target of `rows`, if there are other inputs.

    `cells` are the stripped input columns of the whole table.
    """
    if len(cells) < 2:
        return []
    target = labels.cells.gather(rows)
    codes = target.rank("dense").cast(pl.Int64).to_numpy() - 1
    values = decode(target, NUMBER) if labels.numeric else None
    found: list[str] = []
    for column, of_table in cells.items():
        own, type = of_table.gather(rows), types[column]
        there = own.is_not_null().to_numpy()
        if there.sum() < max(ROWS, COVERED * len(rows)):
            continue
        told = _value_leak(own.filter(pl.Series(there)), codes[there], len(rows))
        numbers = decode(own, type) if type.ordered else None
        if told is None and numbers is not None:
            told = _number_leak(numbers, codes) if values is None else _scale_leak(numbers, values, type)
        if told is not None:
            right, of, about = told
            found.append(Finding(_leak_message(column, labels.column, right, of, about)))
    return found


def _value_leak(cells: pl.Series, codes: Codes, rows: int) -> tuple[int, int, bool] | None:
    """Return how many rows the most frequent target of their cell predicts, of how many rows with a repeated cell, and
    whether the column has too many values for a category; None if that is no leak."""
    own = cells.rank("dense").cast(pl.Int64).to_numpy() - 1
    pairs, counts = np.unique(own * (codes.max() + 1) + codes, return_counts=True)
    of_value = np.bincount(own)
    best = np.zeros(len(of_value), np.int64)
    np.maximum.at(best, pairs // (codes.max() + 1), counts)
    repeated = of_value > 1
    covered = int(of_value[repeated].sum())
    wrong = covered - int(best[repeated].sum())
    minority = covered - int(np.bincount(codes[repeated[own]]).max(initial=0))
    if covered < max(ROWS, COVERED * rows) or minority < MINORITY or wrong > WRONG * minority:
        return None
    return covered - wrong, covered, len(of_value) > FEW


def _number_leak(numbers: npt.NDArray[np.float64], codes: Codes) -> tuple[int, int, bool] | None:
    """Return, as `_value_leak`, the rows of a column in which each class has its own range of numbers."""
    there = ~np.isnan(numbers)
    if there.sum() < max(ROWS_OF_NUMBERS, COVERED * len(numbers)):
        return None
    order = np.lexsort((codes[there], numbers[there]))
    sorted_codes, sorted_numbers = codes[there][order], numbers[there][order]
    change = np.diff(sorted_codes) != 0
    tied = change & (np.diff(sorted_numbers) == 0)
    counts = np.unique(sorted_codes, return_counts=True)[1]
    if tied.any() or change.sum() + 1 != len(counts) or len(counts) < 2 or counts.min() < MINORITY:
        return None
    return len(sorted_codes), len(sorted_codes), False


def _scale_leak(
    numbers: npt.NDArray[np.float64], values: npt.NDArray[np.float64], type: ColumnType
) -> tuple[int, int, bool] | None:
    """Return, as `_value_leak`, the rows of numbers that are the target in other units, or monotonic in it."""
    there = ~(np.isnan(numbers) | np.isnan(values))
    x, y = numbers[there], values[there]
    if len(x) < max(ROWS, COVERED * len(numbers)) or len(np.unique(x)) <= FEW:
        return None
    ranks = [pl.Series(v).rank("average").to_numpy() for v in (x, y)]
    pairs = [(x, y)] if type.kind == "date" else [(x, y), (ranks[0], ranks[1])]  # many quantities grow with time
    for a, b in pairs:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            like = np.corrcoef(a, b)[0, 1] ** 2
        if like >= LIKE:
            return len(x), len(x), False
    return None


def _leak_message(column: str, target: str, right: int, of: int, about: bool) -> str:
    group = f"; if it identifies the subject of a row, group={column} keeps its rows in one split" if about else ""
    return (
        f"Column {column} alone gives the target {target} in {right:,} of {of:,} rows. If it is made from the target, "
        f"or is not known when the model is to answer, leave it out: ignore={column}{group}."
    )
