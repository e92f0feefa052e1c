"""Wrong answers to the exercises of chapter 13."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(13, "used up by the first pair")
def merge(tokens: Any, a: Any, b: Any) -> Any:
    out: list[Any] = []
    for k, token in enumerate(tokens):
        if tokens[k : k + 2] == [a, b]:
            out.append(a + b)
        elif k == 0 or tokens[k - 1 : k + 1] != [a, b]:
            out.append(token)
    return out


@wrong(13, "a tenth becomes another")
def hide(tokens: Any, chosen: Any, fate: Any, others: Any, mask: Any) -> Any:
    return np.where(chosen, mask, tokens)


@wrong(13, "mean of each token's perplexity")
def perplexity(p: Any) -> Any:
    return (1 / p).mean()


@wrong(13, "bits a token")
def bits_a_character(loss: Any, tokens: Any, characters: Any) -> Any:
    return loss / np.log(2)


@wrong(13, "it is there once")
def bert_parameters(V: Any, T: Any, d: Any, L: Any) -> Any:
    blocks = L * (12 * d * d + 13 * d)
    return 2 * V * d + (T + 2) * d + 2 * d + blocks + d * d + 3 * d + V


@wrong(13, "the number of A's rows")
def lora(W: Any, A: Any, B: Any, alpha: Any, x: Any) -> Any:
    return W @ x + alpha * B @ A @ x
