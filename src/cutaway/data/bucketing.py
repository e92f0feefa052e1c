"""Batches of sequences of similar length, to reduce padding."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

POOL = 50  # batches sorted together: enough for similar lengths, few enough to keep the order random


def bucket_batches(
    lengths: Tensor,
    batch_size: int,
    generator: torch.Generator | None,
    tokens: int = 0,
    *,
    by: Tensor | None = None,
) -> list[Tensor]:
    """Return the example numbers of each batch for `lengths` (n,).

    With a generator, examples are shuffled and sorted within pools of 50 batches, and the batches are shuffled. Without
    one, all examples are sorted. The sort key is the length, or `by` (n,) if given.

    With `tokens`, the number of examples in a batch varies. The batch size times the longest length, padding included,
    is at most `tokens`; a longer example gets its own batch.
    """
    by = lengths if by is None else by
    if generator is None:
        return _split_batches(by.argsort(stable=True), lengths, batch_size, tokens)
    order = torch.randperm(len(lengths), generator=generator)
    if tokens:
        pool_of = (lengths[order].cumsum(0) - 1) // (POOL * tokens)  # rising, and some numbers are left out
        pools = torch.split(order, [n for n in pool_of.bincount().tolist() if n])
    else:
        pools = torch.split(order, POOL * batch_size)
    batches = [
        batch for pool in pools for batch in _split_batches(pool[by[pool].argsort()], lengths, batch_size, tokens)
    ]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator)]


def padding_fraction(lengths: Tensor, plan: Iterable[Tensor]) -> float:
    """Return the fraction of all steps of these batches that is padding, in [0, 1)."""
    real = room = 0
    for batch in plan:
        real += int(lengths[batch].sum())
        room += len(batch) * int(lengths[batch].max())
    return 1 - real / room if room else 0.0


def _split_batches(order: Tensor, lengths: Tensor, batch_size: int, tokens: int) -> list[Tensor]:
    """Split the ordered examples into batches."""
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
