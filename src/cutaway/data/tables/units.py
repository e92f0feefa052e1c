"""Numbers with a unit: $4,331.55, 42.3%, 5.5 kg, 1.2k, and negative numbers in parentheses, (1,200.00).

A column is read without its unit if all cells have the same one. The unit is saved with the run, so that a new table in
another unit is rejected. A column with different units is not numeric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from .column_types import MOSTLY, strip_missing
from .dialect import Form

CURRENCY = r"(?:US|A|C|R|NZ|HK)?[$€£¥₹₽₩₪₺]|USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|SEK|NOK|DKK|PLN|BRL|MXN|ZAR|KRW|TRY"
SCALES = {"k": "e3", "K": "e3", "M": "e6", "mn": "e6", "B": "e9", "bn": "e9"}  # 1.2k is 1.2e3
# Known units; other words are units only if a column has a single one, after a space.
KNOWN = {
    *("%", "‰", "°", "°C", "°F", "kg", "g", "mg", "t", "lb", "lbs", "oz", "km", "m", "cm", "mm", "mi", "ft", "in"),
    *("s", "ms", "min", "h", "hr", "d", "l", "L", "ml", "mL", "W", "kW", "MW", "kWh", "MWh", "kB", "KB", "MB", "GB"),
    *("TB", "Hz", "kHz", "MHz", "GHz", "hp", "kcal", "kJ", "m²", "m2", "km²", "ha", "bar", "hPa", "km/h", "mph", "m/s"),
    *("day", "days", "week", "weeks", "month", "months", "year", "years", "hours", "minutes", "seconds"),
}
UNUSUAL = r"[^\d\s.,+\-eE'’]"  # characters that occur only in numbers with a unit
_NUMBER = r"(?:\d+(?:[.,'’\u00a0\u202f ]\d+)*[.,]?|[.,]\d+)(?:[eE][-+]?\d+)?"
CELL = (
    rf"^(?P<open>\()?\s?(?P<sign>[-+−])?\s?(?P<before>{CURRENCY})?\s?(?P<inner>[-+−])?(?P<number>{_NUMBER})"
    r"(?P<space>\s)?(?P<after>[^\d\s.,()+\-−][^\d.,()]{0,15})?\s?(?P<close>\))?$"
)


@dataclass(frozen=True)
class Units:
    """The units of a table's columns of numbers."""

    found: dict[str, str] = field(default_factory=dict)  # column → its one unit
    problems: dict[str, str] = field(default_factory=dict)  # column → why its cells are no numbers in one unit
    notes: tuple[str, ...] = ()


def strip_units(frame: pl.DataFrame, form: Form) -> tuple[pl.DataFrame, Units]:
    """Return the table with the units taken from its columns of numbers, and the units.

    Where `form` has the units of training, a column in another is a problem.
    """
    units = Units()
    written: dict[str, pl.Series] = {}
    negative: list[str] = []
    scaled: list[str] = []
    for column in frame.columns:
        cells = strip_missing(frame[column], form.missing)
        if not _may_have_units(cells):
            continue
        parts = _parts(cells)
        if (there := _count_units(parts, cells)) is None:
            continue
        if len(there) > 1:
            said = [
                f"{unit or 'none'} ({count:,} {'cell' if count == 1 else 'cells'})" for unit, count in there.items()
            ]
            units.problems[column] = f"its cells have different units: {', '.join(said[:4])}"
            continue
        (unit,) = there
        if unit:
            units.found[column] = unit
        if parts["in_parentheses"].any():
            negative.append(column)
        if (parts["scale"] != "").any():
            scaled.append(column)
        written[column] = _as_numbers(parts, cells).alias(column)
    trained = form.units
    if trained is not None:
        for column, unit in units.found.items():
            if unit != trained.get(column, ""):
                of_training = f"{trained[column]!r}" if column in trained else "without a unit"
                units.problems[column] = f"its unit is {unit!r}, and training had numbers {of_training}"
    return frame.with_columns(**written), Units(
        units.found, units.problems, tuple(_notes(units.found, negative, scaled))
    )


def _may_have_units(cells: pl.Series) -> bool:
    """Return whether most of the first cells are numbers, with or without a unit, and some cell of the column has more
    than a number."""
    first = cells.drop_nulls().head(1000)
    if not len(first) or first.str.contains(CELL).sum() < MOSTLY * len(first):
        return False
    return bool(cells.str.contains(UNUSUAL).any())


def _parts(cells: pl.Series) -> pl.DataFrame:
    """Return the parts of each cell: sign, number, unit and scale, and whether it is a number with a known unit."""
    parts = cells.str.extract_groups(CELL).struct.unnest()
    after = parts["after"].fill_null("").str.strip_chars()
    tail = after.str.extract(rf"^(?:{'|'.join(SCALES)})?\s?({CURRENCY})?$", 1).fill_null("")
    scale = after.str.extract(rf"^({'|'.join(SCALES)})\s?(?:{CURRENCY})?$", 1).fill_null("")
    unit = pl.select(pl.when((tail != "") | (scale != "")).then(tail).otherwise(after)).to_series()
    before = parts["before"].fill_null("")
    pair = (parts["open"].is_null() == parts["close"].is_null()) & ((before == "") | (unit == ""))
    known = unit.is_in([*KNOWN, ""]) | (tail != "") | parts["space"].is_not_null()
    return pl.DataFrame(
        {
            "valid": (parts["number"].is_not_null() & pair & known).fill_null(False),
            "number": parts["number"],
            "minus": (parts["sign"].is_in(["-", "−"]) | parts["inner"].is_in(["-", "−"])).fill_null(False),
            "in_parentheses": parts["open"].is_not_null(),
            "unit": pl.select(pl.when(before != "").then(before).otherwise(unit)).to_series(),
            "scale": scale,
        }
    )


def _count_units(parts: pl.DataFrame, cells: pl.Series) -> dict[str, int] | None:
    """Return the units of a column and the number of cells with each; None for a column without numbers with units.

    Cells without a unit are ignored unless they are informative.
    """
    valid = parts.filter(pl.col("valid"))
    if valid.height < MOSTLY * cells.count() or valid["in_parentheses"].all():
        return None
    told = (valid["unit"] != "") | (valid["scale"] != "") | valid["in_parentheses"]
    if not told.any():
        return None
    counts = dict(valid["unit"].value_counts(sort=True).iter_rows())
    without = counts.pop("", 0)
    currency = pl.Series(list(counts), dtype=pl.String).str.contains(rf"^(?:{CURRENCY})$").to_list()
    if len(counts) > 1 and not all(unit in KNOWN or money for unit, money in zip(counts, currency)):
        return None
    if not counts or (without and "%" in counts):  # 0.4 in a column with 42 % is ambiguous
        counts[""] = without
    return counts


def _as_numbers(parts: pl.DataFrame, cells: pl.Series) -> pl.Series:
    """Return the cells without their units, as text; cells that are no number with a unit are unchanged."""
    negative = parts["minus"] | parts["in_parentheses"]
    sign = pl.select(pl.when(negative).then(pl.lit("-")).otherwise(pl.lit(""))).to_series()
    number = sign + parts["number"].fill_null("") + parts["scale"].replace_strict({**SCALES, "": ""}, default="")
    return pl.select(pl.when(parts["valid"]).then(number).otherwise(cells)).to_series()


def _notes(found: Mapping[str, str], negative: list[str], scaled: list[str]) -> list[str]:
    """Return notes on the columns that are read without their units."""
    said = {
        "Read as numbers without their units": [f"{column} ({unit})" for column, unit in found.items()],
        "Numbers in parentheses are read as negative": negative,
        "Numbers with k, M or B are read as thousands, millions or billions": scaled,
    }
    return [
        f"{what}: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}." for what, names in said.items() if names
    ]
