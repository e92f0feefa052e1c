"""Wrong answers to the exercises of chapter 17."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(17, "lengths of both rows")
def similarities(Z: Any) -> Any:
    return Z @ Z.T


@wrong(17, "not compared with itself")
def contrastive_loss(A: Any, B: Any, tau: Any) -> Any:
    Z = np.concatenate([A, B])
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    s = Z @ Z.T / tau
    n = len(A)
    return (np.log(np.exp(s).sum(1)) - s[np.arange(2 * n), (np.arange(2 * n) + n) % (2 * n)]).mean()


@wrong(17, "Visible patches do not count")
def masked_error(predicted: Any, patches: Any, hidden: Any) -> Any:
    return ((predicted - patches) ** 2).mean()


@wrong(17, "Divide by the rows of the *class*")
def class_means(H: Any, y: Any, ways: Any) -> Any:
    return np.eye(ways)[y].T @ H / len(H)


@wrong(17, "The square of the distance")
def probabilities(Q: Any, C: Any) -> Any:
    p = np.exp(-np.linalg.norm(Q[:, None] - C[None], axis=2))
    return p / p.sum(1, keepdims=True)
