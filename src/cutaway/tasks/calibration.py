"""Calibration of probabilities: observed frequencies against predicted probabilities, and temperature scaling.

The reliability diagram and the Brier score use scikit-learn's `calibration_curve` and `brier_score_loss`. The expected
calibration error (M. P. Naeini, G. F. Cooper, M. Hauskrecht, Obtaining well calibrated probabilities using Bayesian
binning, 2015) is the mean of |fraction − probability| over ten bins, weighted by their numbers of examples. For two
classes the probability is that of the second, for more classes that of the predicted class.

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

from ..nn.losses import expand_binary_logits
from ..statistics.intervals import Metric, without_interval

BINS = 10
EDGES = np.linspace(0, 1, BINS + 1)
COLDEST, HOTTEST = 1e-2, 1e2  # range of temperatures
CELLS = 1 << 22  # largest number of probabilities in memory
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
    said, so, rows = [], [], max(1, CELLS // outputs.shape[1])
    for some, was in zip(torch.split(outputs, rows), torch.split(target, rows)):
        p = likely(some)
        assert p is not None, "the outputs have probabilities"
        chosen, k = (p[:, 1], was.new_ones(len(was))) if p.shape[1] == 2 else p.max(1)
        said.append(chosen)
        so.append(k == was)
    return torch.cat(said).clamp(0, 1).cpu().numpy(), torch.cat(so).cpu().numpy()
