"""Reading texts: files of one text each, columns of tables, two files line by line.

Text is UTF-8; a file that is not, or a text that is empty, is named and never guessed at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ...errors import DataError, Problem
from ...files import read_bytes
from ..splits import Rows
from ..tables.forms import Form
from ..tables.reading import Table, counted, read_table
from ..tables.targets import named

BOM = "\ufeff"
UTF8 = (
    "Save it as UTF-8: `iconv -f WINDOWS-1252 -t UTF-8 old.txt > new.txt` converts what Windows wrote before, and "
    "`iconv -f UTF-16` what is UTF-16. In training on several files missing=drop leaves it out."
)
TEXT, LABEL = "text", "class"  # the columns of two files line by line


@dataclass(frozen=True)
class Texts:
    """Texts and what a person calls each."""

    texts: list[str]
    names: list[str]
    digests: list[str]  # sha256 of each file


def decoded(data: bytes, at: int = 0, lines: int = 0) -> str:
    """UTF-8 as text, with or without its mark. Raises ValueError, in words, where it is none. Of a part of a file `at`
    is the byte where it begins, and `lines` are the line ends before that."""
    if not at and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError("it is UTF-16 text, not UTF-8")
    if (nul := data.find(b"\0")) >= 0:
        raise ValueError(f"it is not text: byte {at + nul:,} (line {lines + data.count(10, 0, nul) + 1}) is zero")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = lines + data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"it is not UTF-8: byte {at + error.start:,} (line {line}) is 0x{data[error.start]:02X}, {error.reason}"
        ) from error
    return text if at else text.removeprefix(BOM)


def read_lines(path: Path) -> tuple[list[str], str]:
    """The lines of a text file, without their ends, and its sha256.

    Only line feeds, carriage returns or both end a line. Raises FileError, or DataError where it is no UTF-8 text.
    """
    data = read_bytes(path)
    try:
        text = decoded(data)
    except ValueError as error:
        raise DataError("A file that cannot be read:", [Problem(str(path), str(error))], UTF8) from error
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines, hashlib.sha256(data).hexdigest()


def read_files(files: Sequence[Path], names: Sequence[str], missing: str = "error") -> tuple[Texts, list[Problem]]:
    """The text of each file, and which of them hold nothing but blanks.

    Raises DataError that names every file that is no UTF-8 text; with `missing` drop these are among the others.
    """
    texts: list[str] = []
    digests: list[str] = []
    unreadable: list[Problem] = []
    empty: list[Problem] = []
    for file, name in zip(files, names):
        data = read_bytes(file)
        digests.append(hashlib.sha256(data).hexdigest())
        try:
            text = decoded(data)
        except ValueError as error:
            unreadable.append(Problem(name, str(error)))
            texts.append("")
            continue
        texts.append(text)
        if not text.strip():
            empty.append(Problem(name, "it holds no text" if data else "it is empty: it has 0 bytes"))
    if unreadable and missing != "drop":
        raise DataError(f"{counted(len(unreadable), 'file')} of {len(files):,} cannot be read:", unreadable, UTF8)
    return Texts(texts, list(names), digests), [*unreadable, *empty]


def read_text_table(path: Path, form: Form = Form()) -> Table:  # noqa: B008  # it is frozen
    """A table whose cells are to be read as text.

    Raises as `read_table`, and DataError where quotes of a .tsv file have swallowed the ends of rows.
    """
    table = read_table(path, form)
    if path.suffix.lower() != ".tsv":
        return table
    problems = []
    for column in table.columns:
        cells = table.frame[column]
        # A quote that belongs to the text opens a cell, which then goes on to the next such quote, rows below.
        swallowed = (cells.str.contains("\n", literal=True) & cells.str.contains("\t", literal=True)).fill_null(False)
        for i in np.flatnonzero(swallowed.to_numpy()).tolist():
            lines = 1 + (cells[i] or "").count("\n")
            problems.append(Problem(table.where(i, column), f"a quote opens a cell of {lines:,} lines with tabs in it"))
    if problems:
        raise DataError(
            f"{path} has quotes that hold several rows together:",
            problems,
            "Here a cell that begins with a quote ends with one. Where quotes are text, say quoting=none; where such a "
            "cell is meant, write its tabs as blanks, or save the table as CSV.",
        )
    return table


def read_pair(texts: Path, labels: Path) -> tuple[list[str], list[str], str]:
    """The lines of a file of texts and of a file of their labels, and sha256 of both.

    Raises DataError that names both counts where one has more lines than the other.
    """
    first, digest = read_lines(texts)
    second, other = read_lines(labels)
    if len(first) != len(second):
        fewer, more = (labels, texts) if len(second) < len(first) else (texts, labels)
        raise DataError(
            f"{texts} has {counted(len(first), 'line')} and {labels} {counted(len(second), 'line')}: "
            f"line {min(len(first), len(second)) + 1} of {more.name} has none beside it.",
            fix=f"Each line of one belongs to that line of the other: was {fewer.name} cut short, "
            "or is a line missing further up?",
        )
    if not first:
        raise DataError(f"{texts} and {labels} are empty.")
    return first, second, hashlib.sha256(f"{digest} {other}".encode()).hexdigest()


def pair_table(texts: Path, lines: Sequence[str], labels: Sequence[str]) -> Table:
    """Two files line by line as a table with the columns text and class."""
    frame = pl.DataFrame({TEXT: list(lines), LABEL: list(labels)}, schema={TEXT: pl.String, LABEL: pl.String})
    return Table(texts.name, frame, np.arange(1, len(lines) + 1))


def with_text(rows: Rows, empty: dict[int, Problem], missing: str, noun: str) -> tuple[Rows, list[str]]:
    """The examples that hold text, and a note on those left out.

    Raises DataError that names the others, unless `missing` is drop.
    """
    without = [i for i in rows.tolist() if i in empty]
    if not without:
        return rows, []
    found = [empty[i] for i in without]
    if missing != "drop":
        raise DataError(
            f"{counted(len(found), noun)} of {len(rows):,} hold no text:",
            found,
            f"Fill them in, or leave those {noun}s out with missing=drop.",
        )
    return np.setdiff1d(rows, without), [
        f"missing=drop left out {counted(len(found), noun)} without text: {named(found)}."
    ]


def digest_of(lines: Iterable[str]) -> str:
    """sha256 of lines, in the order of the alphabet."""
    return hashlib.sha256("".join(sorted(f"{line}\n" for line in lines)).encode(errors="surrogateescape")).hexdigest()
