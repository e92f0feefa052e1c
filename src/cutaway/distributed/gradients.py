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
        wrapped = DistributedDataParallel(Loss(model, loss), find_unused_parameters=True, broadcast_buffers=False)
    wrapped.register_comm_hook(None, _summed)
    return wrapped


def _summed(state: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """The sum over processes of a bucket, always added in the order of their ranks.

    PyTorch's own ring adds in an order that depends on where in its bucket a gradient stands, and buckets are laid out
    anew after the first step: a run that goes on would not be, bit for bit, the one that was not stopped.
    """
    flat, count = bucket.buffer(), dist.get_world_size()
    size = -(-len(flat) // count)
    parts = flat.new_zeros(count * size)
    parts[: len(flat)] = flat
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts)  # of each process, the part that is this one's to add
    first, *others = received.view(count, size)
    summed = first.clone()
    for other in others:
        summed += other
    dist.all_gather([*parts.view(count, size)], summed)
    flat.copy_(parts[: len(flat)])
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(flat)
    return done
