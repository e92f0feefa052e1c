"""Wrong answers to the exercises of chapter 5."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(5, "the kernel is not flipped")
def correlate(x: Any, w: Any) -> Any:
    return np.convolve(x, w, "valid")


@wrong(5, "turn it round")
def convolve(x: Any, w: Any) -> Any:
    return np.correlate(x, w, "full")


@wrong(5, "round down")
def output_size(n: Any, k: Any, s: Any, p: Any, d: Any) -> Any:
    return (n + 2 * p - d * (k - 1) - 1) / s + 1


@wrong(5, "rows are outputs")
def toeplitz(w: Any, n: Any) -> Any:
    return np.array([np.roll([*w, *[0.0] * (n - len(w))], i) for i in range(n - len(w) + 1)]).T


@wrong(5, "share the same weights")
def layer_cost(c_in: Any, c_out: Any, k: Any, height: Any, width: Any) -> Any:
    weights = c_in * c_out * k * k
    return (weights + c_out) * height * width, weights * height * width


@wrong(5, "k - 1 times the strides before")
def receptive_field(layers: Any) -> Any:
    return 1 + sum(k - 1 for k, _ in layers)


@wrong(5, "the first of each block")
def max_pool(x: Any) -> Any:
    return x[::2, ::2]


@wrong(5, "T of one impulse is enough")
def operator_matrix(T: Any, n: Any) -> Any:
    return np.array([T(row) for row in np.eye(n)]).T
