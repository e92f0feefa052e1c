"""Readers of text: a text per file, columns of tables, line-aligned files, tagged and running text, and pairs.

Text is UTF-8; files that are not, and empty texts, are reported. Tagged text has a token and its tag on each line and a
blank line between sentences (CoNLL), or is a file of sentences and a file of their tags. Running text is found in
folders, joined, and split by documents. Pairs of sequences are a file with a tab on each line, or two files with the
same number of lines. There is no quoting: a quotation mark is an ordinary character. Invalid lines are reported.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ...core.errors import (
    DataError,
    FolderLayoutError,
    NotEnoughDataError,
    Problem,
    UnsupportedDataError,
)
from ...core.files import empty_file_error, exists, is_blank, missing_file_error, read_bytes
from ..build import DataSource
from ..findings import leave_out, reject_fill
from ..folders import SPLIT_FOLDERS, TEXTS, list_entries, unread_note
from ..settings import DataSettings
from ..splits import SPLITS, Rows, remaining_fractions
from ..tables.column_roles import format_problems
from ..tables.column_types import natural_order
from ..tables.delimited import Form
from ..tables.table_files import TABLE_SUFFIXES, Table, format_count, read_table

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
        raise DataError(f"{path} is not a complete .gz file ({error}).", fix="Copy or download it again.") from error
    except ValueError as error:
        raise DataError("A file that cannot be read:", [Problem(str(path), str(error))], CONVERT) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")] if "\n" in text else text.split("\r")
    if lines[-1] == "":
        lines.pop()
    if nonempty and not lines:
        raise empty_file_error(path, len(data))
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
        raise FolderLayoutError(
            f"{texts} has {format_count(len(first), 'line')} and {labels} {format_count(len(second), 'line')}: "
            f"line {min(len(first), len(second)) + 1} of {more.name} has none beside it.",
            fix=f"Each line of one belongs to that line of the other: was {fewer.name} cut short, "
            "or is a line missing further up?",
        )
    if not first:
        raise empty_file_error(texts)
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
        raise FolderLayoutError(
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


SHOWN = 60  # characters of a text in its display name


def parse_text_source(source: str | Path) -> str:
    """Return a source that is not a path as text. Raises DataError if it was meant as a path."""
    text = str(source)
    meant = isinstance(source, Path) or (
        not any(letter.isspace() for letter in text)
        and text.lower().endswith((*TEXTS.suffixes, *TABLE_SUFFIXES, *TAGGED))
    )
    if meant:
        raise missing_file_error(source, "file")
    return text


def preview(text: str) -> str:
    """Return a display name for a text: its beginning, on one line."""
    line = " ".join(text.split()) or "(no text)"
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True)
class TextFile:
    """A text and its display name."""

    name: str
    text: str
    sha256: str = ""  # of the file's bytes
    notes: tuple[str, ...] = ()


def find_texts(path: Path) -> dict[str, list[Path]]:
    """Return the .txt files of each split in natural order; a file, or a folder without splits, is all for train.

    Raises DataError if a folder has no text, defines splits for only some of its files, or has none for training.
    """
    if not path.is_dir():
        return {"train": [path]}
    own = [p for p in list_entries(path) if not p.name.startswith(".")]
    files = [p for p in own if TEXTS.fits(p) and p.is_file()]
    splits: dict[str, list[Path]] = {}
    for entry in own:
        split = SPLIT_FOLDERS.get(entry.stem.lower())
        inside = (
            [p for p in list_entries(entry) if TEXTS.fits(p)] if entry.is_dir() else [entry] if entry in files else []
        )
        if split is None or not inside:
            continue
        if split in splits:
            raise FolderLayoutError(
                f"{splits[split][0]} and {inside[0]} are both for {split}.", fix="Remove one of them."
            )
        splits[split] = _natural(inside)
    if not splits:
        if not files:
            raise UnsupportedDataError(f"{path} is a folder without text files (.txt).")
        return {"train": _natural(files)}
    if "train" not in splits:
        raise FolderLayoutError(
            f"{path} has text for {' and '.join(splits)} and none for train.",
            fix="Add train.txt; or give the text under other names, to be split here.",
        )
    loose = [p.name for p in files if p.stem.lower() not in SPLIT_FOLDERS]
    if loose:
        raise FolderLayoutError(
            f"{path} has text for {', '.join(splits)}, and files that are for none: {', '.join(loose[:5])}.",
            fix="Put them into a folder train/, or take them out.",
        )
    return {split: splits[split] for split in SPLITS if split in splits}


def read_texts(
    path: Path, settings: DataSettings
) -> tuple[dict[str, list[Path]], dict[str, list[TextFile]], DataSource, DataSettings]:
    """Read a .txt or a folder of them; return the files and texts of each split, the origin, and the remaining
    settings.

    Raises DataError that names every file that is not text, or empty; in a folder missing=drop leaves those out.
    """
    reject_fill(settings)
    found = find_texts(path)
    files: dict[str, list[Path]] = {split: [] for split in found}
    read: dict[str, list[TextFile]] = {split: [] for split in found}
    problems: list[Problem] = []
    for split, of_split in found.items():
        for file in of_split:
            try:
                read[split].append(read_text(file))
                files[split].append(file)
            except DataError as error:
                if not path.is_dir():
                    raise
                problems += error.problems
    dropped = leave_out(problems, sum(map(len, found.values())), "texts", settings.missing, UTF8)
    if empty := [split for split, of_split in files.items() if not of_split]:
        raise NotEnoughDataError(f"missing=drop would leave nothing of the {empty[0]} split:", problems, UTF8)
    lines = [
        f"{r.sha256}  {file.relative_to(path) if path.is_dir() else file.name}\n"
        for split in files
        for file, r in zip(files[split], read[split])
    ]
    name = path.resolve().name if path.is_dir() else path.stem
    notes = [note for of_split in read.values() for r in of_split for note in r.notes]
    if path.is_dir():
        notes += dropped
        used = {place for of_split in found.values() for file in of_split for place in (file, file.parent)}
        left = unread_note([p for p in list_entries(path) if p not in used], "no texts (.txt)")
        notes += [left] if left else []
    digest = hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()  # a file name may not be UTF-8
    origin = DataSource(name, str(path), digest, notes)
    return files, read, origin, replace(settings, missing="error") if path.is_dir() else settings


def read_text(path: Path) -> TextFile:
    r"""Read a file in UTF-8, with line ends as \\n and without a byte order mark; notes report such changes.

    Raises DataError, with the byte and the line, if it is not text, or empty; FileError if it cannot be read.
    """
    data = read_bytes(path)
    if is_blank(data) and not data.decode("utf-8", "ignore").strip("\ufeff"):
        raise empty_file_error(path, len(data))
    try:
        text = decode_utf8(data)
    except ValueError as error:
        raise DataError("A file that cannot be read:", [Problem(str(path), str(error))], UTF8) from error
    notes = []
    if data.startswith(codecs.BOM_UTF8):
        notes.append(f"{path.name} begins with a byte order mark, which is left out.")
    if ends := text.count("\r"):
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        notes.append(f"{ends:,} line ends of {path.name} are written with a carriage return, and are read without.")
    return TextFile(str(path), text, hashlib.sha256(data).hexdigest(), tuple(notes))


def load_texts(source: Any) -> list[TextFile]:
    """Return the texts of a source: of a file, of a folder's files, or the source itself; {"text": …} is always a text.

    Raises DataError or FileError if they cannot be read.
    """
    if isinstance(source, Mapping) and TEXT in source:
        text = str(source[TEXT])
        return [TextFile(preview(text), text)]
    if not isinstance(source, str | Path):
        raise UnsupportedDataError(
            f"A text cannot be read from a {type(source).__name__}.", fix="Give a text, or its path."
        )
    if not os.path.exists(os.path.expanduser(source)):  # Path.exists raises for a text that is too long for a name
        text = parse_text_source(source)
        return [TextFile(preview(text), text)]
    path = Path(source).expanduser()
    return [read_text(file) for of_split in find_texts(path).values() for file in of_split]


def split_at_blank_lines(read: TextFile) -> list[TextFile]:
    """Split a text at blank lines into documents."""
    pieces = [piece.strip("\n") + "\n" for piece in BLANK_LINE.split(read.text) if piece.strip()]
    return [TextFile(f"document {i}", piece) for i, piece in enumerate(pieces, 1)]


def join_texts(texts: Sequence[str]) -> str:
    """Concatenate texts, each of which ends with a line end."""
    *most, last = texts
    return "".join(text if text.endswith("\n") else f"{text}\n" for text in most) + last


def _natural(files: Sequence[Path]) -> list[Path]:
    """Sort files naturally: 2.txt before 10.txt."""
    by_name = {file.name: file for file in files}
    return [by_name[name] for name in natural_order(by_name)]


Documents = dict[str, list[TextFile]]


def to_documents(read: Mapping[str, Sequence[TextFile]]) -> tuple[Documents, str]:
    """Return the documents of each split, and a sentence that defines them.

    They are the files, if a split has several; otherwise each file is split at blank lines.
    """
    by_file = any(len(of_split) > 1 for of_split in read.values())
    found = {
        split: list(of_split) if by_file else split_at_blank_lines(of_split[0]) for split, of_split in read.items()
    }
    what = "each file is one" if by_file else "the text between blank lines is one"
    count = sum(map(len, found.values()))
    return found, f"No step reaches from one document into another; {what} ({count:,} in all)."


def split_documents(documents: Mapping[str, Sequence[TextFile]], settings: DataSettings) -> tuple[Documents, list[str]]:
    """Return the documents of each split, without dividing any, and a note.

    Missing splits are taken from the end of the train split, with their fractions of its characters as closely as whole
    documents allow. Raises SettingError or DataError if a split would be empty.
    """
    val, test = remaining_fractions(settings, documents)
    whole = documents["train"]
    fractions = {"train": 1 - val - test, "val": val, "test": test}
    cut = [split for split in SPLITS if fractions[split]]
    if len(whole) < len(cut):
        raise DataError(
            f"documents=true leaves each document whole, and there {'is' if len(whole) == 1 else 'are'} "
            f"{format_count(len(whole), 'document')} for the splits {', '.join(cut)}.",
            fix="Give more files, or more blank lines between the documents of one; or val=0 test=0.",
        )
    ends = np.cumsum([len(read.text) for read in whole])
    places = [0]
    for k, split in enumerate(cut):
        wanted = ends[-1] * sum(fractions[p] for p in cut[: k + 1])
        place = int(np.abs(ends - wanted).argmin()) + 1
        left = len(cut) - k - 1  # splits that still need a document
        places.append(len(whole) if split == cut[-1] else min(max(place, places[-1] + 1), len(whole) - left))
    splits = {split: list(whole[begin:end]) for split, (begin, end) in zip(cut, pairwise(places))}
    splits |= {split: list(read) for split, read in documents.items() if split != "train"}
    if len(cut) == 1:
        return splits, []
    said = ", ".join(f"{split} {len(splits[split]):,}" for split in cut)
    return splits, [f"The documents are split by position, those of the training split first ({said})."]


FIX = "Each line is one pair: source, a tab, target. Quotes are characters, and no line is a header."


@dataclass(frozen=True)
class Pairs:
    """Sources and their targets as written; pair i is on line i + 1."""

    name: str  # pairs.tsv; a.txt and b.txt
    sources: list[str]
    targets: list[str]
    fingerprint: str = ""  # sha256 of what was read

    def __len__(self) -> int:
        return len(self.sources)

    def place(self, i: int) -> str:
        """Return the location of pair i for messages."""
        return f"line {i + 1} of {self.name}"


def read_pairs(source: str) -> Pairs:
    """Read the pairs of a file with a tab on each line, or, for `a,b`, of two line-aligned files; .gz is decompressed.

    Raises FileError if a file cannot be read, and DataError that names every invalid line.
    """
    paths = _paths(source)
    if len(paths) == 1:
        return _tabbed(paths[0])
    (source_lines, source_sum), (target_lines, target_sum) = (read_lines(path, nonempty=True) for path in paths)
    first, second = paths
    if len(source_lines) != len(target_lines):
        raise FolderLayoutError(
            f"{first} has {len(source_lines):,} lines and {second} has {len(target_lines):,}: they do not pair.",
            fix="Line i of the second file is the target of line i of the first: was one of them cut short?",
        )
    problems = _empty([(first.name, source_lines), (second.name, target_lines)])
    if problems:
        raise DataError(f"{first} and {second} have lines that are empty:", problems, "Fill them, or leave both out.")
    sums = hashlib.sha256(f"{source_sum}\n{target_sum}\n".encode()).hexdigest()
    return Pairs(f"{first.name} and {second.name}", source_lines, target_lines, sums)


def _paths(source: str) -> list[Path]:
    """Return the file, or the two files separated by a comma. Raises DataError if one does not exist."""
    whole = Path(source).expanduser()
    if whole.is_dir():
        raise UnsupportedDataError(
            f"{whole} is a folder, and pairs are read from a file.", fix="Give pairs.tsv, or two files a,b."
        )
    if exists(whole) or "," not in source:
        paths = [whole]
    else:
        commas = [i for i, sign in enumerate(source) if sign == ","]
        splits = [[Path(p.strip()).expanduser() for p in (source[:i], source[i + 1 :])] for i in commas]
        paths = next((split for split in splits if all(p.is_file() for p in split)), splits[0])
    for path in paths:
        if not path.is_file():
            raise missing_file_error(path, "file", "Pairs are one file with a tab on each line, or two files a,b.")
    return paths


def _tabbed(path: Path) -> Pairs:
    lines, digest = read_lines(path, nonempty=True)
    problems: list[Problem] = []
    sources, targets = [], []
    for number, line in enumerate(lines, 1):
        sides = line.split("\t")
        if len(sides) != 2:
            what = f"it has {len(sides) - 1} tabs" if line else "it is empty"
            problems.append(Problem(f"{path.name}, line {number}", what))
            continue
        for side, text in zip(("source", "target"), sides):
            if not text.strip():
                problems.append(Problem(f"{path.name}, line {number}", f"its {side} is empty"))
        sources.append(sides[0])
        targets.append(sides[1])
    if problems:
        raise DataError(f"{path} has lines that are not a pair:", problems, FIX)
    return Pairs(path.name, sources, targets, digest)


def _empty(files: Sequence[tuple[str, list[str]]]) -> list[Problem]:
    return [
        Problem(f"{name}, line {number}", "it is empty")
        for name, lines in files
        for number, line in enumerate(lines, 1)
        if not line.strip()
    ]
