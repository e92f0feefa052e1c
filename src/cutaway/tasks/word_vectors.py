"""Words predicted from the words around them, or the other way round: what word vectors are learned by.

Outputs (N, L) are, for each word, the sum of the logarithms that learning makes as large as it can, and the target
(N, L) counts the words of its context, so that 0 stands for a word that nothing is learned from:

    loss = −(1/n) Σ_t outputs_t,  over the n words t that have a context, in nats

The gradient is that of the sum, not of the mean, so that a rate is that of each single step of word2vec. The loss says
how training goes; what the vectors are worth is told by `word_similarity` and `analogies`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.errors import DataError, Problem
from ..core.files import read_bytes
from ..core.spec import Context
from ..statistics.classes import correlation
from ..statistics.intervals import Metric, proportion, ratio


class WordVectors:
    """The loss a word, over the whole of its context."""

    NOUN = "word vectors"
    name = "word vectors"
    watch = "loss"
    monitors: tuple[str, ...] = ("loss",)
    loss_name = "log_likelihood"
    LOSSES = ("log_likelihood",)
    OPTIONS = ()
    sums = True  # the gradient is not divided by `count`

    def __init__(self, target: Context) -> None:
        self.target = target

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Summed over the batch, (). Words without context have the output 0."""
        del target
        return -outputs.sum()

    def count(self, target: Tensor) -> float:
        """The words that have a context."""
        return (target > 0).sum().item()

    def keep(self, outputs: Tensor, target: Tensor) -> Tensor:
        """What is kept of the outputs, (N, 1, 2): of each stretch the loss and the words that have a context."""
        counts = (target > 0).sum(1)
        return torch.stack([-outputs.sum(1), counts.to(outputs.dtype)], 1)[:, None].float()

    def quick(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Loss in nats a word."""
        del target
        losses, counts = _columns(kept)
        return {"loss": (losses.sum() / counts.sum()).item()}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Loss in nats a word; the units of its interval are stretches, as words near each other share contexts."""
        del target
        losses, counts = (column.numpy() for column in _columns(kept))
        return {"loss": ratio(losses, counts, "stretch")}

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Nothing more."""
        del kept, target
        return {}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """None: a loss over noise that the model draws has no simplest guess that the targets tell."""
        del train_target, target
        return {}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """How well the words of each stretch go with those around them: nats a word; None where none has a context."""
        losses, counts = _columns(kept)
        return [{"loss": loss / n if n else None} for loss, n in zip(losses.tolist(), counts.tolist())]

    def mistakes(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """The stretches whose words go with those around them, as nats a word."""
        del target
        losses, counts = _columns(kept)
        return [
            {
                "actual": f"{n:.0f} words",
                "predicted": "",
                "confidence": None,
                "loss": loss / n if n else 0.0,
                "wrong": n > 0,
            }
            for loss, n in zip(losses.tolist(), counts.tolist())
        ]


def _columns(kept: Tensor) -> tuple[Tensor, Tensor]:
    """Of each stretch the loss and the words that have a context, (n,) float64 each."""
    return kept[:, 0, 0].double().cpu(), kept[:, 0, 1].double().cpu()


class Vectors(Protocol):
    """A vector for each word."""

    @property
    def words(self) -> Sequence[str]:
        """The commonest first."""
        ...

    @property
    def matrix(self) -> NDArray[np.float32]:
        """(n, d)."""
        ...


@dataclass(frozen=True)
class Similarity:
    """How well cosines go with what people said of pairs of words."""

    spearman: Metric  # the correlation of ranks
    covered: int  # pairs of which both words are known
    total: int


@dataclass(frozen=True)
class Analogies:
    """How many questions "a is to b as c is to …" were answered by the right word."""

    accuracy: Metric  # of those that could be asked
    sections: dict[str, Metric]  # by the file's sections, those that could be asked at all
    covered: int  # questions of which all four words are known
    total: int


def word_similarity(vectors: Vectors, path: str | Path) -> Similarity:
    """The rank correlation (C. Spearman, 1904) of the cosines with the figures of a file such as WordSim-353: two
    words and a figure a line, between tabs or blanks; `#` begins a comment. A word that is not known as it is written
    is looked for in lower case.

    Raises DataError, with the lines, where the file holds something else, or fewer than two pairs are known.
    """
    find, unit = _by_word(vectors), _unit(vectors.matrix)
    pairs: list[tuple[int, int, float]] = []
    problems: list[Problem] = []
    total = 0
    for number, line in _lines(path):
        if line.startswith("#"):
            continue
        try:
            a, b, said = line.split()
            figure = float(said)
        except ValueError:
            problems.append(Problem(f"{path}, line {number}", f"{line[:60]!r} is not two words and a figure"))
            continue
        total += 1
        first, second = find(a), find(b)
        if first is not None and second is not None:
            pairs.append((first, second, figure))
    if problems:
        raise DataError(f"{path} is no list of pairs of words:", problems)
    if len(pairs) < 2:
        raise DataError(f"{len(pairs)} of the {total} pairs of {path} are known: there is nothing to correlate.")
    places = np.array([pair[:2] for pair in pairs])
    cosines = (unit[places[:, 0]] * unit[places[:, 1]]).sum(1)
    figures = np.array([pair[2] for pair in pairs])
    spearman = correlation(_spearman(cosines, figures), len(pairs))
    return Similarity(spearman, len(pairs), total)


def analogies(vectors: Vectors, path: str | Path, commonest: int = 30_000) -> Analogies:
    """The fraction of right answers in a file such as questions-words.txt: four words a line, `: name` begins a
    section.

    The answer is the word most like b − a + c among the `commonest`, without these three; questions with other words
    are not asked. Raises DataError, with the lines, where the file holds something else.
    """
    find, unit = _by_word(vectors, commonest), _unit(vectors.matrix[:commonest])
    asked: dict[str, list[list[int]]] = {}
    problems: list[Problem] = []
    section, total = "", 0
    for number, line in _lines(path):
        if line.startswith(":"):
            section = line[1:].strip()
            continue
        words = line.split()
        if len(words) != 4:
            problems.append(Problem(f"{path}, line {number}", f"{line[:60]!r} is not four words"))
            continue
        total += 1
        places = [find(word) for word in words]
        known = [place for place in places if place is not None]
        if len(known) == 4:
            asked.setdefault(section, []).append(known)
    if problems:
        raise DataError(f"{path} is no list of analogies:", problems)
    right = {name: _right(unit, np.array(questions)) for name, questions in asked.items()}
    covered = sum(map(len, asked.values()))
    sections = {name: proportion(n, len(asked[name])) for name, n in right.items()}
    return Analogies(proportion(sum(right.values()), covered), sections, covered, total)


def _right(unit: NDArray[np.float32], questions: NDArray[np.int64]) -> int:
    """How many of the questions (n, 4) the vectors (V, d) answer."""
    right = 0
    for a, b, c, d in (part.T for part in np.array_split(questions, -(-len(questions) // 256))):
        scores = unit @ (unit[b] - unit[a] + unit[c]).T  # (V, n)
        for own in (a, b, c):
            scores[own, np.arange(len(own))] = -np.inf
        right += int((scores.argmax(0) == d).sum())
    return right


def _by_word(vectors: Vectors, commonest: int | None = None) -> Callable[[str], int | None]:
    """The row of a word as it is written, or in lower case."""
    places = {word: i for i, word in enumerate(vectors.words[:commonest])}
    return lambda word: places.get(word, places.get(word.lower()))


def _unit(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """At length 1; a vector of zeros stays one."""
    lengths = np.sqrt(np.einsum("nd,nd->n", matrix, matrix))[:, None]
    return np.divide(matrix, np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines that hold something, and their numbers. Raises DataError where the file cannot be read as text."""
    try:
        text = read_bytes(path).decode("utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} could not be read: {error}.") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line.strip()


def _spearman(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Pearson's correlation of the ranks; NaN where one side is constant."""
    first, second = (_ranks(values) - (len(values) + 1) / 2 for values in (x, y))
    spread = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / spread if spread else float("nan")


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """From 1 on; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    ranks: NDArray[np.float64] = ((2 * last - counts + 1) / 2)[place]
    return ranks
