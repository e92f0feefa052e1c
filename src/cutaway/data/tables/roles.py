"""What each column of a table is for: the target, the group, an input, or left out; as the settings say."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import DataError, SettingError, UnknownName, nearest
from ..settings import DataSettings
from .columns import TYPES
from .reading import Table

LISTED = 40  # columns that an error names


@dataclass(frozen=True)
class Roles:
    """The columns by what they are for."""

    target: str
    group: str | None
    ignored: tuple[str, ...]
    inputs: tuple[str, ...]  # in the table's order
    types: dict[str, str]  # column → the type asked for


def choose_roles(table: Table, settings: DataSettings) -> Roles:
    """The roles that `settings` give the columns.

    Raises SettingError where no target is given or the settings contradict each other, UnknownName for a column that is
    not there, DataError where nothing is left to learn from.
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
    ignored = tuple(find_column(table, "ignore", column.strip()) for column in settings.ignore)
    if target in ignored:
        raise SettingError(f"ignore={target} leaves the target out. Take it from the list.")
    inputs = tuple(c for c in table.columns if c not in (target, group, *ignored))
    if not inputs:
        raise DataError(f"No column of {table.title} is left to predict {target!r} from.", fix="Ignore fewer columns.")
    return Roles(target, group, ignored, inputs, _types(table, settings.types, target))


def find_column(table: Table, setting: str, column: str) -> str:
    """The column of that name. Raises UnknownName, which tells of one that differs by spaces or capitals only."""
    if column in table.columns:
        return column
    alike = [c for c in table.columns if c.strip().casefold() == column.strip().casefold()]
    if alike and setting in ("ignore", "types") and alike[0].strip() == column:
        return alike[0]  # a list cannot say a space at the end of a name
    words = _listed(table)
    if alike:
        how = "spaces" if alike[0].strip() == column.strip() else "capitals"
        words = (
            f"There is {alike[0]!r}, which differs by {how}: write {setting}={alike[0]!r} or fix the header. {words}"
        )
    raise UnknownName("column", column, [] if alike else nearest(column, table.columns), words)


def _types(table: Table, given: tuple[str, ...], target: str) -> dict[str, str]:
    types = {}
    for word in given:
        column, colon, kind = word.rpartition(":")
        if not colon or kind.strip() not in TYPES:
            raise SettingError(f"types={word} cannot be: write COLUMN:TYPE with one of {', '.join(TYPES)}.")
        types[find_column(table, "types", column.strip())] = kind.strip()
    if types.get(target, "number") not in ("number", "category"):
        raise SettingError(f"types={target}:{types[target]} cannot be: a target is a number or a category.")
    return types


def _listed(table: Table) -> str:
    more = len(table.columns) - LISTED
    names = ", ".join(f"{c!r}" if c != c.strip() else c for c in table.columns[:LISTED])
    return f"Its columns are: {names}{f' and {more} more' if more > 0 else ''}."
