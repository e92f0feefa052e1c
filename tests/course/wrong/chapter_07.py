"""Wrong answers to the exercises of chapter 7."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(7, "no example touches another")
def sets(kind: Any, shape: Any, groups: Any) -> Any:
    n, c, h, w = shape
    count = {"batch": c, "layer": n, "instance": n * c, "group": groups}[kind]
    return count, n * c * h * w // count


@wrong(7, "under the root")
def normalize(x: Any, axes: Any, eps: Any) -> Any:
    return (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + eps)


@wrong(7, "fraction of the new")
def running(mean: Any, var: Any, batches: Any, momentum: Any) -> Any:
    for batch in batches:
        mean = momentum * mean + (1 - momentum) * batch.mean()
        var = momentum * var + (1 - momentum) * batch.var(ddof=1)
    return mean, var


@wrong(7, "as in evaluation")
def batch_norm_backward(x: Any, gamma: Any, g: Any, eps: Any) -> Any:
    s = np.sqrt(x.var(0) + eps)
    return gamma * g / s, (g * (x - x.mean(0)) / s).sum(0), g.sum(0)


@wrong(7, "outputs are W's rows")
def fold(W: Any, b: Any, gamma: Any, beta: Any, mean: Any, var: Any, eps: Any) -> Any:
    scale = gamma / np.sqrt(var + eps)
    return W * scale, beta + (b - mean) * scale


@wrong(7, "That is layer normalization")
def rms_norm(x: Any, gamma: Any, eps: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    return gamma * x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


@wrong(7, "the part of the gradient along v has to go")
def weight_norm_gradient(v: Any, g: Any, grad: Any) -> Any:
    length = np.linalg.norm(v)
    return g / length * grad, v @ grad / length
