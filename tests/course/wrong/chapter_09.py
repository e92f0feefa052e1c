"""Wrong answers to the exercises of chapter 9."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(9, "That is the last state")
def elman(x: Any, W: Any, U: Any, b: Any) -> Any:
    h = np.zeros(len(b))
    for x_t in x:
        h = np.tanh(W @ x_t + U @ h + b)
    return h


@wrong(9, "through the transpose")
def through_time(x: Any, h: Any, U: Any, g: Any) -> Any:
    delta, deltas = np.zeros(len(U)), []
    for t in reversed(range(len(h))):
        delta = (1 - h[t] ** 2) * (g[t] + U @ delta)
        deltas.append(delta)
    found = np.array(deltas[::-1])
    return found.T @ x, found.T @ np.vstack([np.zeros(len(U)), h[:-1]]), found.sum(0)


@wrong(9, "largest real part")
def radius(U: Any) -> Any:
    return np.linalg.eigvals(U).real.max()


@wrong(9, "one norm for all")
def clip(gradients: Any, largest: Any) -> Any:
    return [g * min(1.0, largest / np.linalg.norm(g)) for g in gradients]


@wrong(9, "The candidate g has a tanh")
def lstm(x: Any, h: Any, c: Any, W: Any, U: Any, b: Any) -> Any:
    i, f, g, o = np.split(1 / (1 + np.exp(-(W @ x + U @ h + b))), 4)
    c = f * c + i * g
    return o * np.tanh(c), c


@wrong(9, "That is PyTorch's")
def gru(x: Any, h: Any, W: Any, U: Any, b: Any) -> Any:
    (r_x, z_x, n_x), (r_h, z_h, n_h) = np.split(W @ x + b, 3), np.split(U @ h, 3)
    r, z = 1 / (1 + np.exp(-(r_x + r_h))), 1 / (1 + np.exp(-(z_x + z_h)))
    return (1 - z) * np.tanh(n_x + r * n_h) + z * h


@wrong(9, "after the padding")
def last_states(outputs: Any, lengths: Any) -> Any:
    return outputs[:, -1]


@wrong(9, "That repeats the last value")
def repeat_season(y: Any, m: Any, horizon: Any) -> Any:
    return np.full(horizon, y[-1])
