"""Readers of text files: one text per file, columns of tables, two line-aligned files, and tagged text.

Text is UTF-8; files that are not, and empty texts, are reported. Tagged text has a token and its tag on each line and a
blank line between sentences (CoNLL), or is a file of sentences and a file of their tags.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ...core.errors import DataError, Problem
from ...core.files import read_bytes
from ..splits import Rows
from ..tables.delimited import Form
from ..tables.table_files import Table, format_count, read_table
from ..tables.targets import format_problems

BOM = "\ufeff"
CONVERT = (
    "Save it as UTF-8: `iconv -f WINDOWS-1252 -t UTF-8 old.txt > new.txt` converts older Windows files, and "
    "`iconv -f UTF-16` converts UTF-16."
)
UTF8 = f"{CONVERT} In training on several files missing=drop leaves it out."
TEXT, LABEL = "text", "class"  # column names for two line-aligned files


@dataclass(frozen=True)
class Texts:
    """Texts and their display names."""

    texts: list[str]
    names: list[str]
    digests: list[str]  # sha256 of each file


def decode_utf8(data: bytes, at: int = 0, lines: int = 0) -> str:
    """Decode UTF-8, with or without a byte order mark. Raises ValueError, with an explanation, if it is invalid.

    For a part of a file, `at` is its first byte, and `lines` are the line ends before it.
    """
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


def read_lines(path: Path, *, nonempty: bool = False) -> tuple[list[str], str]:
    """Return the lines of a UTF-8 text file, decompressed if its name ends in .gz, and the sha256 of its bytes.

    A line ends at a line feed, with or without a carriage return before it; in a file without line feeds, at a carriage
    return. All other separators belong to their lines, so that line-aligned files stay aligned. Raises FileError, or
    DataError if it is not UTF-8 text, or, with `nonempty`, if it has no line.
    """
    data = read_bytes(path)
    try:
        text = decode_utf8(gzip.decompress(data) if path.suffix.lower() == ".gz" else data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} is no whole .gz file ({error}).", fix="Was it cut short? Take it from its source again."
        ) from error
    except ValueError as error:
        raise DataError("A file that cannot be read:", [Problem(str(path), str(error))], CONVERT) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")] if "\n" in text else text.split("\r")
    if lines[-1] == "":
        lines.pop()
    if nonempty and not lines:
        raise DataError(f"{path} is empty: it has no line.", fix="Take it from its source again.")
    return lines, hashlib.sha256(data).hexdigest()


def read_files(files: Sequence[Path], names: Sequence[str], missing: str = "error") -> tuple[Texts, list[Problem]]:
    """Return the text of each file, and the problems of files that are blank.

    Raises DataError that names every file that is not UTF-8 text; with `missing` drop these are among the problems.
    """
    texts: list[str] = []
    digests: list[str] = []
    unreadable: list[Problem] = []
    empty: list[Problem] = []
    for file, name in zip(files, names):
        data = read_bytes(file)
        digests.append(hashlib.sha256(data).hexdigest())
        try:
            text = decode_utf8(data)
        except ValueError as error:
            unreadable.append(Problem(name, str(error)))
            texts.append("")
            continue
        texts.append(text)
        if not text.strip():
            empty.append(Problem(name, "it holds no text" if data else "it is empty: it has 0 bytes"))
    if unreadable and missing != "drop":
        raise DataError(f"{format_count(len(unreadable), 'file')} of {len(files):,} cannot be read:", unreadable, UTF8)
    return Texts(texts, list(names), digests), [*unreadable, *empty]


def read_text_table(path: Path, form: Form = Form()) -> Table:  # noqa: B008  # it is frozen
    """Read a table whose cells are text.

    Raises as `read_table`, and DataError if quotes in a .tsv file enclose several rows.
    """
    table = read_table(path, form)
    if path.suffix.lower() != ".tsv":
        return table
    problems = []
    for column in table.columns:
        cells = table.frame[column]
        # A quote that is text opens a cell, which then extends to the next such quote, rows below.
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
    """Return the lines of a file of texts and of a file of their labels, and the sha256 of both.

    Raises DataError with both counts if the numbers of lines differ.
    """
    first, digest = read_lines(texts)
    second, other = read_lines(labels)
    if len(first) != len(second):
        fewer, more = (labels, texts) if len(second) < len(first) else (texts, labels)
        raise DataError(
            f"{texts} has {format_count(len(first), 'line')} and {labels} {format_count(len(second), 'line')}: "
            f"line {min(len(first), len(second)) + 1} of {more.name} has none beside it.",
            fix=f"Each line of one belongs to that line of the other: was {fewer.name} cut short, "
            "or is a line missing further up?",
        )
    if not first:
        raise DataError(f"{texts} and {labels} are empty.")
    return first, second, hashlib.sha256(f"{digest} {other}".encode()).hexdigest()


def pair_table(texts: Path, lines: Sequence[str], labels: Sequence[str]) -> Table:
    """Return two line-aligned files as a table with the columns text and class."""
    frame = pl.DataFrame({TEXT: list(lines), LABEL: list(labels)}, schema={TEXT: pl.String, LABEL: pl.String})
    return Table(texts.name, frame, np.arange(1, len(lines) + 1))


def drop_empty_texts(rows: Rows, empty: dict[int, Problem], missing: str, noun: str) -> tuple[Rows, list[str]]:
    """Return the examples that have text, and a note on those left out.

    Raises DataError that names the others, unless `missing` is drop.
    """
    without = [i for i in rows.tolist() if i in empty]
    if not without:
        return rows, []
    found = [empty[i] for i in without]
    if missing != "drop":
        raise DataError(
            f"{format_count(len(found), noun)} of {len(rows):,} hold no text:",
            found,
            f"Fill them in, or leave those {noun}s out with missing=drop.",
        )
    return np.setdiff1d(rows, without), [
        f"missing=drop left out {format_count(len(found), noun)} without text: {format_problems(found)}."
    ]


def digest_lines(lines: Iterable[str]) -> str:
    """Return the sha256 of the sorted lines."""
    return hashlib.sha256("".join(sorted(f"{line}\n" for line in lines)).encode(errors="surrogateescape")).hexdigest()


TAGGED = (".conll", ".iob")
DOCUMENT = "-DOCSTART-"  # the first token of a line that starts a document and is not part of a sentence
WAY_OUT = "A line holds a token first and its tag last, with tabs or blanks between; a blank line ends a sentence."

Line = tuple[int, list[str]]  # line number and columns


@dataclass(frozen=True)
class Tagged:
    """Sentences as tokens, with a tag for each token, or None without tags."""

    sentences: list[list[str]]
    tags: list[list[str]] | None
    names: list[str]  # display name of each sentence
    notes: tuple[str, ...] = ()


def read_tagged(path: Path, needs_tags: bool = True) -> tuple[Tagged, str]:
    """Return the sentences of a file and its sha256. Tags are its last column.

    Lines that begin with # before a sentence are comments, unless their last column is a tag of other lines. Without
    `needs_tags` a file of only tokens is accepted. Raises FileError, or DataError that names every line without a tag
    or with a different number of columns.
    """
    text, digest = read_lines(path)
    columns = [line.rstrip().split("\t") if "\t" in line.rstrip() else line.split() for line in text]
    lines: list[Line] = [(n, [c.strip() for c in found]) for n, found in enumerate(columns, 1)]
    known = {found[-1] for _, found in lines if len(found) > 1 and not found[0].startswith("#")}
    sentences: list[list[Line]] = [[]]
    comments = documents = 0
    for number, found in lines:
        if not any(found):
            sentences.append([])
        elif found[0] == DOCUMENT:
            documents += 1
            sentences.append([])
        elif found[0].startswith("#") and not sentences[-1] and (len(found) == 1 or found[-1] not in known):
            comments += 1
        else:
            sentences[-1].append((number, found))
    sentences = [sentence for sentence in sentences if sentence]
    if not sentences:
        raise DataError(f"{path} holds no sentences.", fix=WAY_OUT)
    width = _validate_width(path, sentences, needs_tags)
    notes = []
    if comments:
        notes.append(
            f"{format_count(comments, 'line')} of {path.name} that begin with # are comments and are passed over."
        )
    if documents:
        notes.append(f"{format_count(documents, 'line')} of {path.name} with {DOCUMENT} are passed over.")
    tagged = Tagged(
        [[found[0] for _, found in sentence] for sentence in sentences],
        [[found[-1] for _, found in sentence] for sentence in sentences] if width > 1 else None,
        [f"line {sentence[0][0]} of {path.name}" for sentence in sentences],
        tuple(notes),
    )
    return tagged, digest


def tagged_lines(path: Path, labels: Path, lines: Sequence[str], beside: Sequence[str]) -> Tagged | None:
    """Return sentences and their tags from two line-aligned files; None if the labels are one per line.

    They are tags if most lines of several words have an equal number of tags. Raises DataError that names each line
    with a different number.
    """
    words, tags = [line.split() for line in lines], [line.split() for line in beside]
    several = [len(tags[i]) == len(found) for i, found in enumerate(words) if len(found) > 1]
    if 2 * sum(several) <= len(several):
        return None
    problems = [
        Problem(f"{path.name}, line {i}", f"{format_count(len(found), 'word')} and {format_count(len(of_it), 'tag')}")
        for i, (found, of_it) in enumerate(zip(words, tags), 1)
        if len(found) != len(of_it)
    ]
    if problems:
        raise DataError(
            f"{format_count(len(problems), 'line')} of {path} and {labels} do not go together:",
            problems,
            "Each word between blanks needs a tag on the same line of the other file.",
        )
    kept = [i for i, found in enumerate(words) if found]
    blank = len(words) - len(kept)
    notes = (f"{format_count(blank, 'blank line')} of {path.name} hold no sentence.",) if blank else ()
    return Tagged(
        [words[i] for i in kept], [tags[i] for i in kept], [f"line {i + 1} of {path.name}" for i in kept], notes
    )


def _validate_width(path: Path, sentences: Sequence[Sequence[Line]], needs_tags: bool) -> int:
    """Return the number of columns of every line. Raises DataError that names the lines with a different number."""
    widths = Counter(len(found) for sentence in sentences for _, found in sentence)
    width = max(widths, key=lambda w: (widths[w], w))
    if width == 1 and (needs_tags or len(widths) > 1):
        width = min((w for w in widths if w > 1), default=2)
    problems = []
    for number, found in (line for sentence in sentences for line in sentence):
        where = f"{path.name}, line {number}"
        if len(found) == 1 < width:
            problems.append(Problem(where, f"{found[0]!r} has no tag"))
        elif len(found) != width:
            problems.append(Problem(where, f"{len(found)} columns, {width} in most lines"))
        elif not found[0] or not found[-1]:
            problems.append(Problem(where, "its token or its tag is empty"))
    if problems:
        raise DataError(f"{format_count(len(problems), 'line')} of {path} cannot be read:", problems, WAY_OUT)
    if width > 2 and all(f[0] == str(i) for s in sentences for i, (_, f) in enumerate(s, 1)):
        raise DataError(
            f"The first column of {path} numbers the tokens, as CoNLL-U has it, and does not hold them.",
            fix="Write the tokens first and the tags last: `cut -f 2,4 old.conllu > new.conll` takes words and UPOS.",
        )
    return width
