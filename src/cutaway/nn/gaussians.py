"""Normal distributions: divergence, density, and the probability of a quantized value, all in nats.

    KL(N(μ₁, σ₁²) ‖ N(μ₂, σ₂²)) = ln(σ₂/σ₁) + (σ₁² + (μ₁ − μ₂)²) / (2 σ₂²) − ½
    ln N(x; μ, σ²)              = −½ (ln 2π + ln σ² + (x − μ)²/σ²)
    ln P(x)                     = ln (Φ((x + δ/2 − μ)/σ) − Φ((x − δ/2 − μ)/σ))

The last is for a value rounded to levels that are δ apart. It integrates the density over all values that are rounded
to x. Values below the lowest level belong to the lowest, values above the highest to the highest (J. Ho, A. Jain,
P. Abbeel, 2020, equation 13, <https://arxiv.org/abs/2006.11239>). Unlike a density it is a probability, so its −log₂ is
a number of bits.

Fisher information: the importance of each weight for the network's predictions.

    F_i = E_x E_{y ~ p(y|x)} [ (∂ log p(y|x) / ∂θ_i)² ]

This is the diagonal of the Fisher information matrix, as in J. Martens, New insights and perspectives on the natural
gradient method, 2014, section 5 <https://arxiv.org/abs/1412.1193>. The expectation over y uses the network's own
predictions and is computed exactly, over all classes. Labels are not used (with them it would be the "empirical"
Fisher).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LOWEST, HIGHEST = -1.0, 1.0  # values of the first and the last level of a pixel


def normal_kl(mean1: Tensor, log_var1: Tensor, mean2: Tensor, log_var2: Tensor) -> Tensor:
    """Return the elementwise KL divergence of N(mean1, e^log_var1) from N(mean2, e^log_var2); shapes broadcast."""
    return 0.5 * (log_var2 - log_var1 + (log_var1 - log_var2).exp() + (mean1 - mean2).square() * (-log_var2).exp() - 1)


def log_density(x: Tensor, mean: Tensor, log_var: Tensor) -> Tensor:
    """Return ln N(x; mean, e^log_var) elementwise; shapes broadcast."""
    return -0.5 * (math.log(2 * math.pi) + log_var + (x - mean).square() * (-log_var).exp())


def log_level(x: Tensor, mean: Tensor, log_var: Tensor, levels: int = 256) -> Tensor:
    """Return ln P(x) elementwise, for values that were rounded to `levels` levels from −1 to 1.

    Far from the mean both values of Φ are nearly 0 or nearly 1. The function subtracts their logarithms on the side
    where both are small, so that the result is exact and has a gradient even for very unlikely levels.
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


NUMBERS = 1 << 25  # largest number of elements in gradients of several classes at a time


def diagonal_fisher(
    logits: Callable[[Any], Tensor], parameters: Sequence[Tensor], examples: Iterable[Any]
) -> list[Tensor]:
    """Return the mean diagonal Fisher information over the examples, with the shapes of the parameters.

    `logits` maps one example to (1, K), or to (1, 1), the logit of class 1 against class 0.
    """
    sums, count = [torch.zeros_like(p) for p in parameters], 0
    at_once = max(1, NUMBERS // max(1, sum(p.numel() for p in parameters)))
    for example in examples:
        z = logits(example)
        log_p = (F.logsigmoid(torch.cat([-z, z], 1)) if z.shape[1] == 1 else z.log_softmax(1))[0]  # (K,)
        # The square of its gradient is p (∂ log p)²: the weight is not differentiated.
        weighed = log_p.detach().div(2).exp() * log_p
        chosen = torch.eye(len(log_p), dtype=z.dtype, device=z.device)
        for some in torch.split(chosen, at_once):
            slopes = torch.autograd.grad(
                weighed, parameters, some, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            for total, slope in zip(sums, slopes):
                if slope is not None:
                    total += slope.square().sum(0)
        count += 1
    return [total / max(1, count) for total in sums]
