"""Reading pairs of sequences: a file with a tab on each line, or two files of as many lines.

Nothing is quoted there: a quotation mark is a character like any other. What is no pair is rejected with its line.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import DataError, Problem
from ...core.files import exists, read_bytes

FIX = "Each line is one pair: source, a tab, target. Quotes are characters, and no line is a header."


@dataclass(frozen=True)
class Pairs:
    """Sources and their targets as a person wrote them: pair i stands on line i + 1."""

    name: str  # pairs.tsv; a.txt and b.txt
    sources: list[str]
    targets: list[str]
    fingerprint: str = ""  # sha256 of what was read

    def __len__(self) -> int:
        return len(self.sources)

    def place(self, i: int) -> str:
        """What a person calls pair i."""
        return f"line {i + 1} of {self.name}"


def read_pairs(source: str) -> Pairs:
    """The pairs in a file with a tab on each line, or, of `a,b`, in two files line by line; .gz is unpacked.

    Raises FileError where a file cannot be read, DataError that names every line that is no pair.
    """
    paths = _paths(source)
    if len(paths) == 1:
        return _tabbed(paths[0])
    (source_lines, source_sum), (target_lines, target_sum) = map(read_lines, paths)
    first, second = paths
    if len(source_lines) != len(target_lines):
        raise DataError(
            f"{first} has {len(source_lines):,} lines and {second} has {len(target_lines):,}: they do not pair.",
            fix="Line i of the second file is the target of line i of the first: was one of them cut short?",
        )
    problems = _empty([(first.name, source_lines), (second.name, target_lines)])
    if problems:
        raise DataError(f"{first} and {second} have lines that are empty:", problems, "Fill them, or leave both out.")
    sums = hashlib.sha256(f"{source_sum}\n{target_sum}\n".encode()).hexdigest()
    return Pairs(f"{first.name} and {second.name}", source_lines, target_lines, sums)


def read_lines(path: Path) -> tuple[list[str], str]:
    """The lines of a UTF-8 text file, unpacked where it ends in .gz, and the sha256 of its bytes.

    Only a line feed ends a line, with or without a carriage return before it, so that files that belong together have
    their lines in common whatever other separators stand in them. Raises FileError or DataError.
    """
    data = read_bytes(path)
    try:
        text = gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} is no whole .gz file ({error}).", fix="Was it cut short? Take it from its source again."
        ) from error
    try:
        lines = text.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: the byte 0x{text[error.start]:02x} is not UTF-8.", fix="Save the file as UTF-8."
        ) from error
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise DataError(f"{path} is empty: it has no line.", fix="Take it from its source again.")
    return [line.removesuffix("\r") for line in lines], hashlib.sha256(data).hexdigest()


def _paths(source: str) -> list[Path]:
    """The file, or the two files where a comma parts them. Raises DataError where one is not there."""
    whole = Path(source).expanduser()
    if whole.is_dir():
        raise DataError(f"{whole} is a folder, and pairs stand in a file.", fix="Give pairs.tsv, or two files a,b.")
    if exists(whole) or "," not in source:
        paths = [whole]
    else:
        commas = [i for i, sign in enumerate(source) if sign == ","]
        splits = [[Path(p.strip()).expanduser() for p in (source[:i], source[i + 1 :])] for i in commas]
        paths = next((split for split in splits if all(p.is_file() for p in split)), splits[0])
    for path in paths:
        if not path.is_file():
            raise DataError(
                f"There is no file {str(path)!r}, seen from {Path.cwd()}.",
                fix="Pairs are one file with a tab on each line, or two files a,b.",
            )
    return paths


def _tabbed(path: Path) -> Pairs:
    lines, digest = read_lines(path)
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
        raise DataError(f"{path} has lines that are no pair:", problems, FIX)
    return Pairs(path.name, sources, targets, digest)


def _empty(files: Sequence[tuple[str, list[str]]]) -> list[Problem]:
    return [
        Problem(f"{name}, line {number}", "it is empty")
        for name, lines in files
        for number, line in enumerate(lines, 1)
        if not line.strip()
    ]
