"""Wrong answers to the exercises of chapter 14."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(14, "pieces of rows")
def patches(image: Any, P: Any) -> Any:
    return image.reshape(-1, P * P)


@wrong(14, "class token asks")
def token_pairs(height: Any, width: Any, P: Any) -> Any:
    return ((height // P) * (width // P)) ** 2


@wrong(14, "Positions are learned")
def vit_parameters(P: Any, C: Any, N: Any, D: Any, L: Any, classes: Any) -> Any:
    return P * P * C * D + 2 * D + L * (12 * D * D + 13 * D) + 2 * D + D * classes + classes


@wrong(14, "the least is seen")
def mae_split(noise: Any, ratio: Any) -> Any:
    order = np.argsort(noise)[::-1]
    count = max(1, int((1 - ratio) * len(noise)))
    return order[:count], order[count:]


@wrong(14, "way around the attention")
def rollout(weights: Any) -> Any:
    R = np.eye(weights.shape[-1])
    for W in weights.mean(1):
        R = W @ R
    return R


@wrong(14, "the score falls: that is positive")
def occlusion(f: Any, image: Any, P: Any, fill: Any) -> Any:
    rows, columns = image.shape[0] // P, image.shape[1] // P
    found = np.zeros((rows, columns))
    for k in range(rows * columns):
        i, j = divmod(k, columns)
        without = image.copy()
        without[i * P : (i + 1) * P, j * P : (j + 1) * P] = fill
        found[i, j] = f(without) - f(image)
    return found
