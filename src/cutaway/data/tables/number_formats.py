"""Numbers as people in different countries write them: 3,5 and 1.234,5; 3.5 and 1,234.5; 1 234,5 and 1'234.5.

The decimal sign of a column is inferred from its own cells if they are unambiguous (3,5 has a decimal comma). If they
are not (1,234), it is inferred from the other columns of the file, then from the format of training, then from the
separator: a file with semicolons between its cells has decimal commas.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import polars as pl

from .column_types import MOSTLY, strip_missing, strip_missing_expr
from .dialect import AUTO, Form

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
