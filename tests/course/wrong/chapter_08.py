"""Wrong answers to the exercises of chapter 8."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import wrong


@wrong(8, "those before it are its company too")
def cooccurrences(ids: Any, window: Any, size: Any) -> Any:
    C = np.zeros((size, size))
    for i, w in enumerate(ids):
        for c in ids[i + 1 : i + 1 + window]:
            C[w, c] += 1
    return C


@wrong(8, "a pair that never occurs must have 0")
def ppmi(C: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(C / np.outer(C.sum(1), C.sum(0)) * C.sum())


@wrong(8, "That is the paper's")
def keep_probability(f: Any, t: Any) -> Any:
    return min(1.0, math.sqrt(t / f))


@wrong(8, "divide by the sum of the powers")
def noise(counts: Any) -> Any:
    return (counts / counts.sum()) ** 0.75


@wrong(8, "σ of *minus* the product")
def negative_sampling(h: Any, word: Any, others: Any) -> Any:
    p = 1 / (1 + np.exp(-np.array([word @ h, *(others @ h)])))
    return -np.log(p).sum(), (p[0] - 1) * word + p[1:] @ others


@wrong(8, "leave them out")
def analogy(E: Any, a: Any, b: Any, c: Any) -> Any:
    unit = E / np.linalg.norm(E, axis=1, keepdims=True)
    return int((unit @ (unit[b] - unit[a] + unit[c])).argmax())


@wrong(8, "not the first alone")
def merge(symbols: Any, pair: Any) -> Any:
    for i in range(len(symbols) - 1):
        if tuple(symbols[i : i + 2]) == tuple(pair):
            return [*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :]]
    return symbols
