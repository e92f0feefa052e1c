"""Roles of the columns of a table by the settings: target, group, input, or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.errors import DataError, Problem, SettingError, UnknownName, closest_names
from ..settings import DataSettings
from .column_types import TYPES
from .table_files import Table

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
        raise DataError(
            f"Column {table.columns[0]!r} is the only one of {table.title}: there is nothing to predict a target from.",
            fix="Are its cells separated by something else than commas, semicolons or tabs? Save it as CSV.",
        )
    if settings.target is None:
        raise SettingError(f"Which column of {table.title} is to be predicted? Say target=COLUMN. {_listed(table)}")
    target = find_column(table, "target", settings.target)
    group = None if settings.group is None else find_column(table, "group", settings.group)
    if group == target:
        raise SettingError(
            f"group={group} is the target itself: each of its values would be in one split only. Give another column."
        )
    ignored = find_columns(table, "ignore", settings.ignore)
    if target in ignored:
        raise SettingError(f"ignore={target} leaves the target out. Take it from the list.")
    inputs = tuple(c for c in table.columns if c not in (target, group, *ignored))
    if not inputs:
        raise DataError(f"No column of {table.title} is left to predict {target!r} from.", fix="Ignore fewer columns.")
    types = _types(table, settings.types, target)
    reject_units(table, [column for column in (target, *inputs) if types.get(column) != "category"])
    return Roles(target, group, ignored, inputs, types)


def reject_units(table: Table, columns: Sequence[str]) -> None:
    """Raise DataError if numbers in one of these columns have several units, or other units than in training."""
    if problems := [Problem(f"column {c}", table.unit_problems[c]) for c in columns if c in table.unit_problems]:
        raise DataError(
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
        raise SettingError(f"types={words[0]} cannot be: write COLUMN:TYPE with one of {', '.join(TYPES)}.")
    if types.get(target, "number") not in ("number", "category"):
        raise SettingError(f"types={target}:{types[target]} cannot be: a target is a number or a category.")
    return types


def _listed(table: Table) -> str:
    more = len(table.columns) - LISTED
    names = ", ".join(f"{c!r}" if c != c.strip() else c for c in table.columns[:LISTED])
    return f"Its columns are: {names}{f' and {more} more' if more > 0 else ''}."
