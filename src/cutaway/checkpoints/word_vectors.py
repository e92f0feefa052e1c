"""Word vectors: neighbours, analogies, and the file formats of word2vec.c, text (.txt, .vec) and binary (.bin).

Both formats begin with a line of two numbers: the number of words and the width of their vectors. Each word is followed
by a space and its vector: in text as decimal numbers to the end of the line, in binary as little-endian 32-bit floats,
optionally followed by a newline. Words are UTF-8 without whitespace.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ..core.errors import FileError, ModelError, NotEnoughDataError, UnknownName, WriteError
from ..core.files import as_path, atomic_write, read_bytes

SPECIAL = 2  # first ids of every vocabulary that are not words: padding, unknown


@dataclass(frozen=True, eq=False)
class Vectors:
    """Word vectors with cosine similarity."""

    words: Sequence[str]  # the n words; the most frequent first, if they come from a text
    matrix: Matrix  # the vector of each word, float32, shape (n, d)
    source: str = "these vectors"  # where they come from, for messages

    @classmethod
    def from_embedding(cls, embedding: nn.Embedding, tokens: Sequence[str]) -> Vectors:
        """Return the word vectors of a model.

        Args:
            embedding: Embedding of the model, with weights (V, d).
            tokens: Vocabulary by id. The first two tokens, padding and unknown, are left out.

        Returns:
            The vectors.
        """
        return cls(list(tokens[SPECIAL:]), embedding.weight.detach().float().cpu().numpy()[SPECIAL : len(tokens)])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vectors:
        """Load vectors from a word2vec file, text or binary.

        Args:
            path: File to read.

        Returns:
            The vectors.

        Raises:
            FileError: If the file is missing or incomplete, or has another suffix than .txt, .vec or .bin.
        """
        path = as_path(path, "path must be the path of a file")
        return cls(*read_vectors(path), source=os.fspath(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save vectors to a word2vec file: .txt and .vec are text, .bin is binary.

        Args:
            path: File to write. An existing file is replaced.

        Raises:
            FileError: If the file cannot be written, has another suffix, or if a word is empty or contains whitespace.
        """
        write_vectors(path, self.words, self.matrix)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.places

    def __getitem__(self, word: str) -> Matrix:
        """Return the vector of a word, shape (d,). Raises UnknownName with similar words if it is unknown."""
        vector: Matrix = self.matrix[self._place(word)]
        return vector

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """Return the row of `matrix` for each word."""
        return {word: i for i, word in enumerate(self.words)}

    @functools.cached_property
    def unit(self) -> Matrix:
        """Return the vectors scaled to unit length, shape (n, d). A zero vector is unchanged."""
        lengths = np.sqrt(np.einsum("nd,nd->n", self.matrix, self.matrix))[:, None]
        return np.divide(self.matrix, np.where(lengths > 0, lengths, 1), dtype=np.float32)

    def similarity(self, a: str, b: str) -> float:
        """Return the cosine similarity of two words, in [−1, 1].

        Args:
            a: A word.
            b: Another word.

        Returns:
            The cosine of the angle between their vectors.

        Raises:
            UnknownName: If a word is unknown.
        """
        return float(self.unit[self._place(a)] @ self.unit[self._place(b)])

    def neighbours(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """Return the most similar words, without the word itself.

        Args:
            word: A word.
            count: Largest number of neighbours.

        Returns:
            Words and cosine similarities, the most similar first.

        Raises:
            UnknownName: If the word is unknown.
        """
        place = self._place(word)
        return self._most_like(self.unit[place], [place], count)

    def rows(self, words: Iterable[Any]) -> list[dict[str, Any]]:
        """Return one table row for each word, with its most similar words.

        Args:
            words: Words to look up.

        Returns:
            Rows with `input`, the word, and `nearest`, its ten neighbours and their similarities as text.

        Raises:
            UnknownName: If a word is unknown.
        """
        said = ((str(word), self.neighbours(str(word))) for word in words)
        return [{"input": word, "nearest": ", ".join(f"{w} {likeness:.2f}" for w, likeness in n)} for word, n in said]

    def analogy(self, a: str, b: str, c: str, count: int = 1) -> list[tuple[str, float]]:
        """Return the words most similar to b − a + c of unit vectors: the word that relates to c as b to a.

        After T. Mikolov, W. Yih, G. Zweig, Linguistic regularities in continuous space word representations, 2013.

        Args:
            a: First word of the known pair.
            b: Second word of the known pair.
            c: First word of the unknown pair.
            count: Largest number of words to return.

        Returns:
            Words and cosine similarities, the most similar first, without the three given words.

        Raises:
            UnknownName: If a word is unknown.
        """
        places = [self._place(word) for word in (a, b, c)]
        first, second, third = self.unit[places]
        return self._most_like(second - first + third, places, count)

    def _most_like(self, vector: Matrix, without: list[int], count: int) -> list[tuple[str, float]]:
        length = float(np.linalg.norm(vector))
        cosines = self.unit @ vector / (length or 1.0)
        cosines[without] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(count, len(self) - len(set(without)))]
        return [(self.words[i], float(cosines[i])) for i in best]

    def _place(self, word: str) -> int:
        if word not in self.places:
            raise UnknownName(f"word in {self.source} named", word, self.places)
        return self.places[word]


@torch.no_grad()
def load_into_embedding(
    embedding: nn.Embedding, tokens: Sequence[str], vectors: Vectors, generator: torch.Generator | None = None
) -> str:
    """Load vectors into an embedding and return a sentence with the counts.

    Known words get their vectors. All others, including unknown, are uniform in ±a, with the variance of the known
    ones. Padding is zero. After Y. Kim, Convolutional neural networks for sentence classification, 2014,
    <https://arxiv.org/abs/1408.5882>. Raises ModelError if the widths differ, DataError if no word is known.
    """
    width = vectors.matrix.shape[1]
    if embedding.embedding_dim != width:
        raise ModelError(
            f"The vectors of {vectors.source} have {width} numbers, and this model's have {embedding.embedding_dim}: "
            "build the model with that width, or take other vectors."
        )
    ids = [i for i, token in enumerate(tokens) if i >= SPECIAL and token in vectors]
    if not ids:
        raise NotEnoughDataError(
            f"None of the {len(tokens) - SPECIAL:,} words of this data is in {vectors.source}.",
            fix="Are they of another language, or in another case? lower=true writes text in lower case.",
        )
    taken = torch.from_numpy(vectors.matrix[[vectors.places[tokens[i]] for i in ids]])
    bound = math.sqrt(3 * taken.double().var(correction=0).item())  # the variance of a uniform in ±a is a²/3
    weight = embedding.weight
    drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float32) * (2 * bound) - bound
    drawn[0] = 0
    drawn[ids] = taken
    weight.copy_(drawn)
    others = len(tokens) - SPECIAL - len(ids)
    return (
        f"{len(ids):,} of the {len(tokens) - SPECIAL:,} words have their vectors from {vectors.source}; the other "
        f"{others:,} begin at random in ±{bound:.3g}, which gives both the same variance."
    )


BINARY, TEXT = (".bin",), (".txt", ".vec")
BLANKS = " \t\n\r\v\f"
Matrix = npt.NDArray[np.float32]


def write_vectors(path: str | os.PathLike[str], words: Sequence[str], matrix: Matrix) -> None:
    """Write a vector, a row of `matrix` (n, d), for each word, in the format of the file's suffix.

    Text has enough digits to restore the same floats. Raises FileError if a word is empty or contains whitespace, or if
    the file cannot be written.
    """
    path = Path(path)
    binary = _is_binary(path)
    for i, word in enumerate(words):
        if not word or any(c in BLANKS for c in word):
            raise WriteError(
                f"{path} was not written: word {i + 1}, {word!r}, is empty or holds a blank, which ends a word in this "
                "format. Leave such words out."
            )
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(f"{len(words)} {matrix.shape[1]}\n".encode())
        for word, row in zip(words, matrix.astype("<f4", copy=False)):
            if binary:
                file.write(word.encode() + b" " + row.tobytes() + b"\n")
            else:
                file.write(f"{word} {' '.join(map(str, row.astype(object)))}\n".encode())


def read_vectors(path: str | os.PathLike[str]) -> tuple[list[str], Matrix]:
    """Read the words of a file and their vectors, shape (n, d), float32.

    Raises FileError, with the word or the line, if the file is incomplete or a vector is invalid.
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
        raise FileError(
            f"Invalid first line of {path}: {count} words with vectors of {width} numbers; both must be at least 1."
        )
    words, matrix = (_parse_binary if binary else _parse_text)(path, data, end + 1, count, width)
    _reject_unfit(path, words, matrix, "word" if binary else "line")
    return words, matrix


def _is_binary(path: Path) -> bool:
    """Return whether the suffix is that of the binary format. Raises FileError for an unknown suffix."""
    suffix = path.suffix.lower()
    if suffix not in (*BINARY, *TEXT):
        raise FileError(
            f"{path} ends in {suffix or 'no suffix'}, no format of word vectors: {', '.join(TEXT)} are text and "
            f"{', '.join(BINARY)} is binary."
        )
    return suffix in BINARY


def _parse_text(path: Path, data: bytes, start: int, count: int, width: int) -> tuple[list[str], Matrix]:
    """Parse the lines after the first."""
    lines = data[start:].split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) != count:
        cut = (
            "It may have been cut short: restore it from a copy."
            if len(lines) < count
            else "Was it put together by hand?"
        )
        raise FileError(f"The first line of {path} announces {count:,} words, and {len(lines):,} lines follow. {cut}")
    words: list[str] = []
    matrix = np.empty((count, width), np.float32)
    for i, line in enumerate(lines):
        first, *numbers = line.rstrip().split(b" ") or [b""]
        words.append(_decode(path, first, f"line {i + 2}"))
        if len(numbers) != width:
            raise FileError(
                f"{path}, line {i + 2}: {words[-1]!r} has {len(numbers):,} numbers, and the first line says {width:,}. "
                "The line may have been cut short, or the word hold a blank."
            )
        try:
            matrix[i] = [float(number) for number in numbers]
        except ValueError as error:
            raise FileError(f"{path}, line {i + 2}: the vector of {words[-1]!r} is invalid ({error}).") from error
    return words, matrix


def _parse_binary(path: Path, data: bytes, start: int, count: int, width: int) -> tuple[list[str], Matrix]:
    """Parse the words after the first line."""
    words: list[str] = []
    matrix = np.empty((count, width), np.float32)
    size = 4 * width
    for i in range(count):
        while data[start : start + 1] == b"\n":  # word2vec.c writes a newline after each vector, and gensim does not
            start += 1
        end = data.find(b" ", start)
        if end < 0 or end + 1 + size > len(data):
            raise FileError(
                f"The first line of {path} announces {count:,} words with vectors of {width:,} numbers, and the file "
                "ends in word "
                f"{i + 1:,}. It may have been cut short, or be text: restore it from a copy."
            )
        words.append(_decode(path, data[start:end], f"word {i + 1:,}"))
        matrix[i] = np.frombuffer(data, "<f4", width, end + 1)
        start = end + 1 + size
    if data[start:].strip(b"\n"):
        raise FileError(
            f"The first line of {path} announces {count:,} words, and {len(data) - start:,} bytes follow the last: the "
            "number of words or the width in its first line is wrong."
        )
    return words, matrix


def _decode(path: Path, word: bytes, where: str) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError as error:
        raise FileError(
            f"{path}, {where}: the word {word[:40]!r} is not UTF-8. Convert the file, or write it again in UTF-8."
        ) from error


def _reject_unfit(path: Path, words: Sequence[str], matrix: Matrix, noun: str) -> None:
    """Raise FileError if a value is not finite, or a word is empty or repeated."""
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
                f"{path}, {noun} {i + first:,}: the word {word!r} is also in {noun} {seen[word] + first:,}. "
                "Remove one of them."
            )
