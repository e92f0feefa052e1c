"""Wrong answers to the exercises of chapter 11."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(11, "before the softmax")
def attention(Q: Any, K: Any, V: Any) -> Any:
    powers = np.exp(Q @ K.T)
    return powers / powers.sum(1, keepdims=True) / np.sqrt(Q.shape[1]) @ V


@wrong(11, "Turned round")
def causal(T: Any, S: Any) -> Any:
    return np.triu(np.ones((T, S)))


@wrong(11, "alternate")
def sinusoid(p: Any, d: Any) -> Any:
    angles = p / 10000 ** (np.arange(0, d, 2) / d)
    return np.concatenate([np.sin(angles), np.cos(angles)])


@wrong(11, "halves apart")
def rotate(x: Any, p: Any) -> Any:
    angles = p / 10000 ** (np.arange(0, len(x), 2) / len(x))
    a, b = np.split(x, 2)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)])


@wrong(11, "d_k, d_k")
def circuits(W_Q: Any, W_K: Any, W_V: Any, W_O: Any) -> Any:
    return W_Q.T @ W_K, W_V @ W_O


@wrong(11, "four in all")
def cost(T: Any, d: Any) -> Any:
    return 3 * T * d**2, 2 * T**2 * d


@wrong(11, "looks at the one after it")
def induction(A: Any, tokens: Any) -> Any:
    same = np.tril(tokens[:, None] == tokens[None], -1)
    return (A * same).sum(1)[same.any(1)].mean()
