"""Adversarial examples: inputs changed as little as is asked for, so that the loss rises most.

    FGSM:  x' = x + ε sign(∇_x L)
    PGD:   x_0 within ε of x at random;  x_{t+1} = Π( x_t + α sign(∇_x L(x_t)) ),  Π back into the ball

The fast gradient sign method of I. J. Goodfellow, J. Shlens, C. Szegedy, Explaining and harnessing adversarial
examples, 2014 <https://arxiv.org/abs/1412.6572>, and projected gradient descent as A. Madry, A. Makelov, L. Schmidt,
D. Tsipras, A. Vladu, Towards deep learning models resistant to adversarial attacks, 2017
<https://arxiv.org/abs/1706.06083>. No input moves by more than ε in any of its numbers (the ball of the largest norm),
nor leaves the bounds of what an input can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

Loss = Callable[[Tensor], Tensor]  # of inputs (N, …): one number, ()


@dataclass(frozen=True)
class Bounds:
    """How far inputs may move, and between which values they stay: tensors that broadcast to theirs (N, …)."""

    eps: Tensor
    low: Tensor
    high: Tensor

    def within(self, x: Tensor, about: Tensor) -> Tensor:
        """x brought back to within ε of `about`, and between the values that an input can have."""
        near = torch.minimum(torch.maximum(x, about - self.eps), about + self.eps)
        return torch.minimum(torch.maximum(near, self.low), self.high)


def fgsm(loss: Loss, x: Tensor, bounds: Bounds) -> Tensor:
    """One step of ε along the sign of the gradient, (N, …)."""
    return bounds.within(x + bounds.eps * _slope(loss, x).sign(), x)


def pgd(loss: Loss, x: Tensor, bounds: Bounds, steps: int, generator: Generator) -> Tensor:
    """So many steps from a place in the ball at random, (N, …), each of 2.5 ε / steps: together they reach its edge."""
    drawn = torch.rand(x.shape, generator=generator, device=generator.device).to(x)
    moved = bounds.within(x + bounds.eps * (2 * drawn - 1), x)
    for _ in range(steps):
        moved = bounds.within(moved + 2.5 / steps * bounds.eps * _slope(loss, moved).sign(), x)
    return moved


def _slope(loss: Loss, x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss(x), x)
    return slope
