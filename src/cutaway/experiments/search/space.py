"""Search space: ranges and choices of settings, as typed by the user.

    lr=1e-4..1e-1:log            a number between two, log-uniform
    model.hidden_dim=16..256     an integer, if the setting is one
    optimizer=adam,sgd           one of several; of settings that are lists, as in 64|64,64|128
    model.arch=cells             one of the 15 625 cells of cellnet, an operation for each edge

Drawn numbers have four significant digits, so that the command that repeats a trial can be typed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.config import as_text, build, field_names, parse, shorten, unknown_setting
from ...core.errors import IncompatibleSettingError, SettingError, check_value
from ...data.settings import DataSettings
from ...models import cellnet
from ...models.registry import Preset
from ...training.config import TrainSettings
from ..settings import SearchSettings

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")
CELLS = "cells"
SIGNIFICANT_DIGITS = 4  # significant digits of a drawn number
NOT_SEARCHABLE = ("monitor", "objective", "val", "test", "fold", "folds", "split_seed", "target")  # never searched
MAX_GRID_VALUES = 1000  # maximum values of an integer range in a grid


@dataclass(frozen=True)
class Range:
    """Range of numbers from `low` to `high`, of integers with `whole`, and log-uniform with `log`."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        ends = (str(int(end)) if self.whole else repr(float(end)) for end in (self.low, self.high))
        return "..".join(ends) + (":log" if self.log else "")

    def value(self, drawn: float) -> float | int:
        """Convert a drawn number to the value of the setting."""
        if self.whole:
            return int(drawn)
        return min(max(float(f"{drawn:.{SIGNIFICANT_DIGITS}g}"), self.low), self.high)

    def values(self) -> list[float] | None:
        """Return all values if there are few enough for a grid, otherwise None."""
        few = self.whole and self.high - self.low < MAX_GRID_VALUES
        return list(range(int(self.low), int(self.high) + 1)) if few else None


@dataclass(frozen=True)
class Choice:
    """Choice among several values, stored as typed text."""

    options: tuple[str, ...]
    of_lists: bool = False

    def __str__(self) -> str:
        return ("|" if self.of_lists else ",").join(self.options)

    def value(self, drawn: str) -> str:
        """Return the drawn value."""
        return drawn

    def values(self) -> list[str]:
        """Return all values."""
        return list(self.options)


Searched = Range | Choice


@dataclass(frozen=True)
class Space:
    """Searched settings by key. `cells` is the key of a cellnet architecture, if one is searched."""

    settings: Mapping[str, Searched]
    cells: str = ""

    def texts(self) -> dict[str, str]:
        """Return the space as typed text."""
        return {key: str(one) for key, one in self.settings.items()} | ({self.cells: CELLS} if self.cells else {})

    def parts(self) -> dict[str, Searched]:
        """Return everything that is drawn separately: settings, and the operation on each edge of a cell."""
        operations = Choice(cellnet.OPERATIONS)
        edges = {edge_name(edge): operations for edge in cellnet.EDGES} if self.cells else {}
        return {**self.settings, **edges}

    def to_settings(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings from the drawn value of each part."""
        found: dict[str, Any] = {key: one.value(drawn[key]) for key, one in self.settings.items()}
        if self.cells:
            found[self.cells] = cellnet.format_cell([drawn[edge_name(edge)] for edge in cellnet.EDGES])
        return found

    def grid(self) -> Iterator[dict[str, Any]]:
        """Return every combination of values. Raises SettingError for a range with unlimited values."""
        values = self.values("grid")
        return (dict(zip(values, combination)) for combination in itertools.product(*values.values()))

    def values(self, sampler: str) -> dict[str, Sequence[Any]]:
        """Return the values of each part. Raises SettingError, with the sampler, for a range with unlimited values."""
        values: dict[str, Sequence[Any]] = {}
        for key, one in self.parts().items():
            found = one.values()
            if found is None and isinstance(one, Range):
                raise SettingError(
                    f"Invalid {key}={one} for sampler={sampler}: must be a list of values, "
                    f"e.g. {key}={as_text(one.value(one.low))},{as_text(one.value(one.high))}."
                )
            values[key] = found or []
        return values

    def size(self) -> float:
        """Return the number of combinations; infinite with a range of floats."""
        sizes = (one.values() for one in self.parts().values())
        return math.prod(math.inf if values is None else len(values) for values in sizes)


def edge_name(edge: tuple[int, int]) -> str:
    """Return the name of the operation on an edge of a cell."""
    return f"edge {edge[0]}→{edge[1]}"


def sort_settings(found: Preset, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Split settings into those of the search, those that are searched, and those that are fixed.

    A range or a choice is searched. Raises UnknownName for an unknown setting.
    """
    own = set(field_names(SearchSettings))
    how = {key: value for key, value in given.items() if key in own}
    rest = {key: value for key, value in given.items() if key not in own}
    searched = {key: value for key, value in rest.items() if is_searched(key, value, setting_type(found, key))}
    return how, searched, {key: value for key, value in rest.items() if key not in searched}


def parse_space(found: Preset, typed: Mapping[str, Any], fixed: Mapping[str, Any]) -> Space:
    """Parse the search space.

    Raises SettingError for an empty or invalid range and for a setting that is both searched and fixed; UnknownName for
    an unknown setting.
    """
    settings: dict[str, Searched] = {}
    cells = ""
    for key, raw in typed.items():
        kind = setting_type(found, key)
        if key in fixed:
            raise IncompatibleSettingError(
                f"{key} is both searched ({key}={_repr(raw)}) and fixed ({key}={_repr(fixed[key])}): leave one of them "
                "out."
            )
        if key in NOT_SEARCHABLE:
            raise SettingError(
                f"Invalid {key}={_repr(raw)}: cannot be searched, because all trials must share {key} to be "
                "comparable. Set one value."
            )
        if _searches_cells(key, raw):
            if found.module is not cellnet:
                raise IncompatibleSettingError(
                    f"Invalid {key}={CELLS}: only for cellnet and cellnet-small, not for {found.name}."
                )
            cells = key
            continue
        one = _parse_searched(key, raw, kind)
        for value in (one.low, one.high) if isinstance(one, Range) else one.options:
            _validate_value(found, key, value)
        settings[key] = one
    if not settings and not cells:
        raise SettingError(
            "Empty search space: give a range or a choice, e.g. lr=1e-4..1e-1:log or optimizer=adam,sgd. For a single "
            "training use cutaway train."
        )
    return Space(settings, cells)


def reject_other_than_cells(space: Space) -> None:
    """Raise SettingError for a space that is not exactly that of the cells."""
    if not space.cells or space.settings:
        raise SettingError("Invalid space for sampler=darts: must be model.arch=cells only, for cellnet.")


def setting_type(found: Preset, key: str) -> Any:
    """Return the type of a setting of training, data or, as model.KEY, the model.

    Raises UnknownName if it does not exist.
    """
    if key.startswith("model."):
        name = key.removeprefix("model.")
        hints = typing.get_type_hints(type(found.config))
        if name not in hints:
            found.parse({name: ""})  # raises UnknownName with similar names
        return hints[name]
    for group in (TrainSettings, DataSettings):
        hints = typing.get_type_hints(group)
        if key in hints:
            return hints[key]
    raise unknown_setting(key, field_names(SearchSettings, TrainSettings, DataSettings))


def is_searched(key: str, raw: Any, kind: Any) -> bool:
    """Return whether a typed value is a range or a choice."""
    if not isinstance(raw, str):
        return False
    number, of_lists = _is_number(kind), _is_list(kind)
    if _searches_cells(key, raw) or ("|" in raw and not _is_cell_setting(key)):
        return True
    if number and ".." in raw:
        return True
    return "," in raw and not of_lists and (number or _is_type(kind, bool) or _has_choices(key))


def _parse_searched(key: str, raw: Any, kind: Any) -> Searched:
    """Parse a range or a choice. Raises SettingError if it is neither or empty."""
    of_lists = _is_list(kind)
    if isinstance(raw, str) and _is_number(kind) and ".." in raw:
        return _range(key, raw, whole=_is_type(kind, int))
    if isinstance(raw, str):
        options = [part.strip() for part in raw.split("|" if "|" in raw or of_lists else ",")]
    elif isinstance(raw, Sequence):
        options = [as_text(tuple(one) if isinstance(one, list) else one) for one in raw]
    else:
        options = [as_text(raw)]
    if not all(options) or not options:
        raise SettingError(f"Invalid {key}={_repr(raw)}: empty choice. List values, e.g. {key}=A,B.")
    if len(set(options)) < 2:
        raise SettingError(
            f"Invalid {key}={_repr(raw)}: a single value cannot be searched. Give a range low..high or several values, "
            "or pass it with the fixed settings."
        )
    return Choice(tuple(dict.fromkeys(options)), of_lists)


def _range(key: str, raw: str, whole: bool) -> Range:
    """Parse a range. Raises SettingError if its ends are not two finite numbers in ascending order."""
    found = RANGE.fullmatch(raw.strip())
    if found is None:
        raise SettingError(f"Invalid {key}={shorten(raw)}: must be low..high or low..high:log, e.g. lr=1e-4..1e-1:log.")
    low, high = float(found[1]), float(found[2])
    if not math.isfinite(low) or not math.isfinite(high):
        raise SettingError(f"Invalid {key}={shorten(raw)}: both ends must be finite numbers.")
    if whole and (low != int(low) or high != int(high)):
        raise SettingError(f"Invalid {key}={shorten(raw)}: both ends must be integers.")
    if low >= high:
        why = "empty range" if low > high else "range of a single number"
        raise IncompatibleSettingError(f"Invalid {key}={shorten(raw)}: {why}. Must be low..high with low below high.")
    if found[3] and low <= 0:
        raise SettingError(
            f"Invalid {key}={shorten(raw)}: with :log both ends must be above 0. Leave :log out, or raise low."
        )
    return Range(low, high, bool(found[3]), whole)


def _validate_value(found: Preset, key: str, raw: Any) -> None:
    """Raise the error of the setting if the value is invalid."""
    if not key.startswith("model."):
        build(TrainSettings if key in field_names(TrainSettings) else DataSettings, {key: raw})
        return
    name = key.removeprefix("model.")
    field = next(f for f in dataclasses.fields(found.config) if f.name == name)
    value, rule = parse(key, raw, setting_type(found, key)), field.metadata.get("rule")
    if rule is not None and value is not None:
        check_value(rule.holds(value), key, value, rule.allowed, SettingError)


def _repr(raw: Any) -> str:
    return shorten(raw if isinstance(raw, str) else as_text(tuple(raw) if isinstance(raw, list) else raw))


def _searches_cells(key: str, raw: Any) -> bool:
    return _is_cell_setting(key) and raw == CELLS


def _is_cell_setting(key: str) -> bool:
    return key == "model.arch"


def _value_types(kind: Any) -> set[Any]:
    """Return the types that a value may have, without None; for a list those of its members."""
    parts = typing.get_args(kind) if _is_optional(kind) else (kind,)
    inner = {typing.get_args(part)[0] if typing.get_origin(part) is tuple else part for part in parts}
    return inner - {type(None)}


def _is_optional(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)


def _is_list(kind: Any) -> bool:
    return any(typing.get_origin(part) is tuple for part in (kind, *typing.get_args(kind)))


def _is_type(kind: Any, wanted: type) -> bool:
    return _value_types(kind) == {wanted}


def _is_number(kind: Any) -> bool:
    return _value_types(kind) <= {int, float}


def _has_choices(key: str) -> bool:
    """Return whether a comma in the value of a setting separates choices, as for settings that take one of a few words.

    This holds for all settings of a model: no value of theirs contains a comma.
    """
    if key.startswith("model."):
        return True
    fields = (f for group in (TrainSettings, DataSettings) for f in dataclasses.fields(group))
    return any(f.name == key and f.metadata["choices"] for f in fields)
