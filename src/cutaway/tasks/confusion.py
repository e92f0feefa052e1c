"""Confusion counts, and the metrics that follow from them, for any number of classes.

A confusion matrix of K classes has K² cells, of which at most one per example is not empty. Only these are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..statistics import classes
from ..statistics.intervals import Metric, fraction, group_units, jackknife, proportion, share, without_interval

MATRIX = 100  # largest number of classes for which the document has the matrix
SHOWN_CELLS = 10_000  # number of cells of a larger matrix, the most frequent ones
SHOWN_CLASSES = 1000  # largest number of classes with metrics in the document, those with the most examples

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Confusion:
    """Counts of the pairs of actual and predicted class that occur."""

    def __init__(
        self, actual: Ints, predicted: Ints, classes: int, clusters: Ints | None = None, noun: str = "example"
    ) -> None:
        """Count the pairs of actual and predicted class.

        Args:
            actual: Classes of examples, 0 to `classes` − 1, shape (n,), at least one.
            predicted: Predicted classes, shape (n,).
            classes: Number of classes.
            clusters: Index of the unit of each example, shape (n,), such as the sentence of a token; None where
                examples are independent.
            noun: Name of a unit.
        """
        pairs, cell, self.counts = np.unique(
            actual.astype(np.int64) * classes + predicted, return_inverse=True, return_counts=True
        )  # (C,), (n,), (C,)
        self.noun, self.units = noun, None
        if clusters is not None:  # (G, C): the cells of each unit, or of each group of them
            group = group_units(int(clusters.max()) + 1)[clusters]
            size = (int(group.max()) + 1, len(pairs))
            self.units = np.bincount(group * size[1] + cell, minlength=size[0] * size[1]).reshape(size).astype(float)
        self.actual, self.predicted = pairs // classes, pairs % classes  # of each cell, (C,); by actual, then predicted
        self.size = classes
        self.known = np.union1d(self.actual, self.predicted)  # the classes that occur on either side, (P,)
        self._rows, self._row_starts = np.unique(self.actual, return_index=True)
        self._order = np.argsort(self.predicted, kind="stable")
        self._columns, self._column_starts = np.unique(self.predicted[self._order], return_index=True)
        self._diagonal = np.flatnonzero(self.actual == self.predicted)

    def sums(self, counts: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Sum counts of the cells (B, C) for each class that occurs.

        The results are correct, actual and predicted examples, (B, P) each.
        """
        right, was, said = (np.zeros((len(counts), len(self.known)), counts.dtype) for _ in range(3))
        right[:, self._at(self.actual[self._diagonal])] = counts[:, self._diagonal]
        was[:, self._at(self._rows)] = np.add.reduceat(counts, self._row_starts, axis=1)
        said[:, self._at(self._columns)] = np.add.reduceat(counts[:, self._order], self._column_starts, axis=1)
        return right, was, said

    def metrics(self, names: Sequence[str] | None = None) -> dict[str, Metric]:
        """Return accuracy, balanced accuracy and macro F1.

        Balanced accuracy is the mean recall of the classes with examples. Macro F1 is the mean F1 of the classes that
        occur, actual or predicted.
        """
        right, was, said = (s[0] for s in self.sums(self.counts[None]))
        known = [names[k] for k in self.known] if names else None
        if self.units is None:
            return {
                "accuracy": proportion(int(right.sum()), int(was.sum())),
                "balanced_accuracy": classes.balanced_accuracy(right, was, known),
                "macro_f1": classes.macro_f1(self._at(self.actual), self._at(self.predicted), self.counts, known),
            }
        found = {name: self._clustered(score) for name, score in _MEANS.items()}
        there = self.units > 0
        of_classes = np.array([there[:, self.actual == k].any(1).sum() for k in self.known], np.float64)
        for name, which in (("balanced_accuracy", was > 0), ("macro_f1", was + said > 0)):
            of = [name for name, some in zip(known, which) if some] if known else None
            if reason := classes.too_few_examples(of_classes[which], of, f"{self.noun}s"):
                found[name] = without_interval(found[name].value, reason)
        return found

    def details(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the names, the metrics of each class, and the `confusion` matrix with actual rows and predicted
        columns.

        For more than 100 classes, `cells` replaces the matrix. It has the most frequent nonempty cells: actual,
        predicted, number of examples, and number of examples of the actual class. For more than 1,000 classes, only
        those with the most examples have metrics.
        """
        was = np.zeros(self.size, np.int64)
        sums = [s[0] for s in self.sums(self.counts[None])]
        was[self.known] = sums[1]
        shown = np.sort(np.argsort(-was, kind="stable")[:SHOWN_CLASSES])
        of_class = {k: tuple(int(s[p]) for s in sums) for p, k in enumerate(self.known.tolist())}
        rows = []
        for k in shown.tolist():
            right, of, said = of_class.get(k, (0, 0, 0))
            found = (proportion(right, said), proportion(right, of), classes.f1(right, of, said))
            if self.units is not None and of + said:
                found = self._of_class(k)
            precision, recall, f1 = (one.to_json() for one in found)
            rows.append({"name": names[k], "count": int(was[k]), "precision": precision, "recall": recall, "f1": f1})
        return {"names": list(names), **self._cells(names, was), "per_class": rows}

    def _of_class(self, k: int) -> tuple[Metric, Metric, Metric]:
        """Return precision, recall and F1 of a class of clustered examples."""
        assert self.units is not None
        right, of, said = (
            self.units[:, which].sum(1)
            for which in ((self.actual == k) & (self.predicted == k), self.actual == k, self.predicted == k)
        )
        some = int(((of > 0) | (said > 0)).sum())
        found = [share(right, below, self.noun) for below in (said, of, of + said - right)]
        if some < classes.LEAST_OF_CLASS:
            reason = f"fewer than {classes.LEAST_OF_CLASS} {self.noun}s with it"
            found = [without_interval(one.value, reason) for one in found]
        return found[0], found[1], found[2].map(lambda j: 2 * j / (1 + j))

    def _clustered(self, score: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Floats]) -> Metric:
        """Return a score in [0, 1] with its jackknife interval over clusters."""
        assert self.units is not None
        return jackknife(self.units, lambda counts: score(*self.sums(counts)), fraction, self.noun)

    def _cells(self, names: tuple[str, ...], was: Ints) -> dict[str, Any]:
        if self.size <= MATRIX:
            matrix = np.zeros((self.size, self.size), np.int64)
            matrix[self.actual, self.predicted] = self.counts
            return {"confusion": matrix.tolist()}
        commonest = np.argsort(-self.counts, kind="stable")[:SHOWN_CELLS]
        cells = zip(*(x[commonest].tolist() for x in (self.actual, self.predicted, self.counts)))
        return {"cells": [[names[i], names[j], n, int(was[i])] for i, j, n in cells]}

    def _at(self, classes: Ints) -> NDArray[np.intp]:
        """Return the indices of classes among those that occur."""
        return np.searchsorted(self.known, classes)


def _recall_and_f1(right: NDArray[Any], was: NDArray[Any], said: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return recall = right/was (NaN where was = 0) and F1 = 2 right/(was + said) per class, (B, P) each."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return right / was, 2 * right / (was + said)


_MEANS: dict[str, Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Floats]] = {
    "accuracy": lambda right, was, said: right.sum(1) / was.sum(1),
    "balanced_accuracy": lambda right, was, said: np.nanmean(_recall_and_f1(right, was, said)[0], axis=1),
    "macro_f1": lambda right, was, said: np.nanmean(_recall_and_f1(right, was, said)[1], axis=1),
}
