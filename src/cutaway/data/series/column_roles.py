"""Roles of the columns of a series: time, forecast targets, past and known covariates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import DataError, Problem, SettingError, UnknownName, shorten
from ...core.schema import from_document
from ..settings import DataSettings
from ..tables.column_types import MOSTLY, ColumnType, decode, explain_unreadable, infer_type, unreadable_mask
from ..tables.roles import find_column, find_columns, reject_units
from ..tables.table_files import Table
from .times import FORMATS, NUMBER, PARTS, ROW, calendar_names, detect_format, parse_times


@dataclass(frozen=True)
class ColumnRoles:
    """The columns of a series by role. Variables are ordered as forecast, past, known."""

    time: str | None  # the time column; None if rows are counted
    written: str  # time format: one of times.FORMATS, NUMBER or ROW
    forecast: tuple[str, ...]
    past: tuple[str, ...] = ()  # known up to the time of the forecast
    known: tuple[str, ...] = ()  # known in advance too
    words: dict[str, str] = field(default_factory=dict)  # for columns of two words, the words for 1 and 0: yes/no
    id: str | None = None  # the column that identifies one of several series
    calendar: tuple[str, ...] = ()  # calendar features from the time column: hour, weekday, month

    @property
    def names(self) -> tuple[str, ...]:
        """Return all F variables in their order."""
        return (*self.given, *calendar_names(self.calendar))

    @property
    def given(self) -> tuple[str, ...]:
        """Return the variables that are columns of the table."""
        return (*self.forecast, *self.past, *self.known)

    @property
    def ahead(self) -> tuple[str, ...]:
        """Return the variables known in advance, which are the last ones."""
        return (*self.known, *calendar_names(self.calendar))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ColumnRoles:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        found = from_document(cls, data)
        if not found.forecast or not set(found.calendar) <= set(PARTS):
            raise ValueError("its columns say nothing of what is forecast, or of a calendar that there is not")
        if found.written not in (*FORMATS, NUMBER, ROW) or not all(isinstance(w, str) for w in found.words.values()):
            raise ValueError(f"times are written as {shorten(found.written)}, which is not known here")
        return found


def choose_columns(table: Table, settings: DataSettings) -> ColumnRoles:
    """Assign columns to roles by the settings. All other numeric columns are past covariates.

    Raises UnknownName for a column that does not exist, SettingError for one with two roles, DataError for a column
    that holds neither numbers nor times.
    """
    if not settings.forecast:
        raise SettingError(f"{table.title} is to be forecast, and no column is named: give forecast=COLUMN.")
    of_many = ("forecast", "known_future", "ignore")
    lists: dict[str, Any] = {key: find_columns(table, key, getattr(settings, key)) for key in of_many}
    named = {"time": settings.time, "id": settings.id}
    single: dict[str, Any] = {key: find_column(table, key, column) for key, column in named.items() if column}
    _check_roles(lists | {key: (column,) for key, column in single.items()})
    settings = replace(settings, **lists, **single)
    left = [c for c in table.columns if c not in (*settings.ignore, settings.id)]
    time, written = _time(table, settings, left)
    for part in settings.calendar:
        if part not in PARTS:
            raise UnknownName("part of the calendar", part, PARTS)
    if settings.calendar and written in (NUMBER, ROW):
        raise SettingError(
            f"calendar={','.join(settings.calendar)} is told from times, and {table.title} has no column of dates: "
            "name one with time=COLUMN, or leave it out."
        )
    reject_units(table, left)
    past = tuple(c for c in left if c not in (*settings.forecast, *settings.known_future, time))
    words: dict[str, str] = {}
    odd: list[Problem] = []
    for column in (*settings.forecast, *past, *settings.known_future):
        cells = table.text(column)
        kind, example = _kind(column, cells, len(table))
        if kind is None:
            odd.append(Problem(f"column {column}", f"{example!r} and most other cells are not numbers"))
        elif kind.kind == "empty":
            odd.append(Problem(f"column {column}", "it has no values"))
        elif kind.kind == "yes/no":
            words[column] = kind.written
    if odd:
        own = find_series_column(table, time, [problem.where.removeprefix("column ") for problem in odd])
        if own:
            raise DataError(
                f"{table.title} holds several series, one below another: times of column {time} are repeated, and "
                f"column {own} has {table.text(own).n_unique():,} values that tell the rows apart.",
                fix=f"Say which column names them: id={own}.",
            )
        raise DataError(
            f"{table.title} has columns that are no numbers:",
            odd,
            "Leave them out with ignore=COLUMN, write them as numbers (Monday as 1, Tuesday as 2, …), or name the "
            "column of times with time=COLUMN.",
        )
    return ColumnRoles(
        time, written, settings.forecast, past, settings.known_future, words, settings.id, settings.calendar
    )


def find_series_column(table: Table, time: str | None, among: Sequence[str] | None = None) -> str | None:
    """Return the column that identifies one of several series.

    Of the columns that identify each row together with the time it is the one with the fewest values. Returns None if
    times do not repeat, or there is no such column.
    """
    if time is None or table.text(time).n_unique() == len(table):
        return None
    found: dict[str, int] = {}
    for column in table.columns if among is None else among:
        values = table.text(column).n_unique()
        if column != time and values <= len(table) / 2 and not table.frame.select(time, column).is_duplicated().any():
            found[column] = values
    return min(found, key=lambda column: found[column], default=None)


def read_numbers(table: Table, columns: ColumnRoles) -> npt.NDArray[np.float64]:
    """Read the variables of every row, (n, F), NaN where a cell is missing.

    Raises DataError that names each cell that is not a number, or missing columns.
    """
    absent = [c for c in (*columns.given, columns.time) if c is not None and c not in table.columns]
    if absent:
        raise DataError(
            f"{table.title} has no column {', '.join(map(repr, absent))}. It has: {', '.join(table.columns)}.",
            fix="A file to be forecast has the columns that the model was trained with, by the same names.",
        )
    reject_units(table, columns.given)
    problems: list[tuple[int, Problem]] = []
    values = np.empty((len(table), len(columns.given)))
    for k, column in enumerate(columns.given):
        kind = _type(columns, column)
        cells = table.text(column)
        values[:, k] = decode(cells, kind)
        for i in np.flatnonzero(unreadable_mask(cells, kind)).tolist():
            problems.append((i, Problem(table.where(i, column), explain_unreadable(cells[i], kind))))
    if problems:
        problems.sort(key=lambda found: found[0])
        raise DataError(
            f"{table.title} has cells that are not numbers:",
            [problem for _, problem in problems],
            "Fix them, or leave them empty and give gaps=fill.",
        )
    return values


def read_moments(table: Table, columns: ColumnRoles) -> npt.NDArray[np.float64]:
    """Read the time of every row, (n,). Raises DataError that names each row with a missing or invalid time."""
    if columns.time is None:
        return np.arange(1, len(table) + 1, dtype=np.float64)
    cells = table.text(columns.time)
    found = parse_times(cells, columns.written)
    bad = np.flatnonzero(np.isnan(found)).tolist()
    if bad:
        like = "a number" if columns.written == NUMBER else f"a time as {FORMATS[columns.written]} is one"
        raise DataError(
            f"{table.title} has rows without a time:",
            [
                Problem(table.where(i, columns.time), f"{cells[i]!r} is not {like}" if cells[i] else "it is empty")
                for i in bad
            ],
            "Every row of a series has its time, written in one way.",
        )
    return found


def _time(table: Table, settings: DataSettings, columns: Sequence[str]) -> tuple[str | None, str]:
    """Return the time column and its format: the one of the setting, else one that holds dates."""
    if settings.time is not None:
        cells = table.text(settings.time)
        written = detect_format(settings.time, cells)
        if written is None and _share_of_numbers(cells) >= MOSTLY:
            written = NUMBER
        if written is None:
            raise DataError(
                f"The column {settings.time!r} of {table.title} holds no times that can be read, for example "
                f"{next(iter(cells.drop_nulls()), '')!r}.",
                fix="Write times as 2020-12-31, 2020-12-31 18:30:00, 2020-12 or as numbers.",
            )
        return settings.time, written
    free = [c for c in columns if c not in (*settings.forecast, *settings.known_future)]
    found: dict[str, str] = {}
    for column in free:
        cells = table.text(column)
        written = detect_format(column, cells)
        if written is not None:
            found[column] = written
    dates = {column: written for column, written in found.items() if written != NUMBER} or found
    if len(dates) > 1:
        raise DataError(
            f"{table.title} has several columns of times: {', '.join(map(repr, dates))}.",
            fix="Say which one with time=COLUMN, and leave the others out with ignore=COLUMN.",
        )
    return next(iter(dates.items()), (None, ROW))


def _check_roles(roles: dict[str, tuple[str, ...]]) -> None:
    """Raise SettingError for a column that is named twice."""
    seen: dict[str, str] = {}
    for role, names in roles.items():
        for name in names:
            if name in seen:
                raise SettingError(f"The column {name!r} is named in {seen[name]}= and in {role}=: it can be but one.")
            seen[name] = role


def _kind(name: str, cells: pl.Series, rows: int) -> tuple[ColumnType | None, str]:
    """Return a column's type: number, yes/no or empty. For other types returns None and an example cell."""
    present = cells.drop_nulls()
    if present.is_empty():
        return ColumnType("empty"), ""
    if _share_of_numbers(cells) >= MOSTLY:
        return ColumnType("number"), ""
    kind = infer_type(name, cells, rows)
    if kind.kind in ("number", "yes/no"):
        return kind, ""
    return None, str(present.filter(present.cast(pl.Float64, strict=False).is_null())[0])


def _share_of_numbers(cells: pl.Series) -> float:
    present = cells.drop_nulls()
    return present.cast(pl.Float64, strict=False).count() / len(present) if len(present) else 0.0


def _type(columns: ColumnRoles, name: str) -> ColumnType:
    return ColumnType("yes/no", columns.words[name]) if name in columns.words else ColumnType("number")
