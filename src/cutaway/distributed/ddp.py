"""The gradient of all processes: PyTorch's DistributedDataParallel around the loss of a batch.

S. Li et al., PyTorch distributed: experiences on accelerating data parallel training, 2020
<https://arxiv.org/abs/2006.15704>. What it sends are buckets of gradients, as soon as they are known.
"""

# Annotations are no strings here: DistributedDataParallel compares those of its hook.

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel


class Loss(nn.Module):
    """The loss of a batch as a module, whose parameters are those of the model that it asks."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *batch: Any) -> Any:
        """What the loss is told of a batch."""
        assert self.loss is not None, "it is said before the first batch"
        return self.loss(*batch)


def added_up(model: nn.Module, loss: Callable[..., Any]) -> DistributedDataParallel:
    """`loss` as it is, after whose backward pass each process has the sum of all gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers has another name in newer versions
        # Not all of a model need take part in a batch. Buffers are the same already, or are nobody else's.
        # Gradients stand in the buckets, so that a process has them once.
        wrapped = DistributedDataParallel(
            Loss(model, loss), find_unused_parameters=True, broadcast_buffers=False, gradient_as_bucket_view=True
        )
    wrapped.register_comm_hook(None, _summed)
    return wrapped


def _summed(state: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """The sum over processes of a bucket, always added in the order of their ranks.

    PyTorch's own ring adds in an order that depends on where in its bucket a gradient stands, and buckets are laid out
    anew after the first step: a run that goes on would not be, bit for bit, the one that was not stopped.
    """
    flat, count = bucket.buffer(), dist.get_world_size()
    even = len(flat) // count * count
    shared, rest = flat[:even], flat[even:]
    if even:
        received = torch.empty_like(shared)
        dist.all_to_all_single(received, shared)  # of each process, the part that is this one's to add
        dist.all_gather([*shared.view(count, -1)], _added(received.view(count, -1)))
    if len(rest):
        of_all = rest.new_empty(count, len(rest))
        dist.all_gather([*of_all], rest)
        rest.copy_(_added(of_all))
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(flat)
    return done


def _added(rows: Tensor) -> Tensor:
    """The sum of rows, (n,), in their order; it takes the place of the first."""
    total = rows[0]
    for row in rows[1:]:
        total += row
    return total
