"""Wrong answers to the exercises of chapter 16."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import wrong


@wrong(16, "factor of ½")
def kl(mu: Any, log_var: Any) -> Any:
    return (mu**2 + np.exp(log_var) - 1 - log_var).sum()


@wrong(16, "α_t of each step alone")
def alphas_bar(betas: Any) -> Any:
    return 1 - betas


@wrong(16, "made fainter")
def denoised(xt: Any, noise: Any, signal: Any) -> Any:
    return xt - np.sqrt(1 - signal) * noise


@wrong(16, "z is random")
def elbo(x: Any, w: Any, b: Any, s: Any, mu: Any, sigma: Any) -> Any:
    reconstruction = -len(x) / 2 * np.log(2 * np.pi * s**2) - ((x - w * mu - b) ** 2).sum() / (2 * s**2)
    return reconstruction - 0.5 * (mu**2 + sigma**2 - 1 - np.log(sigma**2))


@wrong(16, "take the roots")
def step_posterior(x0: Any, xt: Any, now: Any, before: Any) -> Any:
    alpha = now / before
    mean = (alpha * (1 - before) * xt + before * (1 - alpha) * x0) / (1 - now)
    return mean, (1 - before) / (1 - now) * (1 - alpha)


@wrong(16, "of the step *before*")
def noise_weights(betas: Any) -> Any:
    return (betas / (2 * (1 - betas) * (1 - np.cumprod(1 - betas))))[1:]
