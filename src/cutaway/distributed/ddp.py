"""Data parallel training: DistributedDataParallel around the loss of a batch, and synchronized batch normalization.

S. Li et al., PyTorch distributed: experiences on accelerating data parallel training, 2020
<https://arxiv.org/abs/2006.15704>. Gradients are sent in buckets, as soon as they are computed.

S. Ioffe, C. Szegedy, Batch normalization, 2015 <https://arxiv.org/abs/1502.03167>, algorithm 1: mean and variance are
computed over the batches of all processes, so that a network learns the same in one process and in many. PyTorch's
`SyncBatchNorm` supports GPUs only.
"""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

from .group import all_reduce_sum

# No `from __future__ import annotations`: DistributedDataParallel compares the annotations of its hook.


class LossModule(nn.Module):
    """Loss of a batch as a module. Its parameters are those of the model."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *batch: Any) -> Any:
        """Compute the loss of a batch."""
        assert self.loss is not None, "the loss is set before the first batch"
        return self.loss(*batch)


def wrap_in_ddp(model: nn.Module, loss: Callable[..., Any]) -> DistributedDataParallel:
    """Wrap `loss` in DDP so that every process has the sum of all gradients after the backward pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # newer versions rename broadcast_buffers
        # A batch may leave parts of a model unused. Buffers are either equal already or local to a process.
        # Gradients are views of the buckets, so that each process stores them only once.
        wrapped = DistributedDataParallel(
            LossModule(model, loss), find_unused_parameters=True, broadcast_buffers=False, gradient_as_bucket_view=True
        )
    wrapped.register_comm_hook(None, _all_reduce_bucket)
    return wrapped


def _all_reduce_bucket(state: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Sum a bucket over processes, always in the order of their ranks.

    PyTorch's ring adds in an order that depends on the position of a gradient in its bucket, and the buckets are
    rebuilt after the first step. A resumed run would then not be bit-identical to an uninterrupted one.
    """
    flat, count = bucket.buffer(), dist.get_world_size()
    even = len(flat) // count * count
    shared, rest = flat[:even], flat[even:]
    if even:
        received = torch.empty_like(shared)
        dist.all_to_all_single(received, shared)  # from each process, the part that this one sums
        dist.all_gather([*shared.view(count, -1)], _sum_rows(received.view(count, -1)))
    if len(rest):
        of_all = rest.new_empty(count, len(rest))
        dist.all_gather([*of_all], rest)
        rest.copy_(_sum_rows(of_all))
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(flat)
    return done


# DistributedDataParallel compares the annotations, which `from __future__ import annotations` makes strings.
_all_reduce_bucket.__annotations__.update(bucket=GradBucket, **{"return": torch.futures.Future[Tensor]})


def _sum_rows(rows: Tensor) -> Tensor:
    """Sum rows, shape (R, n), in their order. The result, shape (n,), overwrites the first row."""
    total = rows[0]
    for row in rows[1:]:
        total += row
    return total


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
