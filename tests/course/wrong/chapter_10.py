"""Wrong answers to the exercises of chapter 10."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(10, "after the padding")
def last_states(h: Any, lengths: Any) -> Any:
    return h[:, -1]


@wrong(10, "would learn to copy")
def teacher_forced(y: Any, begin: Any) -> Any:
    return y


@wrong(10, "Without tanh")
def additive_scores(W: Any, U: Any, v: Any, s: Any, H: Any) -> Any:
    return (W @ s + H @ U.T) @ v


@wrong(10, "mask before the softmax")
def context(scores: Any, H: Any, real: Any) -> Any:
    weights = np.exp(scores) / np.exp(scores).sum()
    return (weights * real) @ H


@wrong(10, "That is greedy")
def beam(P: Any, first: Any, steps: Any, width: Any) -> Any:
    said = [first]
    for _ in range(steps):
        said.append(int(P[said[-1]].argmax()))
    return said[1:]


@wrong(10, "divided by the penalty")
def best(answers: Any, alpha: Any) -> Any:
    return int(np.argmax([log_p * ((5 + n) / 6) ** alpha for log_p, n in answers]))


@wrong(10, "not correct seven times")
def ngram_precision(said: Any, right: Any, n: Any) -> Any:
    grams = [[tuple(s[i : i + n]) for i in range(len(s) - n + 1)] for s in (said, right)]
    return sum(gram in grams[1] for gram in grams[0]) / len(grams[0])
