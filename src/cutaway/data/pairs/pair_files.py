"""Readers of pairs of sequences: a file with a tab on each line, or two files with the same number of lines.

There is no quoting: a quotation mark is an ordinary character. Invalid lines are reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import DataError, Problem
from ...core.files import exists
from ..text.text_files import read_lines

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
        raise DataError(
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
        raise DataError(
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
            raise DataError(
                f"There is no file {str(path)!r}, seen from {Path.cwd()}.",
                fix="Pairs are one file with a tab on each line, or two files a,b.",
            )
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
        raise DataError(f"{path} has lines that are no pair:", problems, FIX)
    return Pairs(path.name, sources, targets, digest)


def _empty(files: Sequence[tuple[str, list[str]]]) -> list[Problem]:
    return [
        Problem(f"{name}, line {number}", "it is empty")
        for name, lines in files
        for number, line in enumerate(lines, 1)
        if not line.strip()
    ]
