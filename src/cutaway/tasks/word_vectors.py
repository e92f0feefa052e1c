"""Word vectors: words are predicted from the words around them, or the other way round.

Outputs (N, L) are, for each word, the sum of log probabilities that training maximizes. The target (N, L) is the number
of context words, so 0 marks a word without a training signal:

    loss = −(1/n) Σ_t outputs_t,  over the n words t that have a context, in nats

The gradient is that of the sum, not of the mean, so that a learning rate is that of a single word2vec step. The loss
shows the progress of training; the quality of the vectors is measured by `word_similarity` and `analogies`.
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

from ..core.errors import DataError, NotEnoughDataError, Problem
from ..core.files import read_bytes
from ..core.spec import Context
from ..statistics.classes import correlation
from ..statistics.intervals import Metric, proportion, ratio


class WordVectors:
    """The loss per word, over its whole context."""

    NOUN = "word vectors"
    name = "word vectors"
    default_monitor = "loss"
    monitors: tuple[str, ...] = ("loss",)
    loss_name = "log_likelihood"
    LOSSES = ("log_likelihood",)
    OPTIONS = ()
    loss_is_sum = True  # the gradient is not divided by `loss_denominator`

    def __init__(self, target: Context) -> None:
        self.target = target

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the batch, (). Words without context have the output 0."""
        del target
        return -outputs.sum()

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of words with a context."""
        return (target > 0).sum().item()

    def summarize_outputs(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return what evaluation stores, (N, 1, 2): loss and number of words with a context per passage."""
        counts = (target > 0).sum(1)
        return torch.stack([-outputs.sum(1), counts.to(outputs.dtype)], 1)[:, None].float()

    def fast_metrics(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Return the loss in nats per word."""
        del target
        losses, counts = _columns(kept)
        return {"loss": (losses.sum() / counts.sum()).item()}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return the loss in nats per word; the units of its interval are passages, because nearby words share
        contexts.
        """
        del target
        losses, counts = (column.numpy() for column in _columns(kept))
        return {"loss": ratio(losses, counts, "stretch")}

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Return nothing."""
        del kept, target
        return {}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return nothing: a loss over noise that the model samples has no trivial baseline that depends on targets
        only.
        """
        del train_target, target
        return {}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return the loss of each passage in nats per word; None where no word has a context."""
        losses, counts = _columns(kept)
        return [{"loss": loss / n if n else None} for loss, n in zip(losses.tolist(), counts.tolist())]

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return one row per passage, with its loss in nats per word."""
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
    """Return the loss and the number of words with a context of each passage, (n,) float64 each."""
    return kept[:, 0, 0].double().cpu(), kept[:, 0, 1].double().cpu()


class Vectors(Protocol):
    """Protocol of word vectors."""

    @property
    def words(self) -> Sequence[str]:
        """The words, the most frequent first."""
        ...

    @property
    def matrix(self) -> NDArray[np.float32]:
        """The vectors, (n, d)."""
        ...


@dataclass(frozen=True)
class Similarity:
    """The agreement of cosines with human similarity ratings of word pairs."""

    spearman: Metric  # rank correlation
    covered: int  # pairs with two known words
    total: int


@dataclass(frozen=True)
class Analogies:
    """The accuracy on questions "a is to b as c is to …"."""

    accuracy: Metric  # of the covered questions
    sections: dict[str, Metric]  # by section of the file, where any question is covered
    covered: int  # questions with four known words
    total: int


def word_similarity(vectors: Vectors, path: str | Path) -> Similarity:
    """Return the rank correlation (C. Spearman, 1904) of cosines with the ratings of a file such as WordSim-353.

    A line has two words and a rating, separated by tabs or blanks; `#` begins a comment. An unknown word is searched
    in lower case. Raises DataError, with the lines, if the file has another format, or if fewer than two pairs are
    known.
    """
    find, unit = _row_lookup(vectors), _unit(vectors.matrix)
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
            problems.append(Problem(f"{path}, line {number}", f"{line[:60]!r} is not two words and a number"))
            continue
        total += 1
        first, second = find(a), find(b)
        if first is not None and second is not None:
            pairs.append((first, second, figure))
    if problems:
        raise DataError(f"{path} is not a list of word pairs:", problems)
    if len(pairs) < 2:
        raise NotEnoughDataError(
            f"Only {len(pairs)} of the {total} pairs of {path} are in the vocabulary: too few for a correlation."
        )
    places = np.array([pair[:2] for pair in pairs])
    cosines = (unit[places[:, 0]] * unit[places[:, 1]]).sum(1)
    figures = np.array([pair[2] for pair in pairs])
    spearman = correlation(_spearman(cosines, figures), len(pairs))
    return Similarity(spearman, len(pairs), total)


def analogies(vectors: Vectors, path: str | Path, commonest: int = 30_000) -> Analogies:
    """Return the accuracy on a file such as questions-words.txt: four words per line, `: name` begins a section.

    The prediction is the word most similar to b − a + c among the `commonest` words, except these three. Questions with
    other words are skipped. Raises DataError, with the lines, if the file has another format.
    """
    find, unit = _row_lookup(vectors, commonest), _unit(vectors.matrix[:commonest])
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
        raise DataError(f"{path} is not a list of analogies:", problems)
    right = {name: _right(unit, np.array(questions)) for name, questions in asked.items()}
    covered = sum(map(len, asked.values()))
    sections = {name: proportion(n, len(asked[name])) for name, n in right.items()}
    return Analogies(proportion(sum(right.values()), covered), sections, covered, total)


def _right(unit: NDArray[np.float32], questions: NDArray[np.int64]) -> int:
    """Return the number of questions (n, 4) that the vectors (V, d) answer correctly."""
    right = 0
    for a, b, c, d in (part.T for part in np.array_split(questions, -(-len(questions) // 256))):
        scores = unit @ (unit[b] - unit[a] + unit[c]).T  # (V, n)
        for own in (a, b, c):
            scores[own, np.arange(len(own))] = -np.inf
        right += int((scores.argmax(0) == d).sum())
    return right


def _row_lookup(vectors: Vectors, commonest: int | None = None) -> Callable[[str], int | None]:
    """Return a function that looks up the row of a word, as written or in lower case."""
    places = {word: i for i, word in enumerate(vectors.words[:commonest])}
    return lambda word: places.get(word, places.get(word.lower()))


def _unit(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Normalize vectors to length 1; a zero vector stays zero."""
    lengths = np.sqrt(np.einsum("nd,nd->n", matrix, matrix))[:, None]
    return np.divide(matrix, np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield the nonempty lines and their numbers. Raises DataError if the file cannot be read as text."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}.", fix="Convert it to UTF-8.") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line.strip()


def _spearman(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return Pearson's correlation of the ranks; NaN where one side is constant."""
    first, second = (_ranks(values) - (len(values) + 1) / 2 for values in (x, y))
    spread = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / spread if spread else float("nan")


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the ranks from 1 on; ties share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    ranks: NDArray[np.float64] = ((2 * last - counts + 1) / 2)[place]
    return ranks
