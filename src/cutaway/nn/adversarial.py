"""Adversarial attacks: small input changes that increase the loss as much as possible.

    FGSM:  x' = x + ε sign(∇_x L)
    PGD:   x_0 within ε of x at random;  x_{t+1} = Π( x_t + α sign(∇_x L(x_t)) ),  Π back into the ball

The fast gradient sign method of I. J. Goodfellow, J. Shlens, C. Szegedy, Explaining and harnessing adversarial
examples, 2014 <https://arxiv.org/abs/1412.6572>, and projected gradient descent as A. Madry, A. Makelov, L. Schmidt,
D. Tsipras, A. Vladu, Towards deep learning models resistant to adversarial attacks, 2017
<https://arxiv.org/abs/1706.06083>. No element of an input changes by more than ε (the L∞ ball), and inputs stay within
their valid range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

Loss = Callable[[Tensor], Tensor]  # maps inputs (N, …) to one number, ()


@dataclass(frozen=True)
class Bounds:
    """The largest change of an input and its valid range: tensors that broadcast to the inputs (N, …)."""

    eps: Tensor
    low: Tensor
    high: Tensor

    def within(self, x: Tensor, about: Tensor) -> Tensor:
        """Project x onto the ε-ball around `about` and the valid range."""
        near = torch.minimum(torch.maximum(x, about - self.eps), about + self.eps)
        return torch.minimum(torch.maximum(near, self.low), self.high)


def fgsm(loss: Loss, x: Tensor, bounds: Bounds) -> Tensor:
    """Take one step of size ε along the sign of the gradient, and return the inputs (N, …)."""
    return bounds.within(x + bounds.eps * _slope(loss, x).sign(), x)


def pgd(loss: Loss, x: Tensor, bounds: Bounds, steps: int, generator: Generator) -> Tensor:
    """Run projected gradient descent from a random point in the ball, and return the inputs (N, …).

    Each step has the size 2.5 ε / `steps`, so that all steps together reach the edge of the ball.
    """
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
