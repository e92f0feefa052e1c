"""Continual learning metrics: average accuracy, forgetting, backward transfer.

    R[t, j]  the accuracy on task j after training on task t, of T tasks

    average accuracy    ACC = 1/T Σ_j R[T, j]
    backward transfer   BWT = 1/(T−1) Σ_{j<T} R[T, j] − R[j, j]
    forgetting          F = 1/(T−1) Σ_{j<T} max_{t<T} R[t, j] − R[T, j]

The first two after D. Lopez-Paz, M. Ranzato, Gradient episodic memory for continual learning, 2017, equations 2 and 3
<https://arxiv.org/abs/1706.08840>; forgetting after A. Chaudhry, P. K. Dokania, T. Ajanthan, P. H. S. Torr, Riemannian
walk for incremental learning, 2018, section 3.2 <https://arxiv.org/abs/1801.10112>.

Each metric is a sum over examples, so its interval follows from their variance. The contributions of one image to
several tasks are summed first, because permuted tasks share their images.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..statistics.intervals import Metric, effective, student, without_interval


def accuracies(right: Tensor, task: Tensor) -> Tensor:
    """Return R, (times, tasks), from `right` (times, n), True for correct examples, and the `task` of each example,
    (n,).
    """
    count = int(task.max()) + 1
    sums = torch.zeros(len(right), count, dtype=torch.float64).index_add_(1, task, right.double())
    return sums / task.bincount(minlength=count)


def metrics(right: Tensor, task: Tensor, original: Tensor) -> dict[str, Metric]:
    """Return the metrics with their 95 % intervals; only average accuracy where the end is the only time.

    `right` is (times, n) bool, `task` is (n,), and `original` (n,) is the index of the original image of each example.
    """
    right, found = right.double(), accuracies(right, task)  # (times, tasks)
    times, count = found.shape
    share = 1 / task.bincount(minlength=count).double()[task]  # (n,): of each example in its task's accuracy
    average, variance, images = _clustered_sum(right[-1] * share / count, task, original)
    metrics = {"average_accuracy": effective(average, variance, images, images - 1)}
    if times == count > 1:
        earlier, scale = task < count - 1, share / (count - 1)
        best = found[:-1].argmax(0)[task]  # (n,)
        at_best, at_first = right.gather(0, best[None])[0], right.gather(0, task[None])[0]
        metrics["forgetting"] = _difference((at_best - right[-1]) * scale * earlier, task, original)
        metrics["backward_transfer"] = _difference((right[-1] - at_first) * scale * earlier, task, original)
    return metrics


def details(right: Tensor, task: Tensor, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the report's data: {"tasks": {"names", "accuracy"}}, with the rows of R."""
    return {"tasks": {"names": list(names), "accuracy": accuracies(right, task).tolist()}}


def _difference(parts: Tensor, task: Tensor, original: Tensor) -> Metric:
    """Return a signed sum of contributions (n,) with Student's t interval."""
    value, variance, images = _clustered_sum(parts, task, original)
    if not 0 < variance < math.inf:
        return without_interval(value, "all examples have the same value" if not variance else "a task has one example")
    half = student(images - 1) * math.sqrt(variance)
    return Metric(value, value - half, value + half)


def _clustered_sum(parts: Tensor, task: Tensor, original: Tensor) -> tuple[float, float, int]:
    """Return the sum of the contributions (n,), its variance, and the number of images.

    The units are images with all examples made from them. Where each image belongs to one task, tasks are strata.
    """
    images, index = original.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    added = torch.zeros(len(images), dtype=torch.float64).index_add_(0, index, parts)
    stratum = torch.zeros(len(images), dtype=torch.int64)
    if len(images) == len(task):
        stratum[index] = task
    variance = 0.0
    for of in range(int(stratum.max()) + 1):
        those = added[stratum == of]
        variance += len(those) * float(those.var()) if len(those) > 1 else math.inf
    return float(added.sum()), variance, len(images)
