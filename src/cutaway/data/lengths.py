"""Batches of sequences of nearly equal length, so that a batch costs what it contains and not what its longest does."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

POOL = 50  # batches whose examples are sorted together: enough to be nearly of one length, few enough to stay mixed


def bucketed(lengths: Tensor, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
    """Example numbers for each batch. `lengths` (n,).

    With a generator, examples are shuffled, sorted within pools of 50 batches, and the batches are shuffled; without
    one, all are sorted.
    """
    if generator is None:
        return list(torch.split(lengths.argsort(stable=True), batch_size))
    order = torch.randperm(len(lengths), generator=generator)
    pools = torch.split(order, POOL * batch_size)
    batches = [batch for pool in pools for batch in torch.split(pool[lengths[pool].argsort()], batch_size)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator)]


def padding(lengths: Tensor, plan: Iterable[Tensor]) -> float:
    """The share of all steps of these batches that is padding, in [0, 1)."""
    real = room = 0
    for batch in plan:
        real += int(lengths[batch].sum())
        room += len(batch) * int(lengths[batch].max())
    return 1 - real / room if room else 0.0
