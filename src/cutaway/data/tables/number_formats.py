"""Numbers as people in different countries write them: 3,5 and 1.234,5; 3.5 and 1,234.5; 1 234,5 and 1'234.5.

The decimal sign of a column is inferred from its own cells if they are unambiguous (3,5 has a decimal comma). If they
are not (1,234), it is inferred from the other columns of the file, then from the format of training, then from the
separator: a file with semicolons between its cells has decimal commas.

`decimal_comma` of polars holds for a whole file, and leaves 1.234,5 and 1 234,5 as text.

Numbers with a unit: $4,331.55, 42.3%, 5.5 kg, 1.2k, and negative numbers in parentheses, (1,200.00).

A column is read without its unit if all cells have the same one. The unit is saved with the run, so that a new table in
another unit is rejected. A column with different units is not numeric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import polars as pl

from .column_types import MOSTLY, strip_missing, strip_missing_expr
from .delimited import AUTO, Form

CELLS = 2_000_000  # examined together
_GAP = r"[ \u00a0\u202f'’]"  # other thousands separators
_SIGN, _END = r"^[-+]?", r"(?:[eE][-+]?\d+)?$"
PLAIN = r"^[-+]?\d+$"
LIKE_A_NUMBER = rf"^[-+]?\d[\d.,]*(?:{_GAP}?[\d.,]+)*{_END}|^[-+]?[.,]\d+{_END}"
WRITTEN = {  # decimal sign → pattern of a number
    ",": rf"{_SIGN}(?:\d+|[1-9]\d{{0,2}}(?:\.\d{{3}})+|[1-9]\d{{0,2}}(?:{_GAP}\d{{3}})+)?(?:,\d+)?{_END}",
    ".": rf"{_SIGN}(?:\d+|[1-9]\d{{0,2}}(?:,\d{{3}})+|[1-9]\d{{0,2}}(?:{_GAP}\d{{3}})+)?(?:\.\d*)?{_END}",
}
EITHER = {",": r"^[-+]?[1-9]\d{0,2},\d{3}$", ".": r"^[-+]?[1-9]\d{0,2}\.\d{3}$"}  # ambiguous: decimals or thousands


@dataclass(frozen=True)
class _Column:
    """Evidence on the decimal sign from the cells of one column of numbers."""

    name: str
    comma: bool  # some can have a decimal comma only
    point: bool  # some can have a decimal point only
    commas: bool  # some hold a comma
    points: bool
    gaps: bool  # some hold another thousands separator


def plain_numerals(frame: pl.DataFrame, separator: str, form: Form) -> tuple[pl.DataFrame, str, list[str]]:
    """Return the table with plain numbers (1234.5), the decimal sign of the file (auto if undecided), and notes.

    Cells that are no numbers in the format of their column are unchanged, to be rejected by name.
    """
    columns = _look(frame, form.missing)
    signs = {"," for c in columns if c.comma and not c.point} | {"." for c in columns if c.point and not c.comma}
    told = form.decimal if form.asked and form.decimal != AUTO else signs.pop() if len(signs) == 1 else form.decimal
    decimals: list[tuple[str, str, str]] = []  # column, a cell, as it is read
    thousands: list[tuple[str, str, str]] = []
    written: dict[str, pl.Series] = {}
    for column in columns:
        sign = _sign(column, told, "," if separator == ";" else ".", form)
        if sign is None or not (column.commas or column.gaps or (sign == "," and column.points)):
            continue  # contradictory or already plain
        cells = strip_missing(frame[column.name], form.missing)
        good = cells.str.contains(WRITTEN[sign])
        if good.sum() < MOSTLY * cells.count():
            continue
        other = "." if sign == "," else ","
        plain = cells.str.replace_all(rf"{_GAP}|\{other}", "").str.replace_all(",", ".", literal=True)
        read = pl.select(pl.when(good).then(plain).otherwise(cells).alias(column.name)).to_series()
        changed = (read != cells).fill_null(False)
        if not changed.any():
            continue
        written[column.name] = read
        for said, pattern in ((decimals, ","), (thousands, rf"\d(?:{_GAP}|\{other})\d")):
            shown = cells.filter(changed & cells.str.contains(pattern).fill_null(False))
            if len(shown) and (said is thousands or sign == ","):
                said.append((column.name, shown[0], read[int((cells == shown[0]).arg_max() or 0)]))
    notes = [_note(decimals, "a decimal comma", ".")] if decimals else []
    alone = [found for found in thousands if found[0] not in {name for name, *_ in decimals}]
    notes += [_note(alone, "thousands set apart", "." if told == "," else ",")] if alone else []
    return frame.with_columns(**written), told, notes


def _look(frame: pl.DataFrame, missing: tuple[str, ...]) -> list[_Column]:
    """Return the evidence from each column that holds numbers. The cells of many columns are examined as one long
    column, as one query costs as much as ten thousand cells; not of all columns, as that copies them."""
    at_once = max(1, CELLS // max(1, len(frame)))
    found = []
    for i in range(0, len(frame.columns), at_once):
        cells = (
            frame[:, i : i + at_once].unpivot().select("variable", cell=strip_missing_expr(pl.col("value"), missing))
        )
        told = cells.select("variable", **_questions(pl.col("cell"))).group_by("variable", maintain_order=True)
        for row in told.agg(pl.exclude("variable").sum()).iter_rows(named=True):
            if row["present"] and row["numbers"] >= MOSTLY * row["present"]:
                found.append(_Column(row["variable"], *(row[f.name] > 0 for f in fields(_Column)[1:])))
    return found


def _questions(cell: pl.Expr) -> dict[str, pl.Expr]:
    """Return the tests of a cell, which has no spaces around it and is null where it is missing."""
    sure = {
        sign: cell.str.contains(WRITTEN[sign]) & ~cell.str.contains(PLAIN) & ~cell.str.contains(EITHER[sign])
        for sign in ",."
    }
    both = sure[","] & sure["."]  # 1 234: the same either way
    return {
        "present": cell.is_not_null(),
        "numbers": cell.str.contains(LIKE_A_NUMBER),
        "comma": sure[","] & ~both & ~cell.str.contains(EITHER["."]),
        "point": sure["."] & ~both & ~cell.str.contains(EITHER[","]),
        "commas": cell.str.contains(",", literal=True),
        "points": cell.str.contains(".", literal=True),
        "gaps": cell.str.contains(_GAP),
    }


def _sign(column: _Column, told: str, usual: str, form: Form) -> str | None:
    """Return the decimal sign of a column; None if its cells contradict each other. `told` is the sign of the whole
    file, `usual` the one that goes with its separator, which is no evidence on points: 1.234 is usually a decimal."""
    if form.decimal != AUTO and form.asked:
        return form.decimal
    if column.comma and column.point:
        return None
    if column.comma or column.point:
        return "," if column.comma else "."
    return told if told != AUTO else usual if column.commas else "."


def _note(found: list[tuple[str, str, str]], what: str, otherwise: str) -> str:
    """Return a sentence on how the numbers of some columns were read."""
    names = ", ".join(name for name, *_ in found[:5]) + (", …" if len(found) > 5 else "")
    _, cell, read = found[0]
    else_ = f"; decimal={otherwise} reads them otherwise" if "." in cell or "," in cell else ""
    return (
        f"Numbers have {what} in {'column' if len(found) == 1 else 'columns'} {names}: {cell} is read as {read}{else_}."
    )


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
