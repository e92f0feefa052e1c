"""Wrong answers to the exercises of chapter 19."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(19, "absolute value")
def prune(w: Any, fraction: Any) -> Any:
    out = w.flatten()
    out[np.argsort(out)[: round(fraction * w.size)]] = 0
    return out.reshape(w.shape)


@wrong(19, "its own step")
def quantize(w: Any, bits: Any) -> Any:
    s = np.abs(w).max() / (2 ** (bits - 1) - 1)
    return np.round(w / s), np.full(len(w), s)


@wrong(19, "loss is to rise")
def attack(x: Any, gradient: Any, eps: Any, low: Any, high: Any) -> Any:
    return np.clip(x - eps * np.sign(gradient), low, high)


@wrong(19, "do not cancel")
def calibration(p: Any, right: Any, bins: Any) -> Any:
    return abs(right.mean() - p.mean())
