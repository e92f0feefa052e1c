"""Readers of tables: CSV, TSV and Parquet files, and rows in memory.

A table from any source is read as text, each cell as written; `infer_type` infers the types of the cells. A file that
does not have the format of its name is rejected with the line, never repaired.

Parquet files are one table that can be read by row groups, located by the files' footers. The footer is a struct in
Thrift's compact protocol (Apache Parquet, parquet.thrift; Thrift, doc/specs/thrift-compact-protocol.md). Only the
number of rows in each row group and the uncompressed size of each of its columns are read from it. polars reads the
rows; it does not report row groups. pyarrow does, in 170 MB.
"""

from __future__ import annotations

import codecs
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import (
    ColumnError,
    DataError,
    IncompatibleSettingError,
    NotEnoughDataError,
    Problem,
    UnsupportedDataError,
    printable,
    shorten_repr,
)
from ...core.files import MEBIBYTE, empty_file_error, error_reason, is_blank, open_regular, read_bytes
from ..folders import list_entries
from .column_types import strip_missing
from .delimited import AUTO, KEPT, OF_TEXT, Form, lacks_header, plain_numerals, read_delimited, strip_units

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
        return self.text(column) if known is None else strip_missing(known, self.form.missing)

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
    if is_blank(data):
        raise empty_file_error(path, len(data))
    if path.suffix.lower() == ".parquet":
        if form.is_of_text:
            raise IncompatibleSettingError(f"{', '.join(OF_TEXT)} are for CSV, and {path} is Parquet.")
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
    """Apply `_normalize_numbers` to the text columns of a data frame given as text."""
    written = [column for column, dtype in schema.items() if dtype == pl.String]
    plain, taken, said, problems = _normalize_numbers(text.select(written), ",", form)
    return text.with_columns(plain), taken if said else replace(taken, decimal=form.decimal), said, problems


def _normalize_numbers(
    frame: pl.DataFrame, separator: str, form: Form
) -> tuple[pl.DataFrame, Form, list[str], Mapping[str, str]]:
    """Remove units and thousands separators from columns of text, and write decimals with a point.

    Returns the columns, the format with the inferred decimal sign and units, notes, and the columns that mix units."""
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
            raise ColumnError(
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
            raise ColumnError(
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
    return f"U+{ord(error.object[error.start]):04X} is half of a surrogate pair, which is not a character"


def _parquet(data: bytes, path: Path, form: Form) -> Table:
    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        # A damaged file can make polars panic.
        raise DataError(
            f"{path} is not a whole Parquet file: {str(error).splitlines()[0]}.",
            fix="It may be truncated or damaged: copy or download it again.",
        ) from error
    if frame.is_empty():
        raise NotEnoughDataError(f"{path} holds no rows.")
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
        raise UnsupportedDataError(
            f"{path} is not a table: it begins as {kind} does.",
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
    frame, form, said, problems = _normalize_numbers(found.frame, found.separator, form)
    if form.header is None and lacks_header(found.named, frame, form.missing):
        raise ColumnError(
            f"{path} has no header: its first line, {shorten_repr(', '.join(found.named))}, is a row like those"
            " below it.",
            fix=(
                "header=false names the columns column_1, column_2, … in their order; header=true uses that line as "
                "their names."
            ),
        )
    taken = replace(form, separator=found.separator.replace("\t", "tab"), quoting=found.quoting)
    return Table(path.name, frame, found.lines, (*notes, *found.notes, *said), taken, unit_problems=problems)


PARQUET = ".parquet"
MAGIC = b"PAR1"
# Numbers that survive a conversion to text and back exactly, so that the conversion can be skipped.
EXACT = (pl.Float64, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
MOST_VALUES_OF_CLASSES = 20  # a numeric target with more distinct values is a quantity
# A row group is divided into blocks, so that many of them are shuffled together. polars reads whole pages for each: a
# row of an eighth of a row group costs about four times as much, which is still a small part of a step.
PARTS, LEAST_ROWS, MOST_ROWS = 8, 1 << 14, 1 << 18
# A table in memory is text: polars stores 16 bytes per cell, plus the text if it is long.
CELL_BYTES = 16
TEXT_BYTES: dict[type[pl.DataType], int] = {  # the longest text of a cell of these types
    pl.Boolean: 5, pl.Int8: 4, pl.Int16: 6, pl.Int32: 11, pl.Int64: 20, pl.UInt8: 3, pl.UInt16: 5, pl.UInt32: 10,
    pl.UInt64: 20, pl.Float32: 16, pl.Float64: 24, pl.Date: 12, pl.Time: 18, pl.Duration: 24, pl.Datetime: 36,
}  # fmt: skip
SAMPLED_BLOCKS, SAMPLED_ROWS = 8, 1024  # sample for measuring text: a dictionary stores a repeated text once
FIX = "It may be truncated or damaged: copy or download it again."


@dataclass(frozen=True)
class RowGroups:
    """The concatenated rows of Parquet files, in blocks: a row group each, or a part of one."""

    path: Path  # the file, or the folder of files
    files: tuple[Path, ...]
    first: npt.NDArray[np.int64]  # (B + 1,) the number of the first row of each block, and of all rows
    file: npt.NDArray[np.int64]  # (B,) the file of each block
    offset: npt.NDArray[np.int64]  # (B,) its first row in that file
    schema: dict[str, pl.DataType]
    fingerprint: str  # sha256 of sizes and footers, which locate each column of each row group
    uncompressed: Mapping[str, int]  # bytes of each column, encoded as in the file
    form: Form = KEPT  # defines the words for missing cells

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.file)

    def are_larger_than(self, memory: int) -> bool:
        """Return whether all cells take more than about `memory` MiB."""
        return self.bytes_in_memory > memory * MEBIBYTE

    @cached_property
    def bytes_in_memory(self) -> int:
        """An upper estimate of the bytes that the table takes in memory as text.

        Numbers and times have a longest text. Other columns take the larger of the size in the file's footer and the
        size of sampled rows: a dictionary stores a repeated value once, and memory stores it each time.
        """
        found = len(self) * len(self.schema) * CELL_BYTES
        found += len(self) * sum(TEXT_BYTES.get(dtype.base_type(), 0) for dtype in self.schema.values())
        free = [column for column, dtype in self.schema.items() if dtype.base_type() not in TEXT_BYTES]
        if free:
            sampled = self._mean_bytes(free)
            found += sum(max(self.uncompressed.get(c, 0), int(sampled[c] * len(self))) for c in free)
        return found

    def _mean_bytes(self, columns: Sequence[str]) -> dict[str, float]:
        """Return the mean bytes of a cell of each of these columns, in sampled rows of several blocks."""
        sizes, count = dict.fromkeys(columns, 0), 0
        for block in np.unique(np.linspace(0, self.blocks - 1, SAMPLED_BLOCKS).astype(int)).tolist():
            rows = min(SAMPLED_ROWS, int(self.first[block + 1] - self.first[block]))
            frame = self._read(block, int(self.offset[block]), rows, columns)
            count += rows
            for column in columns:
                cells = frame[column]
                plain = cells.cast(pl.String) if isinstance(cells.dtype, pl.Categorical | pl.Enum) else cells
                sizes[column] += int(plain.estimated_size())
        return {column: size / count for column, size in sizes.items()}

    def frame(self, block: int, columns: Sequence[str]) -> pl.DataFrame:
        """Return the rows of a block in the order of the file, in these columns. Raises DataError if that fails."""
        return self._read(block, int(self.offset[block]), int(self.first[block + 1] - self.first[block]), columns)

    def row(self, i: int) -> pl.DataFrame:
        """Return row i with all columns."""
        block = self.block_indices(np.array([i]))[0]
        return self._read(block, int(self.offset[block] + i - self.first[block]), 1, list(self.schema))

    def frames(self, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield all rows in order, some blocks of a file at a time, with the number of the first of them."""
        block = 0
        while block < self.blocks:
            start, after = int(self.first[block]), block + 1
            while after < self.blocks and self.file[after] == self.file[block]:
                if self.first[after + 1] - start > MOST_ROWS:
                    break
                after += 1
            yield start, self._read(block, int(self.offset[block]), int(self.first[after]) - start, columns)
            block = after

    def block_indices(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the block of each of these rows."""
        return np.searchsorted(self.first, rows, side="right") - 1

    def place(self, i: int) -> str:
        """Return the name of row i: row 18 of part-2.parquet."""
        block = self.block_indices(np.array([i]))[0]
        return f"row {self.offset[block] + i - self.first[block] + 1} of {self.files[self.file[block]].name}"

    def _read(self, block: int, offset: int, count: int, columns: Sequence[str]) -> pl.DataFrame:
        return read_rows(self.files[self.file[block]], offset, count, columns)


def read_rows(path: Path, offset: int, count: int, columns: Sequence[str] = ()) -> pl.DataFrame:
    """Return `count` rows of a Parquet file from row `offset` on, in these columns, or in all. Raises DataError if they
    cannot be read."""
    try:
        rows = pl.scan_parquet(path, glob=False)
        frame = (rows.select(columns) if columns else rows).slice(offset, count).collect(engine="streaming")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise _broken(path, str(error).splitlines()[0]) from error
    if frame.height != count:
        raise _broken(path, f"rows {offset + 1:,} to {offset + count:,} are promised, and {frame.height:,} there")
    return frame


class StreamedTable(Table):
    """Some columns of all rows, with row names that refer to their files."""

    groups: RowGroups

    @classmethod
    def of(cls, groups: RowGroups, columns: Sequence[str]) -> StreamedTable:
        """Read these columns as text."""
        parts = [text_frame(frame, groups.path.name) for _, frame in groups.frames(columns)]
        schema = {column: groups.schema[column] for column in columns}
        text, form, notes, problems = plain_columns(pl.concat(parts, rechunk=True), schema, groups.form)
        return cls._from_frame(replace(groups, form=form), text, notes, problems)

    @classmethod
    def compact(cls, groups: RowGroups, kinds: Mapping[str, str | None]) -> StreamedTable:
        """Return the cells of these columns in few bytes a row: text as categories, many numbers as such. `kinds` says
        whether a column holds numbers or categories, or None to infer it."""
        return cls._from_frame(groups, pl.DataFrame([_compact(groups, column, kind) for column, kind in kinds.items()]))

    @classmethod
    def _from_frame(
        cls,
        groups: RowGroups,
        frame: pl.DataFrame,
        notes: Sequence[str] = (),
        problems: Mapping[str, str] | None = None,
    ) -> StreamedTable:
        table = cls(groups.path.name, frame, notes=tuple(notes), form=groups.form, unit_problems=problems or {})
        object.__setattr__(table, "groups", groups)
        return table

    def place(self, i: int) -> str:
        """Return the name of row i."""
        return self.groups.place(i)

    def where(self, i: int, column: str) -> str:
        """Return the place of cell (i, column) in its file."""
        return f"{self.groups.place(i)}, column {column}"

    def row(self, i: int) -> dict[str, str]:
        """Return row i with all columns."""
        return Table("", text_frame(self.groups.row(i))).row(0)


def _compact(groups: RowGroups, column: str, kind: str | None) -> pl.Series:
    """Return a column in the form of `StreamedTable.compact`."""
    as_numbers, parts = groups.schema[column] in EXACT, []
    for _, frame in groups.frames([column]):
        text = frame if as_numbers else text_frame(frame, groups.path.name).cast(pl.Categorical)
        parts.append(text.to_series())
    whole = pl.concat(parts, rechunk=True)
    if as_numbers and kind != "category" and (kind == "number" or whole.n_unique() > MOST_VALUES_OF_CLASSES):
        return whole.cast(pl.Float64).fill_nan(None)
    values = whole.unique()
    meant = strip_missing(text_frame(values.to_frame()).to_series(), ("",))
    known = pl.Enum(meant.drop_nulls().unique().sort())
    return whole.replace_strict(values, meant.cast(known), return_dtype=known).alias(column)


def parquet_files(path: Path) -> list[Path]:
    """Return the Parquet files of a path: itself, or those in a folder, sorted by name."""
    if path.is_dir():
        return [p for p in list_entries(path) if p.suffix.lower() == PARQUET and not p.name.startswith(".")]
    return [path] if path.suffix.lower() == PARQUET else []


def read_table_or_folder(path: Path, form: Form) -> Table:
    """Read the table at a path, or in a folder of Parquet files, into memory. Raises as `read_table`."""
    if not path.is_dir():
        return read_table(path, form)
    reject_form(path, form)
    groups = replace(locate_row_groups(path), form=form)
    return StreamedTable.of(groups, list(groups.schema))


def reject_form(folder: Path, form: Form) -> None:
    """Raise SettingError if settings give the format of a folder of Parquet files."""
    if form.is_of_text:
        raise IncompatibleSettingError(f"{', '.join(OF_TEXT)} are for CSV, and {folder} holds Parquet.")


def locate_row_groups(path: Path, files: Sequence[Path] = ()) -> RowGroups:
    """Return the row groups of a Parquet file, or of all or these `files` of a folder, from their footers. Raises
    DataError if a file is damaged, or if files have different columns."""
    files = files or parquet_files(path)
    if not files:
        raise UnsupportedDataError(
            f"{path} is a folder without Parquet files ({PARQUET}), and no other tables are read from a folder.",
            fix="Give a table file: .csv, .tsv or .parquet.",
        )
    first, file, offset = [0], [], []
    digest = hashlib.sha256()
    schema: dict[str, pl.DataType] = {}
    uncompressed: Counter[str] = Counter()
    for number, one in enumerate(files):
        footer = _footer(one)
        digest.update(f"{one.stat().st_size} {len(footer)}\n".encode() + footer)
        own = _schema(one)
        if number and own != schema:
            raise _unlike(files[0], schema, one, own)
        schema, at = own, 0
        counts, sizes = _counts(footer, one)
        uncompressed.update(sizes)
        for rows in counts:
            parts = max(1, min(PARTS, rows // LEAST_ROWS), -(-rows // MOST_ROWS))
            for k in range(parts if rows else 0):
                count = rows * (k + 1) // parts - rows * k // parts
                file.append(number)
                offset.append(at)
                first.append(first[-1] + count)
                at += count
    if first[-1] == 0:
        raise NotEnoughDataError(f"{path} holds no rows.")
    starts, of_file, offsets = (np.array(values, np.int64) for values in (first, file, offset))
    return RowGroups(path, tuple(files), starts, of_file, offsets, schema, digest.hexdigest(), uncompressed)


def _schema(path: Path) -> dict[str, pl.DataType]:
    try:
        return dict(pl.read_parquet_schema(path))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise _broken(path, str(error).splitlines()[0]) from error


def _unlike(a: Path, first: dict[str, pl.DataType], b: Path, second: dict[str, pl.DataType]) -> DataError:
    """Return the error for files with different columns."""
    odd = sorted(first.keys() ^ second.keys())
    if odd:
        has, lacks = (a, b) if odd[0] in first else (b, a)
        what = f"{has.name} has a column {odd[0]!r}, and {lacks.name} has none"
    elif other := next((column for column in first if first[column] != second[column]), None):
        what = f"column {other!r} is {first[other]} in {a.name} and {second[other]} in {b.name}"
    else:
        what = f"the columns of {b.name} are in a different order from those of {a.name}"
    return ColumnError(f"The Parquet files of {a.parent} are not of one table: {what}.", fix="Write them alike.")


def _footer(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            if size < 12:
                raise _broken(path, f"it has {size} bytes")
            file.seek(-8, 2)
            end = file.read(8)
            length = int.from_bytes(end[:4], "little")
            if end[4:] != MAGIC or length + 12 > size:
                raise _broken(path, "it does not end as such a file does")
            file.seek(-8 - length, 2)
            return file.read(length)
    except OSError as error:
        if isinstance(error, DataError):
            raise
        raise _broken(path, error_reason(error)) from error


def _broken(path: Path, what: str) -> DataError:
    return DataError("A table cannot be read:", [Problem(str(path), f"it is not a whole Parquet file: {what}")], FIX)


# --- the footer ---------------------------------------------------------------------------------------------------

# Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
ROW_GROUPS = 4
COLUMNS, NUM_ROWS = 1, 3
META_DATA = 3
PATH_IN_SCHEMA, TOTAL_UNCOMPRESSED_SIZE = 3, 6
BOOLEANS, BYTE, INTEGERS, DOUBLE, BINARY, LISTS, MAP, STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12


def _counts(footer: bytes, path: Path) -> tuple[list[int], Counter[str]]:
    """Return the number of rows of each row group, and the total uncompressed bytes of each column."""
    thrift, found, sizes = _Thrift(footer), [], Counter[str]()
    try:
        for field, kind in thrift.fields():
            if field != ROW_GROUPS or kind not in LISTS:
                thrift.skip(kind)
                continue
            count, _ = thrift.list()
            for _ in range(count):
                for own, of in thrift.fields():
                    if own == NUM_ROWS:
                        found.append(thrift.integer())
                    elif own == COLUMNS and of in LISTS:
                        for _ in range(thrift.list()[0]):
                            _add_size(thrift, sizes)
                    else:
                        thrift.skip(of)
    except (IndexError, ValueError) as error:
        raise _broken(path, "its footer cannot be read") from error
    return found, sizes


def _add_size(thrift: _Thrift, sizes: Counter[str]) -> None:
    """Read a ColumnChunk, and add its uncompressed bytes to those of its column."""
    for key, kind in thrift.fields():
        if key != META_DATA or kind != STRUCT:
            thrift.skip(kind)
            continue
        column, size = "", 0
        for own, of in thrift.fields():
            if own == PATH_IN_SCHEMA and of in LISTS:
                names = [thrift.binary() for _ in range(thrift.list()[0])]
                column = names[0].decode("utf-8", "replace") if names else ""
            elif own == TOTAL_UNCOMPRESSED_SIZE and of in INTEGERS:
                size = max(0, thrift.integer())
            else:
                thrift.skip(of)
        sizes[column] += size


class _Thrift:
    """A sequential reader of the compact protocol."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        """Read an unsigned number of 7 bits per byte, lowest first."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def integer(self) -> int:
        """Read a signed number in zigzag encoding: 0, −1, 1, −2, … are 0, 1, 2, 3, …"""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and type of each field of a struct; its value must be read or skipped before the next."""
        number = 0
        while byte := self._byte():
            number = number + (byte >> 4) if byte >> 4 else self.integer()
            yield number, byte & 15

    def list(self) -> tuple[int, int]:
        """Return the number of values of a list, and their type."""
        byte = self._byte()
        return (self.varint() if byte >> 4 == 15 else byte >> 4), byte & 15

    def binary(self) -> bytes:
        """Read bytes with a length prefix."""
        size = self.varint()  # advances the position
        self.at += size
        return self.data[self.at - size : self.at]

    def skip(self, kind: int, inside: bool = False) -> None:
        """Skip a value; a boolean takes a byte only inside a list."""
        if kind in BOOLEANS:
            self.at += inside
        elif kind == BYTE:
            self.at += 1
        elif kind in INTEGERS:
            self.varint()
        elif kind == DOUBLE:
            self.at += 8
        elif kind == BINARY:
            self.binary()
        elif kind in LISTS:
            count, of = self.list()
            for _ in range(count):
                self.skip(of, inside=True)
        elif kind == MAP:
            count = self.varint()
            kinds = self._byte() if count else 0
            for _ in range(count):
                self.skip(kinds >> 4, inside=True)
                self.skip(kinds & 15, inside=True)
        elif kind == STRUCT:
            for _, of in self.fields():
                self.skip(of)
        else:
            raise ValueError(f"a value of type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]
