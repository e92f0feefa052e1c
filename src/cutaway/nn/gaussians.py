"""Normal distributions: divergences, densities, and the probability of a grey level, all in nats.

    KL(N(μ₁, σ₁²) ‖ N(μ₂, σ₂²)) = ln(σ₂/σ₁) + (σ₁² + (μ₁ − μ₂)²) / (2 σ₂²) − ½
    ln N(x; μ, σ²)              = −½ (ln 2π + ln σ² + (x − μ)²/σ²)
    ln P(x)                     = ln (Φ((x + δ/2 − μ)/σ) − Φ((x − δ/2 − μ)/σ))

The last is of a number that was rounded to levels δ apart: the density integrated over what is rounded to x, all that
is lower belonging to the lowest level and all that is higher to the highest (J. Ho, A. Jain, P. Abbeel, 2020, equation
13, <https://arxiv.org/abs/2006.11239>). Unlike a density it is a probability, so that its −log₂ is a number of bits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOWEST, HIGHEST = -1.0, 1.0  # what the first and the last level of a pixel are


def normal_kl(mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor) -> Tensor:
    """KL divergence of N(mean1, e^log_var1) from N(mean2, e^log_var2), number by number; shapes broadcast."""
    return 0.5 * (log_var2 - log_var1 + (log_var1 - log_var2).exp() + (mean1 - mean2).square() * (-log_var2).exp() - 1)


def log_density(x: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """ln N(x; mean, e^log_var), number by number; shapes broadcast."""
    return -0.5 * (math.log(2 * math.pi) + log_var + (x - mean).square() * (-log_var).exp())


def log_level(x: Tensor, mean: Tensor, log_var: Tensor, levels: int = 256) -> Tensor:
    """ln P(x) of numbers that were rounded to so many levels from −1 to 1, number by number.

    Far from the mean both Φ are nearly 0 or nearly 1: their logarithms are subtracted, on the side where both are
    small, so that the result stays exact and has a gradient however unlikely the level is.
    """
    half = (HIGHEST - LOWEST) / (levels - 1) / 2
    scale = (-0.5 * log_var).exp()
    above, below = (x - mean + half) * scale, (x - mean - half) * scale
    flip = above + below > 0  # Φ(b) − Φ(a) = Φ(−a) − Φ(−b)
    high = torch.special.log_ndtr(torch.where(flip, -below, above))
    low = torch.special.log_ndtr(torch.where(flip, -above, below))
    inside = high + torch.log(-torch.expm1((low - high).clamp(max=-1e-30)))
    lowest, highest = torch.special.log_ndtr(above), torch.special.log_ndtr(-below)
    return torch.where(x < LOWEST + half, lowest, torch.where(x > HIGHEST - half, highest, inside))
