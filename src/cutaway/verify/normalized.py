"""Batch normalization by its definition, for oracles that are written out."""

from __future__ import annotations

import torch
from torch import Tensor


def batch_normalized(x: Tensor, mean: Tensor, variance: Tensor, scale: Tensor, shift: Tensor, training: bool) -> Tensor:
    """Normalize x (N, C, …) to mean 0 and variance 1 in each channel, then scale and shift.

    In training the statistics of the batch are used, and a tenth of them is added to the running ones. In evaluation
    the running ones are used.
    """
    if training:
        values = x.transpose(0, 1).flatten(1)  # (C, N·P)
        n = values.shape[1]
        own = values.mean(1)
        squares = ((values - own[:, None]) ** 2).mean(1)
        mean.mul_(0.9).add_(own.detach(), alpha=0.1)
        variance.mul_(0.9).add_(squares.detach() * n / (n - 1), alpha=0.1)
        mean, variance = own, squares
    shape = (-1, *[1] * (x.ndim - 2))
    root = torch.sqrt(variance + 1e-5).view(shape)
    return (x - mean.view(shape)) / root * scale.view(shape) + shift.view(shape)
