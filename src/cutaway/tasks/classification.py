"""Classification: logits, metrics, confusion counts, calibration, and linear separability.

Outputs (N, K) are logits or scores, (N, 1) the single score of two classes. A perceptron learns two classes if they
are linearly separable.

A confusion matrix of K classes has K² cells, of which at most one per example is not empty. Only these are stored.

Calibration compares observed frequencies with predicted probabilities. The reliability diagram and the Brier score use
scikit-learn's `calibration_curve` and `brier_score_loss`. The expected calibration error (M. P. Naeini, G. F. Cooper,
M. Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, 2015) is the mean of |fraction −
probability| over ten bins, weighted by their numbers of examples. For two classes the probability is that of the
second, for more classes that of the predicted class.

Temperature scaling is that of C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, On calibration of modern neural networks,
2017, section 4.2 <https://arxiv.org/abs/1706.04599>: one number, fitted on validation, which changes no prediction,

    p = softmax(z / T),   T = argmin_T −Σ log softmax(z / T)_y
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.spec import Classes
from ..nn import losses
from ..nn.losses import expand_binary_logits
from ..statistics import classes
from ..statistics.intervals import Metric, fraction, group_units, jackknife, mean, proportion, share, without_interval

CELLS = 1 << 22  # outputs whose losses are computed at a time, to limit memory
SQUARED_ERRORS = ("half_squared_error", "mse")  # losses that compare outputs with 0 and 1


class Classification:
    """Cross-entropy or the model's own criterion, accuracy, and metrics of each class."""

    NOUN = "classes"
    name = "classification"
    default_monitor = "accuracy"
    monitors: tuple[str, ...] = ("accuracy", "balanced_accuracy", "macro_f1", "loss")
    TOP = 5  # k of top-k accuracy, computed for more than k classes
    LOSSES: tuple[str, ...] = ("cross_entropy", "perceptron", "map", "half_squared_error", "mse")
    OPTIONS: tuple[str, ...] = ("loss", "label_smoothing", "class_weights")

    def __init__(
        self,
        target: Classes,
        loss: str = "cross_entropy",
        label_smoothing: float = 0.0,
        class_weights: Tensor | None = None,
    ) -> None:
        self.target = target
        self.loss_name = loss
        self.label_smoothing = label_smoothing
        self.class_weights = class_weights

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the batch, (); targets are classes (N,) or class probabilities (N, K)."""
        if outputs.requires_grad and self.loss_name == "cross_entropy":
            return self._cross_entropy(outputs, target, reduction="sum")
        return _some_at_a_time(self.training_losses, outputs, target).sum()

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of examples in the batch, or the sum of their class weights."""
        return len(target) if self.class_weights is None else self.example_weights(target).sum().item()

    def example_weights(self, target: Tensor) -> Tensor:
        """Return the weight of each example by its class, (N,), which is 1 without class weights."""
        if self.class_weights is None:
            return torch.ones(len(target), device=target.device)
        return losses.example_weights(target, self.class_weights.to(target.device))

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each example, (N,)."""
        return _some_at_a_time(self._reported_losses, outputs, target)

    def wrong_sides(self, outputs: Tensor, target: Tensor) -> int:
        """Return the number of examples with a score ≤ 0 for their class, or ≥ 0 for another."""
        score_is_for = torch.arange(outputs.shape[1], device=target.device) + (outputs.shape[1] == 1)  # (K,)
        margin = torch.where(target[:, None] == score_is_for, outputs, -outputs)  # (N, K)
        return int((margin <= 0).any(1).sum())

    def decide(self, outputs: Tensor) -> Tensor:
        """Return the predicted class of each example, (N,).

        It is the class of the largest output. A single output is compared with 0, or, if it was trained by squared
        errors against 0 and 1, with ½.
        """
        if outputs.shape[1] > 1:
            return outputs.argmax(1)
        return (outputs[:, 0] > (0.5 if self.loss_name in SQUARED_ERRORS else 0.0)).long()

    def probabilities(self, outputs: Tensor) -> Tensor | None:
        """Return probabilities (N, K) if the outputs are trained as such, or None for a perceptron's scores."""
        if self.loss_name not in ("cross_entropy", "map"):
            return None
        if outputs.shape[1] == 1:
            p = outputs[:, 0].double().sigmoid()
            return torch.stack([1 - p, p], dim=1)  # (N, 2)
        return outputs.double().softmax(1)

    def fast_metrics(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Return the accuracy."""
        return {"accuracy": (self.decide(outputs) == target).double().mean().item()}

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return accuracy, balanced accuracy, macro F1, top-5 accuracy, calibration error and loss.

        Top-5 accuracy needs more than five classes, calibration error needs probabilities. docs/statistics.md describes
        the intervals.
        """
        top, likely = {}, self.probabilities(outputs[:1]) is not None
        if outputs.shape[1] > self.TOP:
            among = (outputs.topk(self.TOP, 1).indices == target[:, None]).any(1)  # (N,)
            top = {"top5_accuracy": proportion(int(among.sum()), len(target))}
        return {
            **self._confusion(outputs, target).metrics(self.target.names),
            **top,
            **(
                {"calibration_error": calibration_error(self.probabilities, outputs, target)}
                if likely and len(target)
                else {}
            ),
            "loss": mean(self.losses(outputs, target).double().cpu().numpy()),
        }

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the confusion matrix, and precision, recall and F1 of each class: `Confusion.details`."""
        return {"classes": self._confusion(outputs, target).details(self.target.names)}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the accuracy of the majority class of the training split."""
        commonest = train_target.mode().values
        name = f"majority-class baseline ({self.target.names[int(commonest)]!r})"
        return {"name": name, "value": (target == commonest).double().mean().item()}

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return the predicted class of each example, and the probability or score of every class."""
        decided = self.decide(outputs).tolist()
        probabilities = self.probabilities(outputs)
        scores = (probabilities if probabilities is not None else outputs.double()).tolist()
        word = "probability" if probabilities is not None else "score"
        names = self.target.names if len(scores[0]) == len(self.target.names) else self.target.names[1:]
        return [
            {
                self.target.column: self.target.names[k],
                **({"probability": row[k]} if probabilities is not None else {}),
                **{f"{word} {name}": p for name, p in zip(names, row)},
            }
            for k, row in zip(decided, scores)
        ]

    def example_results(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return the actual and the predicted class of each example."""
        decided = self.decide(outputs)
        probabilities = self.probabilities(outputs)
        sure = probabilities.gather(1, decided[:, None])[:, 0].tolist() if probabilities is not None else None
        rows = zip(decided.tolist(), target.tolist(), self.losses(outputs, target).tolist())
        return [
            {
                "actual": self.target.names[actual],
                "predicted": self.target.names[said],
                "confidence": sure[i] if sure else None,
                "loss": loss,
                "wrong": said != actual,
            }
            for i, (said, actual, loss) in enumerate(rows)
        ]

    def _reported_losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the reported loss of each example, (N,): neither smoothed nor weighted."""
        return losses.LOSSES[self.loss_name](outputs, self._as_loss_wants(outputs, target))

    def training_losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the training loss of each example, (N,)."""
        if self.loss_name != "cross_entropy":
            return self._reported_losses(outputs, target)
        return self._cross_entropy(outputs, target)

    def _cross_entropy(self, outputs: Tensor, target: Tensor, reduction: str = "none") -> Tensor:
        weights = self.class_weights.to(outputs) if self.class_weights is not None else None
        return losses.cross_entropy(
            outputs, target, label_smoothing=self.label_smoothing, class_weights=weights, reduction=reduction
        )

    def _as_loss_wants(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return one-hot targets for squared errors, and classes for other criteria."""
        if self.loss_name in SQUARED_ERRORS and not target.is_floating_point():
            width = outputs.shape[1]
            if width == 1:
                return target[:, None].to(outputs.dtype)  # (N, 1)
            return torch.nn.functional.one_hot(target, width).to(outputs.dtype)  # (N, K)
        return target

    def _confusion(self, outputs: Tensor, target: Tensor) -> Confusion:
        return Confusion(target.cpu().numpy(), self.decide(outputs).cpu().numpy(), len(self.target.names))


def _some_at_a_time(each: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, target: Tensor) -> Tensor:
    """Apply `each` to the examples, (N,): all at once in training, else in chunks.

    In evaluation the outputs can be those of a whole split with very many classes.
    """
    rows = max(1, CELLS // outputs.shape[1])
    if outputs.requires_grad or len(outputs) <= rows:
        return each(outputs, target)
    found = outputs.new_empty(len(outputs))  # preallocated, to avoid fragmentation by many small results
    for start in range(0, len(outputs), rows):
        some = slice(start, start + rows)
        found[some] = each(outputs[some], target[some])
    return found


def linearly_separable(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Return whether some w, b has w·x + b > 0 exactly where y is true: x (n, F) numbers, y (n,) true or false.

    Then (w, b) can be scaled until s (w·x + b) ≥ 1 for every example, s = ±1. A linear program searches for such a
    solution. If it has none, no separating hyperplane exists. Thousands of rows and columns take minutes.
    """
    from scipy.optimize import linprog  # comes with scikit-learn

    x = np.asarray(x, dtype=np.float64)
    side = np.where(y, 1.0, -1.0)[:, None]  # (n, 1)
    # Standardize columns, so that the solver's tolerances apply equally; separability does not change.
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
    rows = -side * np.hstack([x, np.ones_like(side)])  # (n, F + 1) times (w, b) is at most −1
    found = linprog(c=np.zeros(rows.shape[1]), A_ub=rows, b_ub=-np.ones(len(rows)), bounds=(None, None), method="highs")
    if found.status not in (0, 2):  # neither solved nor infeasible
        raise ArithmeticError(f"the linear programme of separability ended undecided: {found.message}")
    return bool(found.status == 0)


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
        if some < classes.MIN_PER_CLASS:
            reason = f"fewer than {classes.MIN_PER_CLASS} {self.noun}s with it"
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


BINS = 10
EDGES = np.linspace(0, 1, BINS + 1)
COLDEST, HOTTEST = 1e-2, 1e2  # range of temperatures
CALIBRATION_CELLS = 1 << 22  # largest number of probabilities in memory
HALVINGS = 60  # bisection steps

Numbers = NDArray[np.float64]
Likely = Callable[[Tensor], Tensor | None]  # maps outputs (n, …) to probabilities (n, K) or None


def calibration(
    likely: Likely,
    names: Sequence[str],
    outputs: Tensor,
    target: Tensor,
    held_out: tuple[Tensor, Tensor] | None = None,
) -> dict[str, Any]:
    """Return the document `calibration` of outputs (n, K) or (n, 1) and target (n,), with class k called `names[k]`.

    With `held_out`, outputs and target of other examples, `scaled` has the same at the temperature fitted on them.
    """
    found = _document(likely, names, outputs, target)
    temperature = fit_temperature(*held_out) if held_out is not None else None
    if temperature is not None:
        scaled = _document(likely, names, outputs / temperature, target)
        found["scaled"] = {"temperature": temperature, **{key: scaled[key] for key in ("error", "brier", "bins")}}
    return found


def calibration_error(likely: Likely, outputs: Tensor, target: Tensor) -> Metric:
    """Return the expected calibration error of outputs that have probabilities.

    It has no interval. Within a bin |fraction − probability| is above 0 by chance alone, so the error of a calibrated
    model is biased upwards, and resampling increases the bias.
    """
    said, so = _predicted_and_correct(likely, outputs, target)
    apart = np.bincount(np.searchsorted(EDGES[1:-1], said), weights=so - said, minlength=BINS)
    return without_interval(float(np.abs(apart).sum() / len(said)), "binned calibration error is biased upwards")


def fit_temperature(logits: Tensor, target: Tensor) -> float | None:
    """Return the T that minimizes the cross-entropy of logits (n, K), or (n, 1) of class 1 against class 0.

    It returns None without a minimum: where no prediction is wrong, smaller T are always better, and where predictions
    are worse than chance, larger ones. The cross-entropy is convex in 1 / T. The root of its derivative, Σ (Σ_k p_k z_k
    − z_y), is found by bisection.
    """
    z = expand_binary_logits(logits.detach().cpu().double())  # (n, K)
    right = z.gather(1, target.cpu()[:, None])[:, 0]  # (n,)

    def rises(temperature: float) -> bool:
        """Return whether a lower temperature is worse."""
        return bool(((z / temperature).softmax(1) * z).sum(1).sum() > right.sum())

    low, high = math.log(COLDEST), math.log(HOTTEST)
    if not len(z) or not rises(COLDEST) or rises(HOTTEST):
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(math.exp(middle)) else (low, middle)
    return math.exp((low + high) / 2)


def _document(likely: Likely, names: Sequence[str], outputs: Tensor, target: Tensor) -> dict[str, Any]:
    """Return the reliability diagram and the Brier score as plain values for evaluation.json."""
    from sklearn.calibration import calibration_curve
    from sklearn.metrics import brier_score_loss

    said, so = _predicted_and_correct(likely, outputs, target)
    fraction, mean = calibration_curve(so, said, n_bins=BINS, strategy="uniform")
    counts = np.bincount(np.searchsorted(EDGES[1:-1], said), minlength=BINS)  # same bins as calibration_curve
    return {
        "of": names[1] if len(names) == 2 else None,  # the class whose probability it is; None: the predicted class
        "error": calibration_error(likely, outputs, target).to_json(),
        "brier": float(brier_score_loss(so, said)),
        "edges": EDGES.tolist(),
        "counts": counts.tolist(),
        "bins": [
            {"bin": int(b), "said": float(m), "was": float(s), "count": int(counts[b])}
            for b, m, s in zip(np.flatnonzero(counts), mean, fraction)
        ],
    }


def _predicted_and_correct(likely: Likely, outputs: Tensor, target: Tensor) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return the predicted probability of the positive or predicted class, (n,), and whether it is correct, (n,)."""
    said, so, rows = [], [], max(1, CALIBRATION_CELLS // outputs.shape[1])
    for some, was in zip(torch.split(outputs, rows), torch.split(target, rows)):
        p = likely(some)
        assert p is not None, "the outputs have probabilities"
        chosen, k = (p[:, 1], was.new_ones(len(was))) if p.shape[1] == 2 else p.max(1)
        said.append(chosen)
        so.append(k == was)
    return torch.cat(said).clamp(0, 1).cpu().numpy(), torch.cat(so).cpu().numpy()
