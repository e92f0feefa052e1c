"""Discrimination between classes: ROC and precision–recall curves. Calibration is in `calibration.py`.

Curves are scikit-learn's `roc_curve` and `precision_recall_curve`; the areas under them are in `statistics.classes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..statistics.classes import auc, average_precision
from .classification import Classification, calibration

MOST_ROWS = 20_000  # largest number of examples for curves; more are subsampled evenly
MOST_CELLS = 20_000_000  # largest number of scores in memory
MOST_CLASSES = 100  # largest number of classes with curves: those with the most examples
DRAWN = 10  # number of classes whose curves are drawn
GRID = np.linspace(0, 1, 101)  # points at which curves are evaluated

Numbers = NDArray[np.float64]


def scores(
    task: Classification, outputs: Tensor, target: Tensor, held_out: tuple[Tensor, Tensor] | None = None
) -> dict[str, Any]:
    """Return the documents `discrimination` and, where there are probabilities, `calibration`.

    Outputs are (n, K) or (n, 1), target is (n,). The result is empty where all examples are of one class. `held_out`,
    outputs and target of examples that are in neither training nor this evaluation, is used to calibrate probabilities.
    """
    rows = _subsample(len(target), max(outputs.shape[1], 2))
    outputs, target = outputs[rows], target[rows]
    probabilities = task.probabilities(outputs)
    raw = (probabilities if probabilities is not None else outputs.double()).cpu().numpy()
    was = target.cpu().numpy()
    found: dict[str, Any] = {}
    if not np.isfinite(raw).all():
        return found
    if discrimination := _discrimination(task, raw, was, probabilities is not None):
        found["discrimination"] = discrimination
    if probabilities is not None and len(was):
        found["calibration"] = calibration(task.probabilities, task.target.names, outputs, target, held_out)
    for document in found.values():
        document["examples"] = len(was)
    return found


def _subsample(count: int, width: int) -> NDArray[np.int64]:
    """Return the indices of an even subsample of allowed size."""
    most = max(1, min(MOST_ROWS, MOST_CELLS // width))
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _discrimination(task: Classification, raw: Numbers, was: NDArray[np.int64], likely: bool) -> dict[str, Any]:
    """Return the curves of the second of two classes, or of each of several against the rest."""
    names = task.target.names
    two = len(names) == 2
    classes = [1] if two else [int(k) for k in np.argsort(-np.bincount(was, minlength=len(names)), kind="stable")]
    of_class = {}
    for k in classes[:MOST_CLASSES]:
        is_class = was == k
        if is_class.any() and not is_class.all():
            # With one score per class, the second of two is predicted where its score is larger.
            score = raw[:, k] if likely or not two else raw[:, -1] - (raw[:, 0] if raw.shape[1] == 2 else 0)
            of_class[k] = (is_class, score)
    if not of_class:
        return {}
    threshold = (0.5 if likely else 0.0) if two else None
    curves = [
        {"name": names[k], "examples": int(is_class.sum()), **_curves(is_class, score, threshold, i < DRAWN)}
        for i, (k, (is_class, score)) in enumerate(of_class.items())
    ]
    return {"classes": curves, "of": len(names), "score": "probability" if likely else "score"}


def _curves(is_class: NDArray[np.bool_], score: Numbers, threshold: float | None, drawn: bool) -> dict[str, Any]:
    """Return the areas with their intervals, the curves at GRID, and the model's operating point."""
    from sklearn.metrics import precision_recall_curve, roc_curve

    of, others = int(is_class.sum()), int((~is_class).sum())
    found: dict[str, Any] = {
        "auc": auc(score, is_class).to_json(),
        "average_precision": average_precision(score, is_class).to_json(),
        "fraction": float(is_class.mean()),
    }
    if drawn:
        false, true, _ = roc_curve(is_class, score)
        precision, recall, _ = precision_recall_curve(is_class, score)
        found["roc"] = true[np.searchsorted(false, GRID + 1e-12, side="right") - 1].tolist()
        # The precision at a recall: of the thresholds that reach it, the highest comes first from the end.
        reached = len(recall) - 1 - np.searchsorted(recall[::-1], GRID - 1e-12, side="left")
        found["precision"] = precision[reached].tolist()
    if threshold is not None:
        said = score > threshold
        right = int((said & is_class).sum())
        found["operating"] = {
            "threshold": threshold,
            "recall": right / of,
            "false_positives": int((said & ~is_class).sum()) / others,
            "precision": right / int(said.sum()) if said.any() else None,
        }
    return found
