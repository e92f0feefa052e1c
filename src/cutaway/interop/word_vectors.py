"""Word vectors in use: neighbours, analogies, files, and a start for other models."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ..errors import DataError, ModelError, UnknownName
from ..files import as_path
from .word2vec_format import Matrix, read_vectors, write_vectors

SPECIAL = 2  # ids of every vocabulary that stand for no word: padding, unknown


@dataclass(frozen=True, eq=False)
class Vectors:
    """A vector for each word. Likeness is the cosine of the angle between two."""

    words: Sequence[str]  # the commonest first, where they come from a text
    matrix: Matrix  # (n, d)
    source: str = "these vectors"  # the file, for what a person is told

    @classmethod
    def of(cls, embedding: nn.Embedding, tokens: Sequence[str]) -> Vectors:
        """Those of a model; `tokens` are its vocabulary by id, and padding and unknown are left out."""
        return cls(list(tokens[SPECIAL:]), embedding.weight.detach().float().cpu().numpy()[SPECIAL : len(tokens)])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vectors:
        """From a file of word2vec, text or binary. Raises FileError where it is not whole."""
        path = as_path(path, "Vectors are loaded from a file")
        return cls(*read_vectors(path), source=os.fspath(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """To a file of word2vec: .txt and .vec are text, .bin is binary. Raises FileError."""
        write_vectors(path, self.words, self.matrix)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.places

    def __getitem__(self, word: str) -> Matrix:
        """The vector of a word, (d,). Raises UnknownName with the nearest words where there is none."""
        vector: Matrix = self.matrix[self._place(word)]
        return vector

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """The row of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @functools.cached_property
    def unit(self) -> Matrix:
        """The vectors at length 1, (n, d); a vector of zeros stays one."""
        lengths = np.sqrt(np.einsum("nd,nd->n", self.matrix, self.matrix))[:, None]
        return np.divide(self.matrix, np.where(lengths > 0, lengths, 1), dtype=np.float32)

    def similarity(self, a: str, b: str) -> float:
        """The cosine of two words' vectors, in [−1, 1]."""
        return float(self.unit[self._place(a)] @ self.unit[self._place(b)])

    def neighbours(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words most like this one, without itself, and how like they are: the most like first."""
        place = self._place(word)
        return self._most_like(self.unit[place], [place], count)

    def rows(self, words: Iterable[Any]) -> list[dict[str, Any]]:
        """One row a word: the words most like it, and how like they are."""
        said = ((str(word), self.neighbours(str(word))) for word in words)
        return [{"input": word, "nearest": ", ".join(f"{w} {likeness:.2f}" for w, likeness in n)} for word, n in said]

    def analogy(self, a: str, b: str, c: str, count: int = 1) -> list[tuple[str, float]]:
        """What is to c as b is to a: the words most like b − a + c, of unit vectors, without these three.

        After T. Mikolov, W. Yih, G. Zweig, Linguistic regularities in continuous space word representations, 2013.
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
def take_vectors(
    embedding: nn.Embedding, tokens: Sequence[str], vectors: Vectors, generator: torch.Generator | None = None
) -> str:
    """Put vectors into an embedding of the vocabulary `tokens`, by id: known words have theirs, all others, unknown
    among them, are uniform in ±a, with a such that their variance is that of the known ones, and padding is zero.

    After Y. Kim, Convolutional neural networks for sentence classification, 2014, <https://arxiv.org/abs/1408.5882>.
    Returns a sentence that counts both. Raises ModelError where the widths differ, DataError where no word is known.
    """
    width = vectors.matrix.shape[1]
    if embedding.embedding_dim != width:
        raise ModelError(
            f"The vectors of {vectors.source} have {width} numbers, and this model's have {embedding.embedding_dim}: "
            "build the model with that width, or take other vectors."
        )
    ids = [i for i, token in enumerate(tokens) if i >= SPECIAL and token in vectors]
    if not ids:
        raise DataError(
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
