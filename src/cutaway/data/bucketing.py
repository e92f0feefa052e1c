"""Batches of sequences of nearly equal length, so that a batch costs what it contains and not what its longest does."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

POOL = 50  # batches whose examples are sorted together: enough to be nearly of one length, few enough to stay mixed


def bucketed(
    lengths: Tensor,
    batch_size: int,
    generator: torch.Generator | None,
    tokens: int = 0,
    *,
    by: Tensor | None = None,
) -> list[Tensor]:
    """Example numbers for each batch. `lengths` (n,).

    With a generator, examples are shuffled, sorted within pools of 50 batches, and the batches are shuffled; without
    one, all are sorted. They are sorted by their lengths, or by `by` (n,) where that is given.

    With `tokens` a batch has no number of examples: it holds at most so many tokens, padding among them, which is its
    count times its longest. An example that is longer than that stands alone.
    """
    by = lengths if by is None else by
    if generator is None:
        return _cut(by.argsort(stable=True), lengths, batch_size, tokens)
    order = torch.randperm(len(lengths), generator=generator)
    if tokens:
        pool_of = (lengths[order].cumsum(0) - 1) // (POOL * tokens)  # rising, and some numbers are left out
        pools = torch.split(order, [n for n in pool_of.bincount().tolist() if n])
    else:
        pools = torch.split(order, POOL * batch_size)
    batches = [batch for pool in pools for batch in _cut(pool[by[pool].argsort()], lengths, batch_size, tokens)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator)]


def padding(lengths: Tensor, plan: Iterable[Tensor]) -> float:
    """The fraction of all steps of these batches that is padding, in [0, 1)."""
    real = room = 0
    for batch in plan:
        real += int(lengths[batch].sum())
        room += len(batch) * int(lengths[batch].max())
    return 1 - real / room if room else 0.0


def _cut(order: Tensor, lengths: Tensor, batch_size: int, tokens: int) -> list[Tensor]:
    """The examples in their order, cut into batches."""
    if not tokens:
        return list(torch.split(order, batch_size))
    sizes: list[int] = []
    count = longest = 0
    for length in lengths[order].tolist():
        longest = max(longest, length)
        if count and (count + 1) * longest > tokens:
            sizes.append(count)
            count, longest = 0, length
        count += 1
    return list(torch.split(order, [*sizes, count])) if count else []
