"""Summed gradients of all processes: PyTorch's DistributedDataParallel around the loss of a batch.

S. Li et al., PyTorch distributed: experiences on accelerating data parallel training, 2020
<https://arxiv.org/abs/2006.15704>. Gradients are sent in buckets, as soon as they are computed.
"""

# No `from __future__ import annotations`: DistributedDataParallel compares the annotations of its hook.

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel


class LossModule(nn.Module):
    """Loss of a batch as a module. Its parameters are those of the model."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *batch: Any) -> Any:
        """Compute the loss of a batch."""
        assert self.loss is not None, "it is said before the first batch"
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


def _sum_rows(rows: Tensor) -> Tensor:
    """Sum rows, shape (R, n), in their order. The result, shape (n,), overwrites the first row."""
    total = rows[0]
    for row in rows[1:]:
        total += row
    return total
