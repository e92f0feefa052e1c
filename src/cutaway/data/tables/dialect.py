"""Format of a table: separator, encoding, header, and the decimal sign of its numbers.

Settings that are not given are inferred from the file; if the file is ambiguous, the format of training is used.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from ...core.config import build
from ...core.errors import SettingError
from ...core.schema import dataclass_schema, from_document
from ..settings import DataSettings
from .column_types import MISSING, MOSTLY, strip_missing

AUTO = "auto"
OF_TEXT = ("separator", "decimal", "encoding", "header", "quoting")  # undecided in text files, but not in Parquet
LOOKED_AT = 1000  # rows used to detect a header
YEARS = (1800, 2100)  # numeric column names that are plausible


@dataclass(frozen=True)
class Form:
    """Format of a table, as requested or as inferred; auto where it is undecided."""

    separator: str = AUTO
    decimal: str = AUTO  # the sign before decimals: . or ,
    encoding: str = AUTO
    header: bool | None = None
    missing_values: tuple[str, ...] = (AUTO,)  # words that stand for a missing cell
    quoting: str = AUTO  # standard: quotes are marks around cells; none: they are text
    units: Mapping[str, str] | None = None  # column → unit of its numbers in training; None before there is one
    asked: bool = True  # whether the user gave it; otherwise it is a default for what a file leaves undecided

    @classmethod
    def of(cls, settings: DataSettings) -> Form:
        """Return the format that the settings request. Raises SettingError for an unknown encoding."""
        if settings.encoding != AUTO:
            reject_unknown_encoding(settings.encoding)
        keys = ("separator", "decimal", "encoding", "header", "quoting", "missing_values")
        return cls(**{key: getattr(settings, key) for key in keys})

    @property
    def missing(self) -> tuple[str, ...]:
        """Markers of a missing cell, in lower case; the empty cell is always one."""
        if self.missing_values == (AUTO,):
            return MISSING
        return ("", *(word.strip().lower() for word in self.missing_values))

    @property
    def is_of_text(self) -> bool:
        """True if settings are given that apply to text files only."""
        return self.asked and any(getattr(self, key) != getattr(Form, key) for key in OF_TEXT)

    def kept(self) -> Form:
        """Return the same format as a default for what another file leaves undecided."""
        return replace(self, asked=False)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {key: value for key, value in asdict(self).items() if key != "asked"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Form:
        """Restore the format that `to_json` wrote, as a default for new files; older documents have none.

        Raises SettingError if it is invalid.
        """
        found = from_document(cls, data or {})
        build(DataSettings, {key: getattr(found, key) for key in ("separator", "decimal", "quoting")})
        if not all(isinstance(unit, str) for unit in (found.units or {}).values()):
            raise SettingError("a unit is no text")
        if found.encoding != AUTO:
            reject_unknown_encoding(found.encoding)
        return found.kept()


SCHEMA = dataclass_schema(Form, header=bool | None, units=dict | None)
KEPT = Form(asked=False)  # the format in a preprocessing that was not fitted on a table


def reject_unknown_encoding(name: str) -> None:
    """Raise SettingError unless `name` is a text encoding."""
    try:
        known = codecs.lookup(name)
    except (LookupError, ValueError):  # a name with a zero in it
        known = None
    if known is None or not getattr(known, "_is_text_encoding", True):
        raise SettingError(
            f"encoding={name[:60]} is none that is known: utf-8, windows-1252, iso-8859-15, utf-16, shift_jis, …"
        )


def lacks_header(names: list[str], frame: pl.DataFrame, missing: tuple[str, ...] = MISSING) -> bool:
    """Return whether the first line is a row like the others.

    It is if it has a number of similar size in every numeric column, and nowhere else. False for a table without
    numbers.
    """
    numbers = {name: _number(name) for name in names}
    given = [value for value in numbers.values() if value is not None]
    ints = [value for value in given if value == int(value)] if all(map(np.isfinite, given)) else []
    if len(ints) == len(given) and given:  # years, or a count: names that programs give columns
        steps = np.diff(ints)
        if all(YEARS[0] <= value <= YEARS[1] for value in ints) or (len(ints) > 1 and (steps == 1).all()):
            return False
    likes = False
    for name, value in numbers.items():
        cells = strip_missing(frame[name].head(LOOKED_AT), missing).drop_nulls()
        if not len(cells):
            continue
        values = cells.cast(pl.Float64, strict=False).drop_nulls().to_numpy()
        if len(values) >= MOSTLY * len(cells):
            if value is None:
                return False
            reach = values.max() - values.min()
            if not values.min() - reach <= value <= values.max() + reach:
                return False
            likes = True
        elif value is not None:
            return False
    return likes


def _number(name: str) -> float | None:
    try:
        return float(name)
    except ValueError:
        return None
