"""Wrong answers to the exercises of chapter 15."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(15, "lead both ways")
def adjacency(links: Any, V: Any) -> Any:
    A = np.zeros((V, V))
    for i, j in links:
        A[i, j] = 1
    return A


@wrong(15, "before dividing")
def a_hat(A: Any) -> Any:
    d = A.sum(1)
    return np.eye(len(A)) + A / np.sqrt(np.outer(d, d))


@wrong(15, "np.add.at")
def sums(x: Any, edges: Any) -> Any:
    y = np.zeros_like(x)
    y[edges[1]] += x[edges[0]]
    return y


@wrong(15, "over the edges to one target")
def attention(s: Any, t: Any, edges: Any) -> Any:
    z = s[edges[1]] + t[edges[0]]
    e = np.exp(np.where(z > 0, z, 0.2 * z))
    return e / e.sum()


@wrong(15, "two of a colour are not one")
def colours(neighbours: Any, rounds: Any) -> Any:
    now = [0] * len(neighbours)
    for _ in range(rounds):
        stories = [(now[i], frozenset(now[j] for j in near)) for i, near in enumerate(neighbours)]
        names = {story: k for k, story in enumerate(dict.fromkeys(stories))}
        now = [names[story] for story in stories]
    return len(set(now))


@wrong(15, "six times")
def triangles(A: Any) -> Any:
    return np.trace(A @ A @ A)
