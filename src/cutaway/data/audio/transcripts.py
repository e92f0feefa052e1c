"""Recordings and what is said in each: a folder with transcripts.tsv, or one laid out as LJ Speech is.

    calls/transcripts.tsv        01.wav<tab>please call back        beside 01.wav, or parts/01.wav below
    calls/train/transcripts.tsv  where there are val/ or test/ beside it, each with its own
    LJSpeech-1.1/metadata.csv    LJ001-0001|Printing, in 1450|Printing, in fourteen fifty        and wavs/LJ001-0001.wav

A first line of transcripts.tsv that reads `file<tab>transcript` is its header. metadata.csv has none; of its two
transcripts in a line the last counts, in which numbers are written out. In a transcript the same letter is one
character however it is written (Unicode's NFC), and blanks between words are one.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...errors import DataError, Problem, brief
from ..folders import AUDIO, SPLIT_FOLDERS, entries, same_name, subfolders
from ..splits import Rows
from ..text.reading import read_lines

TABLE, HEADER = "transcripts.tsv", ("file", "transcript")
METADATA, WAVS = "metadata.csv", "wavs"  # of LJ Speech
MOST_CHARACTERS = 2048  # of a transcript, as of a caption: one of an hour would be held for every other, padded to it
AS_IT_IS = f"{TABLE} has a line for each recording: its file, a tab, what is said in it."


@dataclass
class Transcripts:
    """The recordings that have a transcript, none opened, and everything that has not both."""

    files: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # what a person calls each: its file, seen from the folder
    texts: list[str] = field(default_factory=list)
    splits: dict[str, Rows] | None = None  # the recordings of each split, where they come with one
    problems: list[Problem] = field(default_factory=list)

    def without(self, bad: Sequence[int] | Rows) -> Transcripts:
        """Those that are left without some."""
        left = np.setdiff1d(np.arange(len(self.files)), bad)
        splits = self.splits and {name: np.flatnonzero(np.isin(left, rows)) for name, rows in self.splits.items()}
        files, names, texts = ([of[i] for i in left] for of in (self.files, self.names, self.texts))
        return Transcripts(files, names, texts, splits)


def is_transcribed(path: Path) -> bool:
    """Whether a folder, or one of its folders for splits, says what is said in its recordings."""
    return any(_table(home) is not None for home in _homes(path).values())


def read_transcripts(path: Path, lower: bool = False) -> Transcripts:
    """What the folder says of its recordings. Raises DataError where it says nothing of any, or a table is no text."""
    homes = _homes(path)
    whole = Transcripts()
    splits: dict[str, Rows] = {}
    for split, home in homes.items():
        start = len(whole.files)
        _read_table(home, path, lower, whole)
        splits[split] = np.arange(start, len(whole.files))
    if not whole.files and not whole.problems:
        raise DataError(f"{path} holds no recording with a transcript.", fix=AS_IT_IS)
    if "" not in splits:
        if "train" not in splits:
            raise DataError(
                f"{path} has transcripts for {', '.join(splits)} and none in train/.",
                fix=f"Add train/{TABLE}; or put one {TABLE} into the folder itself, to be split here.",
            )
        whole.splits = splits
    return whole


def normalised(text: str, lower: bool) -> str:
    """A transcript as it is learned: letters in one form, one blank between words, none around."""
    text = " ".join(unicodedata.normalize("NFC", text).split())
    return text.lower() if lower else text


def digest_of(look: str, text: str) -> str:
    """sha256 of a recording, by its own sum, and its transcript."""
    return hashlib.sha256(f"{look}\n{text}".encode(errors="surrogatepass")).hexdigest()


def ids_of(texts: Sequence[str], alphabet: Sequence[str], padding: int) -> tuple[list[list[int]], dict[int, str]]:
    """The tokens of each text, padded to the longest, and the first character of a text that the alphabet has not, by
    the number of the text."""
    number = {character: k + 1 for k, character in enumerate(alphabet)}
    longest = max(map(len, texts), default=0)
    strange = {i: c for i, text in enumerate(texts) if (c := next((c for c in text if c not in number), None))}
    return [[*(number.get(c, padding) for c in t), *[padding] * (longest - len(t))] for t in texts], strange


def outside(name: str, character: str) -> Problem:
    """What is wrong with a transcript that has a character which no training transcript has."""
    return Problem(
        name, f"its transcript has {brief(character)} (U+{ord(character):04X}), which no training transcript has"
    )


def too_long(name: str, text: str, most: int = MOST_CHARACTERS) -> Problem | None:
    """What is wrong with a transcript of more than `most` characters; None where it is none."""
    if len(text) <= most:
        return None
    return Problem(name, f"its transcript has {len(text):,} characters, at most {most:,} are read")


def _homes(path: Path) -> dict[str, Path]:
    """The folders that hold a table: those of the splits, where there are such, else the folder itself."""
    if _table(path) is not None:
        return {"": path}
    found: dict[str, Path] = {}
    for folder in subfolders(path):
        split = SPLIT_FOLDERS.get(folder.name.lower())
        if split is None or _table(folder) is None:
            continue
        if split in found:
            raise DataError(f"{found[split]} and {folder} are both for {split}.", fix="Leave one of them there.")
        found[split] = folder
    return found


def _table(home: Path) -> Path | None:
    if (home / TABLE).is_file():
        return home / TABLE
    return home / METADATA if (home / METADATA).is_file() and (home / WAVS).is_dir() else None


def _read_table(home: Path, path: Path, lower: bool, into: Transcripts) -> None:
    """Add the recordings of one table, and what is wrong with it, as they are seen from `path`."""
    table = _table(home)
    assert table is not None, "a home has a table"
    title = str(table.relative_to(path))
    folder = home if table.name == TABLE else home / WAVS
    audio = {same_name(str(file.relative_to(folder))): file for file in _recordings(folder)}
    waiting = dict(audio)
    for number, line in enumerate(read_lines(table)[0], 1):
        cells = line.split("\t" if table.name == TABLE else "|")
        if not line.strip() or (number == 1 and table.name == TABLE and _is_header(cells)):
            continue
        where = f"{title}, line {number}"
        if len(cells) not in ((2,) if table.name == TABLE else (2, 3)):
            wanted = "a file and a transcript, with one tab between" if table.name == TABLE else "id|transcript"
            into.problems.append(Problem(where, f"it has {len(cells)} cells, not {wanted}"))
            continue
        name = same_name(str(Path(cells[0].strip())) if table.name == TABLE else f"{cells[0].strip()}.wav")
        name = name if name in audio else name.replace("\\", "/")  # as Windows writes a path
        text = normalised(cells[-1], lower)
        file = waiting.pop(name, None)
        if file is None:
            again = "has a transcript already" if name in audio else f"is no recording in {folder}"
            into.problems.append(Problem(where, f"{name} {again}"))
        elif not text:
            into.problems.append(Problem(where, f"the transcript of {name} is empty"))
        else:
            into.files.append(file)
            into.names.append(str(file.relative_to(path)))
            into.texts.append(text)
    into.problems += [Problem(str(f.relative_to(path)), f"{title} has no transcript of it") for f in waiting.values()]


def _is_header(cells: Sequence[str]) -> bool:
    return tuple(cell.strip().lower() for cell in cells) == HEADER


def _recordings(folder: Path) -> list[Path]:
    """The recordings in a folder and in those below it; hidden ones are left out."""
    inside = [p for p in entries(folder) if not p.name.startswith(".")]
    below = [file for p in subfolders(folder) for file in _recordings(p)]
    return [p for p in inside if AUDIO.fits(p) and p.is_file()] + below
