"""What was taken for what, and the metrics that follow from it, for any number of classes.

A confusion matrix of K classes has K² cells, and at most as many that are not empty as there are examples: those alone
are held, and drawn anew for the intervals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .metrics import Metric, proportion

MATRIX = 100  # classes up to which the document holds the matrix: a larger one cannot be read
SHOWN_CELLS = 10_000  # of a larger one, the commonest
SHOWN_CLASSES = 1000  # whose metrics the document holds, those with most examples
AT_A_TIME = 500_000  # cells that are drawn at once
RESAMPLES, FEWEST, DRAWN = 1000, 100, 20_000_000  # resamples, of many cells fewer of them: so many cells in all
MANY, ONE_BY_ONE = 1000, 30  # cells of which to draw a count takes as long as to draw so many examples

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Confusion:
    """How many examples of each class were taken for each, of the pairs that occur."""

    def __init__(self, actual: Ints, predicted: Ints, classes: int) -> None:
        """`actual` and `predicted` are classes of examples, (n,), at least one, of 0 … `classes` − 1."""
        pairs, self.counts = np.unique(actual.astype(np.int64) * classes + predicted, return_counts=True)  # (C,)
        self.actual, self.predicted = pairs // classes, pairs % classes  # of each cell, (C,); by actual, then predicted
        self.size = classes
        self.known = np.union1d(self.actual, self.predicted)  # the classes that occur on either side, (P,)
        self._rows, self._row_starts = np.unique(self.actual, return_index=True)
        self._order = np.argsort(self.predicted, kind="stable")
        self._columns, self._column_starts = np.unique(self.predicted[self._order], return_index=True)
        self._diagonal = np.flatnonzero(self.actual == self.predicted)

    def sums(self, counts: Ints) -> tuple[Ints, Ints, Ints]:
        """Of counts of the cells, (B, C): for each class that occurs how many were it and were said to be it, how many
        were it, and how many were said to be it, (B, P) each."""
        right, was, said = (np.zeros((len(counts), len(self.known)), np.int64) for _ in range(3))
        right[:, self._at(self.actual[self._diagonal])] = counts[:, self._diagonal]
        was[:, self._at(self._rows)] = np.add.reduceat(counts, self._row_starts, axis=1)
        said[:, self._at(self._columns)] = np.add.reduceat(counts[:, self._order], self._column_starts, axis=1)
        return right, was, said

    def resampled(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """The sums of resampled examples, some resamples at a time; the same ones whenever they are asked for."""
        rng, total, cells = np.random.default_rng(0), int(self.counts.sum()), len(self.counts)
        few = cells > MANY and total < ONE_BY_ONE * cells
        cell_of = np.repeat(np.arange(cells), self.counts) if few else None  # of each example, (n,)
        left = max(FEWEST, min(RESAMPLES, DRAWN // (total if few else cells)))
        while left > 0:
            now = min(left, max(1, AT_A_TIME // cells))
            if cell_of is None:  # to resample examples is to draw the counts of cells from a multinomial distribution
                drawn = rng.multinomial(total, self.counts / total, size=now)
            else:
                resamples = (cell_of[rng.integers(0, total, total)] for _ in range(now))
                drawn = np.stack([np.bincount(resample, minlength=cells) for resample in resamples])
            yield self.sums(drawn)
            left -= now

    def metrics(self) -> dict[str, Metric]:
        """Accuracy; balanced accuracy, the mean recall of the classes that have examples; macro F1, the mean F1 of the
        classes that occur, whether an example is of them or was only taken for one. Intervals: Wilson's, resampling."""

        def means(right: Ints, was: Ints, said: Ints) -> tuple[Floats, Floats]:
            recall, f1 = _recall_and_f1(right, was, said)
            return np.nanmean(recall, axis=1), np.nanmean(f1, axis=1)

        right, was, said = self.sums(self.counts[None])
        recall, f1 = means(right, was, said)
        recalls, f1s = zip(*(means(*sums) for sums in self.resampled()))
        return {
            "accuracy": proportion(int(right.sum()), int(was.sum())),
            "balanced_accuracy": _spread(recall, np.concatenate(recalls)[:, None])[0],
            "macro_f1": _spread(f1, np.concatenate(f1s)[:, None])[0],
        }

    def details(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The names; precision, recall and F1 of each class; and the `confusion` matrix (rows are what it was, columns
        what was said). Of more than 100 classes there are `cells` instead, the commonest of those that are not empty:
        actual, predicted, examples, and how many examples the actual class has. Of more than 1 000, those with most
        examples have metrics."""
        sums = self.sums(self.counts[None])
        was = np.zeros(self.size, np.int64)
        was[self.known] = sums[1][0]
        shown = np.sort(np.argsort(-was, kind="stable")[:SHOWN_CLASSES])
        occur = np.isin(shown, self.known)
        at = self._at(shown[occur])
        f1 = [_recall_and_f1(*(s[:, at] for s in of_all))[1] for of_all in self.resampled()]
        f1_of = dict(zip(shown[occur].tolist(), _spread(_recall_and_f1(*sums)[1][0, at], np.concatenate(f1))))
        right, said = (dict(zip(self.known.tolist(), s[0].tolist())) for s in (sums[0], sums[2]))
        nothing = Metric(float("nan"), float("nan"), float("nan"))
        rows = [
            {
                "name": names[k],
                "count": int(was[k]),
                "precision": proportion(right.get(k, 0), said.get(k, 0)).to_json(),
                "recall": proportion(right.get(k, 0), int(was[k])).to_json(),
                "f1": f1_of.get(k, nothing).to_json(),
            }
            for k in shown.tolist()
        ]
        return {"names": list(names), **self._cells(names, was), "per_class": rows}

    def _cells(self, names: tuple[str, ...], was: Ints) -> dict[str, Any]:
        if self.size <= MATRIX:
            matrix = np.zeros((self.size, self.size), np.int64)
            matrix[self.actual, self.predicted] = self.counts
            return {"confusion": matrix.tolist()}
        commonest = np.argsort(-self.counts, kind="stable")[:SHOWN_CELLS]
        cells = zip(*(x[commonest].tolist() for x in (self.actual, self.predicted, self.counts)))
        return {"cells": [[names[i], names[j], n, int(was[i])] for i, j, n in cells]}

    def _at(self, classes: Ints) -> NDArray[np.intp]:
        """Where classes stand among those that occur."""
        return np.searchsorted(self.known, classes)


def _recall_and_f1(right: Ints, was: Ints, said: Ints) -> tuple[Floats, Floats]:
    """Per class, (B, P) each: recall = right/was (NaN where nothing was), F1 = 2 right/(was + said)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return right / was, 2 * right / (was + said)


def _spread(values: Floats, resampled: Floats) -> list[Metric]:
    """Values (P,), each with the middle 95 % of its resamples, (B, P), of those that are numbers.

    Resamples repeat some examples and lack others, so that a mean over classes of very few is smaller in nearly all of
    them: the interval reaches to the value then.
    """
    ordered = np.sort(resampled, axis=0)  # NaN last
    real = (~np.isnan(resampled)).sum(0)
    ends = []
    for part in (0.025, 0.975):  # between the two nearest, as numpy's percentile has it
        place = part * np.maximum(real - 1, 0)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(real - 1, 0))
        columns = np.arange(len(values))
        low, high = ordered[below, columns], ordered[above, columns]
        ends.append(low + (high - low) * (place - below))
    return [Metric(float(v), float(np.fmin(low, v)), float(np.fmax(high, v))) for v, low, high in zip(values, *ends)]
