"""Which examples make which batch of an epoch: it follows from the seed and the epoch alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..data.sets import Split
from .evaluation import planned
from .placement import Placement
from .settings import TrainSettings


def batches_of(split: Split, settings: TrainSettings, place: Placement, epoch: int) -> list[Tensor]:
    """The example numbers of each training batch of an epoch, the same whenever it is asked."""
    generator, size = torch.Generator().manual_seed(mix(settings.seed, epoch)), settings.batch_size or len(split)
    if hasattr(split, "plan"):
        return planned(split, size, generator, settings.batch_tokens)[place.rank :: place.processes]
    if settings.sampling == "balanced":
        order = balanced_order(_target_of(split), generator)
    else:
        order = torch.randperm(len(split), generator=generator)
    batches = list(place.shard(order).split(size))  # type: ignore[no-untyped-call]
    if len(batches) > 1 and len(batches[-1]) == 1 < size:
        # One example has no variance for batch norm to divide by: it joins the batch before it.
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def reach(split: Split, settings: TrainSettings, place: Placement, epochs: int | None = None) -> tuple[int, int]:
    """How many epochs the updates that are asked for take, of at most `epochs` (those of the settings, unless given),
    and how many updates those are: the last epoch may be left early."""
    wanted, most = settings.max_steps or 1, epochs or settings.epochs
    epoch = updates = 0
    while updates < wanted and epoch < most:
        updates += math.ceil(len(batches_of(split, settings, place, epoch)) / settings.accumulate)
        epoch += 1
    return epoch, min(updates, wanted)


def balanced_order(target: Tensor, generator: torch.Generator) -> Tensor:
    """As many example numbers as there are examples, (n,): each is of a class drawn at random among those that occur,
    and any of its examples. `target` is the class of each example, (n,)."""
    counts = target.bincount()
    counts = counts[counts > 0]
    by_class = target.argsort(stable=True)  # the examples of one class stand together, from its start on
    start = counts.cumsum(0) - counts
    drawn = torch.randint(len(counts), target.shape, generator=generator)
    place = torch.rand(target.shape, generator=generator, dtype=torch.float64) * counts[drawn]
    return by_class[start[drawn] + place.long()]


def _target_of(split: Split) -> Tensor:
    """The targets of a split that one can learn from, on the CPU."""
    assert split.target is not None, "a split to learn from or to validate on has targets"
    return split.target.cpu()


def mix(*numbers: int) -> int:
    """One seed of several numbers, so that neighbours have nothing in common."""
    mixed = 0
    for number in numbers:  # the multiplier and shifts are SplitMix64's
        mixed = (mixed + number + 0x9E3779B97F4A7C15) & (2**64 - 1)
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        mixed ^= mixed >> 27
    return mixed & (2**63 - 1)
