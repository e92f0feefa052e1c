"""How well scores tell classes apart: ROC and precision–recall curves. Whether they are to be believed says
`calibration.py`.

All metrics are scikit-learn's: `roc_curve`, `precision_recall_curve`, `roc_auc_score`, `average_precision_score`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .calibration import calibration
from .classification import Classification
from .metrics import Z95, Metric

MOST_ROWS = 20_000  # examples that curves are made of; of more an even choice
MOST_CELLS = 20_000_000  # scores that are held at a time
MOST_CLASSES = 100  # with curves of their own: those with the most examples
DRAWN = 10  # classes whose curves are drawn
GRID = np.linspace(0, 1, 101)  # where curves are read off

Numbers = NDArray[np.float64]


def scores(
    task: Classification, outputs: Tensor, target: Tensor, held_out: tuple[Tensor, Tensor] | None = None
) -> dict[str, Any]:
    """The documents `discrimination` and, where there are probabilities, `calibration`; outputs (n, K) or (n, 1),
    target (n,). Empty where a class has all examples: then nothing is to be told apart. By `held_out`, outputs and
    target of examples neither trained on nor told of here, probabilities are calibrated."""
    rows = _chosen(len(target), max(outputs.shape[1], 2))
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


def _chosen(count: int, width: int) -> NDArray[np.int64]:
    """An even choice of the examples, as many as may be."""
    most = max(1, min(MOST_ROWS, MOST_CELLS // width))
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _discrimination(task: Classification, raw: Numbers, was: NDArray[np.int64], likely: bool) -> dict[str, Any]:
    """The curves of the second of two classes, or of each of several against all others."""
    names = task.target.names
    two = len(names) == 2
    classes = [1] if two else [int(k) for k in np.argsort(-np.bincount(was, minlength=len(names)), kind="stable")]
    of_class = {}
    for k in classes[:MOST_CLASSES]:
        is_class = was == k
        if is_class.any() and not is_class.all():
            # Of two classes with scores of their own, the second is chosen where its score is the larger.
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
    """The areas with their intervals, the curves read off at GRID, and where the model decides."""
    from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

    of, others = int(is_class.sum()), int((~is_class).sum())
    found: dict[str, Any] = {
        "auc": _area(float(roc_auc_score(is_class, score)), of, others).to_json(),
        "average_precision": _average(float(average_precision_score(is_class, score)), of).to_json(),
        "fraction": float(is_class.mean()),
    }
    if drawn:
        false, true, _ = roc_curve(is_class, score)
        precision, recall, _ = precision_recall_curve(is_class, score)
        found["roc"] = true[np.searchsorted(false, GRID + 1e-12, side="right") - 1].tolist()
        # The precision at a recall: of the thresholds that reach it, the highest has the first place from the end.
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


def _area(value: float, of: int, others: int) -> Metric:
    """An area under the ROC with the interval of J. A. Hanley, B. J. McNeil, 1982."""
    above, below = value / (2 - value), 2 * value**2 / (1 + value)
    spread = value * (1 - value) + (of - 1) * (above - value**2) + (others - 1) * (below - value**2)
    half = Z95 * math.sqrt(max(spread, 0.0) / (of * others))
    if not half:  # where nothing was mixed up it knows of no doubt, which is too sure
        return Metric(value, math.nan, math.nan)
    return Metric(value, max(0.0, value - half), min(1.0, value + half))


def _average(value: float, of: int) -> Metric:
    """An average precision with the interval on the logit scale of K. Boyd, K. H. Eng, C. D. Page, 2013."""
    if not 1e-9 < value < 1 - 1e-9:
        return Metric(value, math.nan, math.nan)
    centre, half = math.log(value / (1 - value)), Z95 / math.sqrt(of * value * (1 - value))
    return Metric(value, *(1 / (1 + math.exp(min(-x, 700.0))) for x in (centre - half, centre + half)))
