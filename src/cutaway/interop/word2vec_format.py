"""Word vectors in the two formats of word2vec.c, which most programs read: text (.txt, .vec) and binary (.bin).

Both begin with a line of two numbers, the words and the width of their vectors. Then each word is followed by a blank
and its vector: in text as decimal numbers to the end of the line, in binary as 32-bit floats, the lowest byte first,
with or without a line end after them. Words are UTF-8 and hold no blanks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import FileError
from ..files import read_bytes, replacing

BINARY, TEXT = (".bin",), (".txt", ".vec")
BLANKS = " \t\n\r\v\f"
Matrix = npt.NDArray[np.float32]


def write_vectors(path: str | os.PathLike[str], words: Sequence[str], matrix: Matrix) -> None:
    """Write a vector, a row of `matrix` (n, d), for each word, in the format that the suffix says.

    Text has as many digits as give the same floats back. Raises FileError where a word is empty or holds a blank, or
    where the file cannot be written.
    """
    path = Path(path)
    binary = _is_binary(path)
    for i, word in enumerate(words):
        if not word or any(c in BLANKS for c in word):
            raise FileError(
                f"{path} was not written: word {i + 1}, {word!r}, is empty or holds a blank, which ends a word in this "
                "format. Leave such words out."
            )
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(f"{len(words)} {matrix.shape[1]}\n".encode())
        for word, row in zip(words, matrix.astype("<f4", copy=False)):
            if binary:
                file.write(word.encode() + b" " + row.tobytes() + b"\n")
            else:
                file.write(f"{word} {' '.join(map(str, row.astype(object)))}\n".encode())


def read_vectors(path: str | os.PathLike[str]) -> tuple[list[str], Matrix]:
    """The words of a file and their vectors, (n, d) float32.

    Raises FileError, with the word or the line, where the file is not whole or holds what is no vector.
    """
    path = Path(path)
    binary = _is_binary(path)
    data = read_bytes(path)
    end = data.find(b"\n")
    fields = data[: max(end, 0)].split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise FileError(
            f"{path} does not begin with a line of two numbers, the words and the width of their vectors. Vectors of "
            "other programs, such as GloVe's, lack it: write it before the first word."
        )
    count, width = (int(field) for field in fields)
    if not count or not width:
        raise FileError(f"{path} says that it holds {count} words with vectors of {width} numbers: that is none.")
    words, matrix = (_binary if binary else _text)(path, data, end + 1, count, width)
    _reject_unfit(path, words, matrix, "word" if binary else "line")
    return words, matrix


def _is_binary(path: Path) -> bool:
    """What the suffix says. Raises FileError where it says nothing."""
    suffix = path.suffix.lower()
    if suffix not in (*BINARY, *TEXT):
        raise FileError(
            f"{path} ends in {suffix or 'no suffix'}, no format of word vectors: {', '.join(TEXT)} are text and "
            f"{', '.join(BINARY)} is binary."
        )
    return suffix in BINARY


def _text(path: Path, data: bytes, start: int, count: int, width: int) -> tuple[list[str], Matrix]:
    """The lines after the first."""
    lines = data[start:].split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) != count:
        cut = (
            "It may have been cut short: take it from a copy." if len(lines) < count else "Was it put together by hand?"
        )
        raise FileError(f"{path} says that it holds {count:,} words, and has {len(lines):,} lines of them. {cut}")
    words: list[str] = []
    matrix = np.empty((count, width), np.float32)
    for i, line in enumerate(lines):
        first, *numbers = line.rstrip().split(b" ") or [b""]
        words.append(_decoded(path, first, f"line {i + 2}"))
        if len(numbers) != width:
            raise FileError(
                f"{path}, line {i + 2}: {words[-1]!r} has {len(numbers):,} numbers, and the first line says {width:,}. "
                "The line may have been cut short, or the word hold a blank."
            )
        try:
            matrix[i] = [float(number) for number in numbers]
        except ValueError as error:
            raise FileError(f"{path}, line {i + 2}: the vector of {words[-1]!r} is none ({error}).") from error
    return words, matrix


def _binary(path: Path, data: bytes, start: int, count: int, width: int) -> tuple[list[str], Matrix]:
    """The words after the first line."""
    words: list[str] = []
    matrix = np.empty((count, width), np.float32)
    size = 4 * width
    for i in range(count):
        while data[start : start + 1] == b"\n":  # word2vec.c ends each vector with one, and gensim does not
            start += 1
        end = data.find(b" ", start)
        if end < 0 or end + 1 + size > len(data):
            raise FileError(
                f"{path} says that it holds {count:,} words with vectors of {width:,} numbers, and ends in word "
                f"{i + 1:,}. It may have been cut short, or be text: take it from a copy."
            )
        words.append(_decoded(path, data[start:end], f"word {i + 1:,}"))
        matrix[i] = np.frombuffer(data, "<f4", width, end + 1)
        start = end + 1 + size
    if data[start:].strip(b"\n"):
        raise FileError(
            f"{path} says that it holds {count:,} words, and {len(data) - start:,} bytes stand after the last: the "
            "number of words or the width in its first line is wrong."
        )
    return words, matrix


def _decoded(path: Path, word: bytes, where: str) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError as error:
        raise FileError(
            f"{path}, {where}: the word {word[:40]!r} is not UTF-8. Convert the file, or write it again in UTF-8."
        ) from error


def _reject_unfit(path: Path, words: Sequence[str], matrix: Matrix, noun: str) -> None:
    """Raise FileError where a number is not finite, a word is empty, or one stands there twice."""
    first = 2 if noun == "line" else 1  # the first line has no word
    broken = np.flatnonzero(~np.isfinite(matrix).all(1))
    if len(broken):
        i = int(broken[0])
        raise FileError(
            f"{path}, {noun} {i + first:,}: the vector of {words[i]!r} has a number that is not finite, as have "
            f"{len(broken):,} in all. Leave those words out."
        )
    seen: dict[str, int] = {}
    for i, word in enumerate(words):
        if not word:
            raise FileError(f"{path}, {noun} {i + first:,}: there is a vector without a word.")
        if seen.setdefault(word, i) != i:
            raise FileError(
                f"{path}, {noun} {i + first:,}: the word {word!r} stood in {noun} {seen[word] + first:,} already. "
                "Leave one of them there."
            )
