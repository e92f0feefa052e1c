"""Format of a table: separator, encoding, header, and the decimal sign of its numbers.

Settings that are not given are inferred from the file; if the file is ambiguous, the format of training is used.

Delimited text, CSV or TSV, as columns of text, with detection of rows and of quoting.

Quotes enclose cells, as in RFC 4180: quoted cells may hold delimiters and line ends, and "" is a quote. If the file
does not parse like that, but each line is a complete row when quotes are text, they are read as text, as in
hand-written TSV files.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.config import build
from ...core.errors import DataError, Problem, SettingError, shorten_repr
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
    def from_settings(cls, settings: DataSettings) -> Form:
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
        raise DataError(
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
        raise DataError(
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
        raise DataError(
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
