"""Wrong answers to the exercises of chapter 3."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(3, "the sum over the examples")
def cross_entropy(Z: Any, t: Any) -> Any:
    Z = Z - Z.max(1, keepdims=True)
    return (np.log(np.exp(Z).sum(1)) - Z[np.arange(len(t)), t]).sum()


@wrong(3, "the loss is the mean over N examples")
def output_delta(Z: Any, t: Any) -> Any:
    P = np.exp(Z) / np.exp(Z).sum(1, keepdims=True)
    P[np.arange(len(t)), t] -= 1
    return P


@wrong(3, "over the K outputs as well")
def mse_delta(Y: Any, T: Any) -> Any:
    return 2 * (Y - T) / len(Y)


@wrong(3, "the shape of its weights")
def weight_gradient(delta: Any, A: Any) -> Any:
    return A.T @ delta, delta.sum(0)


@wrong(3, "times its slope at Z")
def back(delta: Any, W: Any, Z: Any) -> Any:
    return delta @ W


@wrong(3, "looks ahead only")
def numeric_gradient(f: Any, w: Any, h: Any) -> Any:
    found = np.zeros_like(w)
    for at in np.ndindex(w.shape):
        up = w.copy()
        up[at] += h
        found[at] = (f(up) - f(w)) / h
    return found


@wrong(3, "add them up")
def adjoints(tape: Any) -> Any:
    found = np.zeros(len(tape))
    found[-1] = 1.0
    for k in reversed(range(len(tape))):
        for i, slope in tape[k]:
            found[i] = slope * found[k]
    return found
