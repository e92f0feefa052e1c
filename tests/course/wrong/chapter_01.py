"""Wrong answers to the exercises of chapter 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(1, "fires above its threshold, not at it")
def fires(w: Any, b: Any, x: Any) -> Any:
    return int(w @ x + b >= 0)


@wrong(1, "divide by the length of w")
def distance(w: Any, b: Any, x: Any) -> Any:
    return w @ x + b


@wrong(1, "the other way round")
def correct(w: Any, b: Any, x: Any, t: Any) -> Any:
    y = int(w @ x + b > 0)
    return w + (y - t) * x, b + (y - t)


@wrong(1, "result of one pass")
def train(xs: Any, ts: Any, passes: Any) -> Any:
    w, b, mistakes = np.zeros(2), 0, 0
    for x, t in zip(xs, ts):
        error = t - int(w @ x + b > 0)
        w, b, mistakes = w + error * x, b + error, mistakes + abs(error)
    return w, b, mistakes


@wrong(1, "ignores the bias")
def novikoff(xs: Any, ts: Any, w: Any, b: Any) -> Any:
    gamma = ((2 * ts - 1) * (xs @ w + b)).min() / np.linalg.norm(w)
    return (np.linalg.norm(xs, axis=1).max() / gamma) ** 2


@wrong(1, "XOR is 0 there")
def xor_network() -> Any:
    return np.ones((2, 2)), np.array([-0.5, -0.5]), np.ones(2), -0.5
