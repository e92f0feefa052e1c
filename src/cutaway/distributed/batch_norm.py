"""Synchronized batch normalization: mean and variance are computed over the batches of all processes.

S. Ioffe, C. Szegedy, Batch normalization, 2015 <https://arxiv.org/abs/1502.03167>, algorithm 1, with sums over all
processes. A network therefore learns the same in one process and in many. PyTorch's `SyncBatchNorm` supports GPUs only.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .group import all_reduce_sum

SIGNATURE = inspect.signature(F.batch_norm)


class SynchronizedBatchNorm(TorchFunctionMode):
    """Context in which every batch normalization in training mode is synchronized, whichever module calls it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace `F.batch_norm` in training mode and call every other function unchanged."""
        if func is F.batch_norm:
            given = SIGNATURE.bind(*args, **(kwargs or {})).arguments
            if given.pop("training", False):
                return batch_norm(**given)
        return func(*args, **(kwargs or {}))


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize the input of this process by the channel means and variances over the inputs of all processes.

    Args:
        input: Input of this process, shape (N, C, …).
        running_mean: Running mean, shape (C,), which is updated in place.
        running_var: Running variance, shape (C,), which is updated in place.
        weight: Scale of each channel, shape (C,).
        bias: Shift of each channel, shape (C,).
        momentum: Weight of this batch in the running statistics.
        eps: Value that is added to the variance.

    Returns:
        The normalized input, shape (N, C, …).
    """
    x = input
    dims = [d for d in range(x.ndim) if d != 1]
    shape = [1, -1] + [1] * (x.ndim - 2)
    count = all_reduce_sum(torch.tensor(float(x.numel() // x.shape[1]), dtype=torch.float64)).to(x)
    mean = _sum(x.sum(dims)) / count  # (C,)
    centred = x - mean.view(shape)
    variance = _sum(centred.square().sum(dims)) / count  # (C,)
    with torch.no_grad():
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean), momentum)
            running_var.lerp_((variance * count / (count - 1)).to(running_var), momentum)
    y = centred * (variance + eps).rsqrt().view(shape)
    if weight is not None:
        y = y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


class _Sum(torch.autograd.Function):
    """Sum over all processes. Its gradient is the sum of the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return all_reduce_sum(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return all_reduce_sum(gradient.contiguous())


def _sum(x: Tensor) -> Tensor:
    y: Tensor = _Sum.apply(x)  # type: ignore[no-untyped-call]
    return y
