"""Files of running text: found in folders, read as UTF-8, joined, and split by documents."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import DataError, Problem
from ...core.files import read_bytes
from ..build import DataSource
from ..findings import leave_out, reject_fill
from ..folders import SPLIT_FOLDERS, TEXTS, list_entries, unread_note
from ..settings import DataSettings
from ..splits import SPLITS, remaining_fractions
from ..tables.column_types import natural_order
from ..tables.table_files import format_count
from .text_files import TEXT, UTF8, decode_utf8
from .transforms import parse_text_source, preview

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
            raise DataError(f"{splits[split][0]} and {inside[0]} are both for {split}.", fix="Leave one of them there.")
        splits[split] = _natural(inside)
    if not splits:
        if not files:
            raise DataError(f"{path} is a folder without .txt files.")
        return {"train": _natural(files)}
    if "train" not in splits:
        raise DataError(
            f"{path} has text for {' and '.join(splits)} and none for train.",
            fix="Add train.txt; or give the text under other names, to be split here.",
        )
    loose = [p.name for p in files if p.stem.lower() not in SPLIT_FOLDERS]
    if loose:
        raise DataError(
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
        raise DataError(f"missing=drop would leave nothing of the {empty[0]} split:", problems, UTF8)
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
    try:
        text = decode_utf8(data)
    except ValueError as error:
        raise DataError("A file that cannot be read:", [Problem(str(path), str(error))], UTF8) from error
    if not text:
        what = f"it is empty ({len(data)} bytes)"
        raise DataError("A file that cannot be read:", [Problem(str(path), what)], "Was it saved or copied to the end?")
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
        raise DataError(f"A text cannot be read from a {type(source).__name__}.", fix="Give a text, or its path.")
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
