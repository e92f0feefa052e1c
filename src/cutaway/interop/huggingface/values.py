"""Reading a config.json: values that must be there as numbers, and those of which only some are ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ModelError


def only(theirs: Mapping[str, Any], field: str, default: int) -> int:
    """A whole number of the config. Raises ModelError where it is none."""
    value = theirs.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelError(f"config.json has {field}={value!r}, where a whole number belongs.")
    return value


def number(theirs: Mapping[str, Any], field: str, default: float) -> float:
    """A number of the config; the default where it is null or absent. Raises ModelError where it is none."""
    value = theirs.get(field)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ModelError(f"config.json has {field}={value!r}, where a number belongs.")
    return float(value)


def share(theirs: Mapping[str, Any], field: str, default: float, dropout: float) -> float | None:
    """A dropout of its own, None where it is the network's."""
    value = number(theirs, field, default)
    return None if value == dropout else value


def refuse_others(theirs: Mapping[str, Any], field: str, known: tuple[Any, ...]) -> None:
    """Raise ModelError, naming the field and what is known, where the config has another value; none is the first."""
    value = theirs.get(field, known[0])
    if value not in known:
        raise ModelError(
            f"config.json has {field}={value!r}, which the network here does not have: "
            f"it knows {', '.join(map(repr, known))}."
        )
