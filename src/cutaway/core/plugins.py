"""Additions of other packages, found by their entry points.

A package adds a model, a data set or a view by an entry point of the group `cutaway.models`, `cutaway.datasets` or
`cutaway.views` in its own pyproject.toml (docs/extending.md):

    [project.entry-points."cutaway.models"]
    tiny = "my_package.tiny"

One that cannot be used is left out with a warning that names it, and everything else works.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .errors import CutawayError, SettingError

GROUPS = ("cutaway.models", "cutaway.datasets", "cutaway.views")


def add_plugins(group: str, add: Callable[[str, Any], None]) -> None:
    """Load the entry points of a group and pass the name and the object of each to `add`.

    Args:
        group: one of `GROUPS`.
        add: adds the object, completely or not at all. It raises an error if the object cannot be used.

    A plugin that raises an error while it is loaded or added is left out with a warning.
    """
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        try:
            add(point.name, point.load())
        except Exception as error:
            message = str(error) if isinstance(error, CutawayError) else f"{type(error).__name__}: {error}"
            warnings.warn(f"{_describe(point)} is left out: {message}", RuntimeWarning, stacklevel=2)


def reject_duplicates(what: str, names: Any, known: Any) -> None:
    """Raise SettingError if a name of a plugin exists already."""
    taken = [name for name in names if name in known]
    if taken:
        raise SettingError(f"there is a {what} {taken[0]!r} already. Rename it.")


def _describe(point: EntryPoint) -> str:
    """Return the plugin with its package and version."""
    package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"The plugin {point.name}{package} ({point.group}: {point.value})"
