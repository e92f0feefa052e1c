"""Format of a table: separator, encoding, header, quotes, and the decimal sign and the unit of its numbers.

Settings that are not given are inferred from the file; if the file is ambiguous, the format of training is used.

Quotes enclose cells, as in RFC 4180: quoted cells may hold delimiters and line ends, and "" is a quote. If the file
does not parse like that, but each line is a complete row when quotes are text, they are read as text, as in
hand-written TSV files.

Numbers are read as people in different countries write them: 3,5 and 1.234,5; 3.5 and 1,234.5; 1 234,5 and 1'234.5. The
decimal sign of a column is inferred from its own cells if they are unambiguous (3,5 has a decimal comma). If they are
not (1,234), it is inferred from the other columns of the file, then from the format of training, then from the
separator: a file with semicolons between its cells has decimal commas. `decimal_comma` of polars holds for a whole
file, and leaves 1.234,5 and 1 234,5 as text.

Numbers may have a unit: $4,331.55, 42.3%, 5.5 kg, 1.2k, and negative ones parentheses, (1,200.00). A column is read
without its unit if all cells have the same one. The unit is saved with the run, so that a new table in another unit is
rejected. A column with different units is not numeric.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.config import build
from ...core.errors import ColumnError, DataError, NotEnoughDataError, Problem, SettingError, shorten_repr
from ...core.schema import dataclass_schema, from_document
from ..settings import DataSettings
from .column_types import MISSING, MOSTLY, strip_missing, strip_missing_expr

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
    missing_values: tuple[str, ...] = (AUTO,)  # words that stand for a missing cell; auto stands for the default ones
    quoting: str = AUTO  # standard: quotes are marks around cells; none: they are text
    units: Mapping[str, str] | None = None  # column → unit of its numbers in training; None before there is one
    asked: bool = True  # whether the user gave it; otherwise it is a default for what a file leaves undecided

    @classmethod
    def from_settings(cls, settings: DataSettings) -> Form:
        """Return the format that the settings request. Raises SettingError for an unknown encoding."""
        if settings.encoding != AUTO:
            reject_unknown_encoding(settings.encoding)
        keys = ("separator", "decimal", "encoding", "header", "quoting", "missing_values")
        return cls(**{key: getattr(settings, key) for key in keys})

    @property
    def missing(self) -> tuple[str, ...]:
        """Markers of a missing cell, in lower case; the empty cell is always one."""
        default = MISSING if AUTO in self.missing_values else ("",)
        return tuple(dict.fromkeys((*default, *self._named)))

    @property
    def default_missing(self) -> tuple[str, ...]:
        """The markers among `missing` that no setting names."""
        return tuple(word for word in self.missing if word not in self._named)

    @property
    def _named(self) -> tuple[str, ...]:
        return tuple(word.strip().lower() for word in self.missing_values if word != AUTO)

    @property
    def is_of_text(self) -> bool:
        """True if settings are given that apply to text files only."""
        return self.asked and any(getattr(self, key) != getattr(Form, key) for key in OF_TEXT)

    def as_default(self) -> Form:
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
        return found.as_default()


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
            f"Invalid encoding={name[:60]}: unknown; known are utf-8, windows-1252, iso-8859-15, utf-16, shift_jis, …"
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


DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
csv.field_size_limit(2**31 - 1)  # cells may hold long documents; csv's default limit is 131 072 characters
HEADER = 10_000_000  # characters in which the first line must end
CHUNK = 65_536  # rows converted to columns at a time, to limit the number of Python objects
SEPARATOR_LINE = re.compile(r'"?sep=([,;|\t])"?\r?[\n\r]', re.IGNORECASE)  # what spreadsheets write first
NAMED = 5  # lines that a note names


@dataclass
class Rows:
    """The rows of delimited text as they were read."""

    names: list[str] = field(default_factory=list)
    header: int = 0  # the line of the names
    chunks: list[pl.DataFrame] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # on which each row begins
    blank: list[int] = field(default_factory=list)
    comments: list[int] = field(default_factory=list)
    trailing: list[int] = field(default_factory=list)  # rows with one delimiter more, at their end
    ragged: list[tuple[int, int]] = field(default_factory=list)  # line, cells found
    spanning: list[tuple[int, int]] = field(default_factory=list)  # first and last line of rows of several lines
    end: int = 0  # the last line
    error: DataError | None = None

    @property
    def whole(self) -> bool:
        """True if every row has a cell for each column."""
        return not self.error and not self.ragged and bool(self.lines)


@dataclass(frozen=True)
class Delimited:
    """A table of text."""

    frame: pl.DataFrame
    lines: npt.NDArray[np.int64]
    separator: str
    quoting: str  # standard or none
    named: list[str]  # columns that the header names
    notes: list[str]


def read_delimited(text: str, path: Path, form: Form) -> Delimited:
    """Return the rows of delimited text. Raises DataError, naming each line that is no row."""
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    said = SEPARATOR_LINE.match(text)
    asked = form.asked and form.separator != AUTO
    separator = form.separator.replace("tab", "\t") if asked else said[1] if said else _separator(text, usual)
    notes = []
    if separator != usual and not asked and not said:
        notes.append(
            f"{path.name} is separated by {DELIMITERS[separator]}, as its first line shows, not by {DELIMITERS[usual]}."
        )

    def read(quoting: str, strict: bool = True) -> Rows:
        return _read(text, path, separator, form.header, quoting, strict, skip=bool(said))

    if form.asked and form.quoting != AUTO:
        rows, quoting = read(form.quoting), form.quoting
    else:
        rows, quoting, more = _try_both(read, separator, form.quoting, '"' in text, path)
        notes += more
    if rows.error is not None:
        raise rows.error
    if rows.ragged:
        raise _ragged(path, rows)
    if not rows.lines:
        raise NotEnoughDataError(
            f"{path} has no rows{' below its header' if rows.names else ''}.",
            fix="The first line names the columns; each line after it is a row.",
        )
    frame = pl.concat(rows.chunks)
    frame, named, more = _with_names(rows, frame, path)
    inside = [line for line in rows.blank if line < rows.lines[-1]]
    notes += _about_lines(path, inside, "empty lines", "are no rows")
    notes += _about_lines(path, rows.comments, "lines", "begin with # and are no rows")
    notes += _about_lines(path, rows.trailing, "rows", "end with a delimiter too many")
    return Delimited(frame, np.array(rows.lines), separator, quoting, named, notes + more)


def _try_both(
    read: Callable[..., Rows], separator: str, trained: str, has_quotes: bool, path: Path
) -> tuple[Rows, str, list[str]]:
    """Return the rows by the quoting that parses, the name of that quoting, and a note if quotes are text."""
    if trained == "none" and has_quotes and (rows := read("none")).whole:
        return rows, "none", []
    rows = read("standard")
    doubtful = rows.spanning if rows.whole else separator == "\t"
    if not has_quotes or not doubtful:
        return rows, "standard", []
    other = read("none")
    if not other.whole:
        return rows, "standard", []
    merged = read("standard", strict=False).spanning
    some = ", ".join(f"{first} to {last}" for first, last in merged[:NAMED]) + (", …" if len(merged) > NAMED else "")
    would = f"lines {some} would be {'one row' if len(merged) == 1 else 'single rows'}" if merged else ""
    if separator != "\t":
        are = would.replace("would be", "are")
        return rows, "standard", [f"By the quotes of {path.name}, {are}; quoting=none reads each line as a row."]
    why = "; as marks around cells they do not close" if not merged else f"; as marks around cells, {would}"
    return other, "none", [f"Quotes are text in {path.name}{why}. quoting=standard reads them as marks."]


def _read(text: str, path: Path, separator: str, header: bool | None, quoting: str, strict: bool, skip: bool) -> Rows:
    """Read the rows of the text as far as possible; with `skip`, without the first line."""
    lines = io.StringIO(text, newline="")
    if quoting == "none":
        reader = csv.reader(lines, delimiter=separator, strict=strict, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, delimiter=separator, strict=strict)
    found, rows = Rows(), list[list[str]]()
    pending: list[tuple[int, list[str]]] = []  # lines with # before the header; the last one may be the header

    def name(row: list[str], line: int) -> None:
        found.names, found.header = row, line

    try:
        for row in reader:
            begin, found.end = found.end + 1, reader.line_num
            if skip:
                skip = False
                continue
            if not row:
                found.blank.append(begin)
                continue
            if found.end > begin:
                found.spanning.append((begin, found.end))
            if not found.names:
                if row[0].startswith("#"):
                    pending.append((begin, row))
                    continue
                if pending and header is not False and _is_header(pending[-1][1], row):
                    line, names = pending.pop()
                    name(names, line)
                found.comments += [line for line, _ in pending]
                pending = []
                if not found.names:
                    name(row if header is not False else [f"column_{k}" for k in range(1, len(row) + 1)], begin)
                    if header is not False:
                        continue
            width = len(found.names)
            if len(row) != width and row[0].startswith("#"):
                found.comments.append(begin)
                continue
            if len(row) == width + 1 and not row[-1]:
                row.pop()
                found.trailing.append(begin)
            if len(row) != width:
                found.ragged.append((begin, len(row)))
                continue
            rows.append(row)
            found.lines.append(begin)
            if len(rows) == CHUNK:
                found.chunks.append(_columns(width, rows))
                rows = []
    except csv.Error as error:
        found.error = _unreadable(path, found.end + 1, reader.line_num, str(error))
    if pending and not found.names:
        name(pending[-1][1], pending[-1][0])
    if rows:
        found.chunks.append(_columns(len(found.names), rows))
    return found


def _is_header(line: list[str], row: list[str]) -> bool:
    """Return whether a line with # names the columns of the row below it: #a,b does, and # a,b if that row has
    numbers."""
    if len(line) != len(row) or len(row) < 2:
        return False
    return not line[0].startswith("# ") or any(re.fullmatch(r"\s*[-+]?[\d.,]+\s*", cell) for cell in row)


def _columns(width: int, rows: list[list[str]]) -> pl.DataFrame:
    return pl.DataFrame([pl.Series(f"column_{k}", cells, dtype=pl.String) for k, cells in enumerate(zip(*rows), 1)])


def _separator(text: str, usual: str) -> str:
    """Return the delimiter that splits the first line into most cells; in a tie, the usual one."""
    lines = [line for line in io.StringIO(text[:HEADER], newline="") if line.strip()][:100]
    first = next((line for line in lines if not line.startswith("#")), lines[0] if lines else "")
    unquoted = re.sub(r'"[^"]*"', "", first)
    return max((usual, *DELIMITERS), key=unquoted.count)  # the first in a tie


def _with_names(rows: Rows, frame: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, list[str], list[str]]:
    """Return the columns under their names, the names from the header, and notes.

    A column without a name is named by its number, and dropped if it is empty. Raises DataError if most columns have no
    name, or two have the same name.
    """
    where, names = f"{path.name}, line {rows.header}", list(rows.names)
    unnamed = [k for k, name in enumerate(names) if not name.strip()]
    if 2 * len(unnamed) > len(names):
        said = " and column ".join(str(k + 1) for k in unnamed[:NAMED])
        raise ColumnError(
            f"{where}: column {said} of {len(names)} has no name.",
            fix="Name every column in that line; where it is a row like the others, header=false names them.",
        )
    empty = [k for k in unnamed if (frame.to_series(k).str.strip_chars() == "").all()]
    notes = []
    for k in unnamed:
        names[k] = f"column_{k + 1}"
        what = "nor cells and is left out" if k in empty else f"and is called {names[k]}"
        notes.append(f"Column {k + 1} of {path.name} has {'neither a' if k in empty else 'no'} name {what}.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        at = [str(k) for k, name in enumerate(names, 1) if name == twice]
        raise ColumnError(
            f"{where}: columns {' and '.join(at)} are all named {shorten_repr(twice)}.",
            fix="Give each column a name of its own; where that line is a row like the others, say header=false.",
        )
    frame.columns = names
    return frame.drop([names[k] for k in empty]), [n for k, n in enumerate(names) if k not in unnamed], notes


def _about_lines(path: Path, lines: Sequence[int], what: str, why: str) -> list[str]:
    """Return a note on lines of the file, if there are any."""
    if not lines:
        return []
    more = ", …" if len(lines) > NAMED else ""
    return [f"{len(lines):,} {what} of {path.name} {why}: line {', '.join(map(str, lines[:NAMED]))}{more}."]


def _unreadable(path: Path, begin: int, end: int, reason: str) -> DataError:
    """Return the error for a row that the csv module cannot parse, from its first line and the reason."""
    if "unexpected end" in reason:
        return DataError(
            f"{path.name}, line {begin}: a quote is opened in this row and not closed up to line {end}.",
            fix='Close it, or write it twice ("") where it is text; quoting=none reads all quotes as text. If the file '
            "ends there, it was cut short.",
        )
    return DataError(
        f"{path.name}, line {end}: text stands after a closing quote ({reason}).",
        fix='A quoted cell ends with its quote; a quote inside it is written twice: "5"" disk". quoting=none reads all '
        "quotes as text.",
    )


def _ragged(path: Path, rows: Rows) -> DataError:
    """Return the error that names each row with a different number of cells than the header."""
    ragged, width = rows.ragged, len(rows.names)
    problems = [Problem(f"{path.name}, line {line}", f"{found} cells, {width} expected") for line, found in ragged]
    fix = 'A cell that holds the separator needs quotes, "like, this"; an empty cell still needs its separator.'
    if len(ragged) == 1 and ragged[0][0] == rows.end and ragged[0][1] < width:
        fix = "That row is the last one: was the file cut short?"
    elif not rows.lines and width > 1 and {found for _, found in ragged} == {width + 1}:
        fix = "Every row has one cell more than the header: name the column of row names there too."
    elif not rows.lines:
        fix = "No row has as many cells as the header: are lines of text above it? Take them out, or begin them with #."
    count = f"{len(ragged):,} row{'' if len(ragged) == 1 else 's'}"
    return DataError(f"{path} has {count} with more or fewer cells than its header.", problems, fix)


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

    Cells that are not numbers in the format of their column are unchanged, to be rejected by name.
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
    notes += [_note(alone, "thousands separators", "." if told == "," else ",")] if alone else []
    return frame.with_columns(**written), told, notes


def _look(frame: pl.DataFrame, missing: tuple[str, ...]) -> list[_Column]:
    """Return the evidence from each column that holds numbers. The cells of many columns are examined as one long
    column, as one query costs as much as ten thousand cells; not of all columns, as that copies them."""
    at_once = max(1, CELLS // max(1, len(frame)))
    found = []
    for i in range(0, len(frame.columns), at_once):
        some = frame[:, i : i + at_once]
        # Columns are numbered, as a column of the file may be named "variable" or "value".
        numbered = some.rename({name: str(k) for k, name in enumerate(some.columns)})
        cells = numbered.unpivot().select("variable", cell=strip_missing_expr(pl.col("value"), missing))
        told = cells.select("variable", **_questions(pl.col("cell"))).group_by("variable", maintain_order=True)
        for row in told.agg(pl.exclude("variable").sum()).iter_rows(named=True):
            if row["present"] and row["numbers"] >= MOSTLY * row["present"]:
                name = some.columns[int(row["variable"])]
                found.append(_Column(name, *(row[f.name] > 0 for f in fields(_Column)[1:])))
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
    sign = "commas" if otherwise == "," else "points"
    else_ = f"; decimal={otherwise} reads {sign} as decimal signs" if "." in cell or "," in cell else ""
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
