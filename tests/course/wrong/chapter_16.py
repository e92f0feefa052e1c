"""Wrong answers to the exercises of chapter 16."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(16, "factor of ½")
def kl(mu: Any, log_var: Any) -> Any:
    return (mu**2 + np.exp(log_var) - 1 - log_var).sum()


@wrong(16, "made fainter")
def denoised(xt: Any, noise: Any, signal: Any) -> Any:
    return xt - np.sqrt(1 - signal) * noise


@wrong(16, "did not end have no vote")
def consistent(answers: Any, likelihoods: Any) -> Any:
    return max(answers, key=answers.count)


@wrong(16, "absolute value")
def prune(w: Any, fraction: Any) -> Any:
    out = w.flatten()
    out[np.argsort(out)[: round(fraction * w.size)]] = 0
    return out.reshape(w.shape)


@wrong(16, "its own step")
def quantize(w: Any, bits: Any) -> Any:
    s = np.abs(w).max() / (2 ** (bits - 1) - 1)
    return np.round(w / s), np.full(len(w), s)


@wrong(16, "loss is to rise")
def attack(x: Any, gradient: Any, eps: Any, low: Any, high: Any) -> Any:
    return np.clip(x - eps * np.sign(gradient), low, high)


@wrong(16, "do not cancel")
def calibration(p: Any, right: Any, bins: Any) -> Any:
    return abs(right.mean() - p.mean())
