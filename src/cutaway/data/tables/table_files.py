"""Readers of tables: CSV, TSV and Parquet files, and rows in memory.

A table from any source is read as text, each cell as written; `infer_type` infers the types of the cells. A file that
does not have the format of its name is rejected with the line, never repaired.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import DataError, SettingError, printable, shorten_repr
from ...core.files import read_bytes
from .column_types import strip_missing
from .delimited import AUTO, KEPT, OF_TEXT, Form, lacks_header, read_delimited
from .number_formats import plain_numerals, strip_units

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
CELLS = "a cell is a number, a text, a date or yes/no"


@dataclass(frozen=True)
class Table:
    """A table as text, with the locations of its rows in the source."""

    name: str  # houses.csv; empty for rows without a file
    frame: pl.DataFrame  # (n, columns) of strings; null for missing values
    lines: npt.NDArray[np.int64] | None = None  # (n,) the line on which each row begins; None: rows count from 1
    notes: tuple[str, ...] = ()
    form: Form = KEPT  # format of the source
    parts: tuple[tuple[str, int], ...] = ()  # of concatenated tables, the name and first row of each
    called: tuple[str, ...] = ()  # (n,) names of the rows, if they are not rows to the user
    numbers: Mapping[str, pl.Series] = field(default_factory=dict)  # columns that were numeric in the source
    order: npt.NDArray[np.int64] | None = None  # (n,) the original position of each row; None: unchanged
    unit_problems: Mapping[str, str] = field(
        default_factory=dict
    )  # column → why its unit is mixed or differs from training

    def __len__(self) -> int:
        return self.frame.height

    @property
    def title(self) -> str:
        """Name of the table in messages."""
        return self.name or "the table"

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.frame.columns

    def cells(self, column: str) -> pl.Series:
        """Return the cells of a column, null where they are missing: as numbers if the source had numbers, else as
        text."""
        known = self.numbers.get(column)
        return self.text(column) if known is None else known

    def text(self, column: str) -> pl.Series:
        """Return the text of a column's cells without spaces around it, null where they are missing."""
        return strip_missing(self.frame[column], self.form.missing)

    def place(self, i: int) -> str:
        """Return the name of row i: line 18 of houses.csv, or row 17."""
        number, name = self._row_name(i)
        return self.called[i] if self.called else f"{number} of {name}" if name else number

    def where(self, i: int, column: str) -> str:
        """Return the place of cell (i, column): houses.csv, line 18, column price."""
        if self.called:
            return self.called[i]
        number, name = self._row_name(i)
        return ", ".join(part for part in (name, number, f"column {column}") if part)

    def row(self, i: int) -> dict[str, str]:
        """Return row i before preprocessing."""
        return {column: cell or "" for column, cell in self.frame.row(i, named=True).items()}

    def take(self, rows: npt.NDArray[np.int64]) -> Table:
        """Return these rows in this order; each keeps its name."""
        return replace(
            self,
            frame=self.frame[rows],
            lines=None if self.lines is None else self.lines[rows],
            called=tuple(self.called[i] for i in rows) if self.called else (),
            numbers={column: cells[rows] for column, cells in self.numbers.items()},
            order=rows if self.order is None else self.order[rows],
        )

    def _row_name(self, i: int) -> tuple[str, str]:
        """Return the line or row number of row i in words, and the name of its table."""
        place = i if self.order is None else int(self.order[i])
        name, first = next(((name, first) for name, first in reversed(self.parts) if first <= place), (self.name, 0))
        return f"row {place - first + 1}" if self.lines is None else f"line {self.lines[i]}", name


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun: 3 rows; 1 row."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def read_table(path: Path, form: Form = Form()) -> Table:  # noqa: B008  # it is frozen
    """Read the table in a .csv, .tsv or .parquet file; `form` is its format where the file is ambiguous.

    Raises FileError if the file cannot be read, DataError if it is not a whole table of that format, or has no header
    and `form` does not say so; SettingError if a format of text files is given for Parquet.
    """
    data = read_bytes(path)
    if not data:
        raise DataError(
            f"{path} is empty: it has 0 bytes.",
            fix="Was it saved or copied to the end? Take it from its source again.",
        )
    if path.suffix.lower() == ".parquet":
        if form.is_of_text:
            raise SettingError(f"{', '.join(OF_TEXT)} are for CSV, and {path} is Parquet.")
        return _parquet(data, path, form)
    text, notes = _text(data, path, form)
    return _delimited(text, path, form, notes)


def frame_table(frame: pl.DataFrame, name: str = "", form: Form = KEPT) -> Table:
    """Return a polars data frame as a table of text; numbers in text columns are read as in files.

    Raises DataError for columns of lists, structures or bytes.
    """
    notes = [f"Durations are read in seconds (columns {', '.join(spans)})."] if (spans := _spans(frame)) else []
    text, form, said, problems = plain_columns(text_frame(frame, name), frame.schema, form)
    return Table(name, text, notes=(*notes, *said), form=form, unit_problems=problems)


def plain_columns(
    text: pl.DataFrame, schema: Mapping[str, pl.DataType], form: Form
) -> tuple[pl.DataFrame, Form, list[str], Mapping[str, str]]:
    """Apply `_plain` to the text columns of a data frame given as text."""
    written = [column for column, dtype in schema.items() if dtype == pl.String]
    plain, taken, said, problems = _plain(text.select(written), ",", form)
    return text.with_columns(plain), taken if said else replace(taken, decimal=form.decimal), said, problems


def _plain(frame: pl.DataFrame, separator: str, form: Form) -> tuple[pl.DataFrame, Form, list[str], Mapping[str, str]]:
    """Return columns of text with plain numbers, the format with the inferred decimal sign and units, notes, and the
    columns that mix units."""
    frame, units = strip_units(frame, form)
    frame, decimal, said = plain_numerals(frame, separator, form)
    return frame, replace(form, decimal=decimal, units=units.found), [*units.notes, *said], units.problems


def _spans(frame: pl.DataFrame) -> list[str]:
    return [column for column, dtype in frame.schema.items() if dtype == pl.Duration]


def reject_column(column: str, dtype: pl.DataType, table: str = "") -> None:
    """Raise DataError for a data frame column without cells: lists, structures, bytes, Python objects."""
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        of = {pl.Object: "Python objects", pl.Binary: "bytes"}.get(dtype.base_type(), f"values of type {dtype}")
        raise DataError(
            f"Column {shorten_repr(column)} of {table or 'the table'} holds {of}: {CELLS}.",
            fix="Write it as several plain columns, or leave it out.",
        )


def text_frame(frame: pl.DataFrame, name: str = "") -> pl.DataFrame:
    """Return a polars data frame with each cell as text. Raises DataError for columns of lists, structures or bytes."""
    for column, dtype in frame.schema.items():
        reject_column(column, dtype, name)
    # Text preserves every float exactly: polars writes the shortest digits that parse to the same number.
    spans = _spans(frame)
    frame = frame.with_columns(pl.col(spans).dt.total_microseconds() / 1e6) if spans else frame
    try:
        return frame.fill_nan(None).cast(pl.String)
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"{name or 'The table'} holds cells that have no text: {str(error).splitlines()[0]}."
        ) from error


def concatenate_tables(tables: Mapping[str, Table]) -> tuple[Table, dict[str, npt.NDArray[np.int64]]]:
    """Concatenate named tables, and return the rows of each. Raises DataError if their columns differ."""
    (called, first), *others = tables.items()
    for name, other in others:
        if odd := sorted({*first.columns} ^ {*other.columns}):
            raise DataError(
                f"{called} and {name} differ in the columns they have: {', '.join(map(repr, odd[:10]))}.",
                fix="Give both the same columns.",
            )
    ends = np.cumsum([0, *map(len, tables.values())])
    frame = pl.concat([table.frame.select(first.columns) for table in tables.values()])
    notes = tuple(dict.fromkeys(note for table in tables.values() for note in table.notes))
    parts = tuple(zip(tables, ends.tolist())) if others else ()
    typed = [c for c in first.columns if all(c in table.numbers for table in tables.values())]
    numbers = {column: pl.concat([table.numbers[column] for table in tables.values()]) for column in typed}
    rows = {name: np.arange(begin, end) for name, begin, end in zip(tables, ends, ends[1:])}
    problems = {column: why for table in tables.values() for column, why in table.unit_problems.items()}
    whole = Table(first.name, frame, notes=notes, form=first.form, parts=parts, numbers=numbers, unit_problems=problems)
    return whole, rows


def rows_table(rows: Sequence[Mapping[str, Any]], form: Form = KEPT) -> Table:
    """Return dictionaries (column → cell, None if missing) as a table of text. All must have the same columns."""
    columns = list(rows[0]) if rows else []
    for i, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            odd = sorted(row.keys() ^ rows[0].keys())
            raise DataError(
                f"Row {i + 1} and row 1 differ in the columns they have: {', '.join(map(repr, odd))}.",
                fix="Give every row every column; None is a missing cell.",
            )
    return columns_table({column: [row[column] for row in rows] for column in columns}, form)


def columns_table(columns: Mapping[str, Sequence[Any]], form: Form = KEPT) -> Table:
    """Return columns of Python values as a table of text. Raises DataError for a value that has no text."""
    cells = {
        column_name(name): pl.Series(
            str(name), [cell_text(v, i, str(name)) for i, v in enumerate(values)], dtype=pl.String
        )
        for name, values in columns.items()
    }
    return frame_table(pl.DataFrame(cells), form=form)


def column_name(name: Any) -> str:
    """Return the name of a column as text. Raises DataError if it has no text, or its text is not Unicode."""
    return _to_text(
        name,
        lambda text: f"The column name '{printable(text)}'",
        f"A column name is an object of type {type(name).__name__}: names are text.",
    )


def cell_text(value: Any, row: int, column: str) -> str | None:
    """Return a cell as text, None where it is missing.

    Raises:
        DataError: If the value is an object without a text of its own, or its text is not Unicode.
    """
    if value is None:
        return None
    kind: Any = type(value)
    place = f"Row {row + 1} of {shorten_repr(column)}"
    no_text = f"{place} holds an object of type {kind.__name__}: {CELLS}."
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        raise DataError(no_text)
    return _to_text(value, lambda text: place, no_text)


def _to_text(value: Any, subject: Callable[[str], str], no_text: str) -> str:
    """Return an object as text. Raises DataError with `no_text` if its own `__str__` fails, and about the `subject` of
    its text if UTF-8 cannot hold that."""
    try:
        text = str(value)
    except Exception as error:
        raise DataError(no_text) from error
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{subject(text)} cannot be read: {not_unicode(error)}.") from None
    return text


def not_unicode(error: UnicodeEncodeError) -> str:
    """Return the reason why UTF-8 cannot encode a text."""
    return f"U+{ord(error.object[error.start]):04X} is half of a surrogate pair, which is no character"


def _parquet(data: bytes, path: Path, form: Form) -> Table:
    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        # A damaged file can make polars panic.
        raise DataError(
            f"{path} is not a whole Parquet file: {str(error).splitlines()[0]}.",
            fix="It may have been cut short or changed: take it from its source again.",
        ) from error
    if frame.is_empty():
        raise DataError(f"{path} holds no rows.")
    return frame_table(frame, path.name, form)


SIGNATURES = (  # how files begin that are saved or renamed as tables, in lower case
    (b"%pdf-", "a PDF"),
    (b"<!doctype html", "a web page"),
    (b"<html", "a web page"),
    (b"pk\x03\x04", "a .zip or .xlsx file"),
    (b"\x1f\x8b", "a .gz file"),
    (b"sqlite format 3\0", "an SQLite database"),
    (b"\x89png\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
)


def _text(data: bytes, path: Path, form: Form) -> tuple[str, list[str]]:
    """Return the file as text, and a note if it is not UTF-8.

    It may be UTF-16 with a byte order mark, or in the requested encoding. No other encoding is guessed, because a wrong
    guess changes letters.
    """
    way_out = (
        "Say its encoding, such as encoding=windows-1252, which spreadsheets in Western Europe and America write; or "
        "save it as UTF-8: a spreadsheet calls that 'CSV UTF-8'."
    )
    encoding = form.encoding
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) and encoding in (AUTO, "utf-8"):
        encoding = "utf-16"
    if encoding not in (AUTO, "utf-8") and not (not form.asked and _is_utf8(data)):
        try:
            return data.decode(encoding).removeprefix("\ufeff"), [f"{path.name} is read as {encoding} text."]
        except (LookupError, ValueError) as error:
            raise DataError(f"{path} is not {encoding} text: {error}.", fix="Give another encoding=.") from error
    kind = next((kind for sign, kind in SIGNATURES if data[:100].lstrip().lower().startswith(sign)), None)
    if kind is not None and not form.is_of_text:
        raise DataError(
            f"{path} is no table: it begins as {kind} does.",
            fix="Was the right file downloaded or saved? Save the table as CSV in UTF-8.",
        )
    nul = data.find(b"\0")
    if nul >= 0:
        raise DataError(
            f"{path} is not text: byte {nul:,} (line {data.count(10, 0, nul) + 1}) is zero.",
            fix="Is it a spreadsheet or an archive under another name, or was it damaged? Save it as CSV in UTF-8.",
        )
    try:
        return data.decode("utf-8").removeprefix("\ufeff"), []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path} is not UTF-8: byte {error.start:,} (line {line}) is 0x{data[error.start]:02X}, {error.reason}.",
            fix=way_out,
        ) from error


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _delimited(text: str, path: Path, form: Form, notes: list[str]) -> Table:
    """Read the rows of CSV or TSV text. Raises DataError as `read_table`."""
    found = read_delimited(text, path, form)
    frame, form, said, problems = _plain(found.frame, found.separator, form)
    if form.header is None and lacks_header(found.named, frame, form.missing):
        raise DataError(
            f"{path} has no header: its first line, {shorten_repr(', '.join(found.named))}, is a row like those"
            " below it.",
            fix=(
                "header=false names the columns column_1, column_2, … in their order; header=true uses that line as "
                "their names."
            ),
        )
    taken = replace(form, separator=found.separator.replace("\t", "tab"), quoting=found.quoting)
    return Table(path.name, frame, found.lines, (*notes, *found.notes, *said), taken, unit_problems=problems)
