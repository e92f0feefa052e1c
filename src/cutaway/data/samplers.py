"""Batches of an epoch, computed on demand, and the permutation that shuffles them.

A corpus of 6 GB has a hundred million windows. Their order alone would take 0.8 GB, batches as tensors would take more,
and a run resumed late in an epoch would wait for all of them. Each batch is therefore computed from its number. Beyond
2²² examples the order is computed too, by a Feistel network on exactly that many numbers (J. Black, P. Rogaway, Ciphers
with arbitrary finite domains, 2002, <https://doi.org/10.1007/3-540-45760-7_9>, method 3). It is a permutation for every
round function, and its mixing depends on that function; it needs no memory and has constant-time random access.

Batches of sequences of similar length, to reduce padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

HELD = 1 << 22  # up to this number of examples the permutation is stored: 33 MB
ROUNDS = 8
AT_ONCE = 1 << 13  # positions of a permutation computed together
Numbers = npt.NDArray[np.uint64]
Batches = Sequence[Tensor]  # example numbers of each batch


class BatchPlan(Sequence[Tensor]):
    """A sequence of batches of example numbers, (N,) int64, each computed on demand. A slice is a plan too."""

    def __init__(self, numbers: range, batch: Callable[[int], Tensor]) -> None:
        """Initialize with the batch numbers and the function that computes a batch from its number."""
        self._numbers, self._batch = numbers, batch

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Tensor]:
        return map(self._batch, self._numbers)

    @overload
    def __getitem__(self, i: int) -> Tensor: ...
    @overload
    def __getitem__(self, i: slice) -> BatchPlan: ...
    def __getitem__(self, i: int | slice) -> Tensor | BatchPlan:
        if isinstance(i, slice):
            return BatchPlan(self._numbers[i], self._batch)
        return self._batch(self._numbers[i])


class SampleOrder:
    """The numbers 0 … n−1 in order, or, with a generator, in a random permutation."""

    def __init__(self, n: int, generator: torch.Generator | None) -> None:
        self.n = n
        self._held: Tensor | None = None
        self._drawn: Permutation | None = None
        if generator is not None and n <= HELD:
            self._held = torch.randperm(n, generator=generator)
        elif generator is not None:
            self._drawn = Permutation(n, int(torch.randint(1 << 62, (), generator=generator)))

    def part(self, start: int, end: int) -> Tensor:
        """Return the numbers at positions start to end, or to the last position, (end − start,)."""
        if self._held is not None:
            return self._held[start:end]
        if self._drawn is not None:
            return self._drawn.part(start, min(end, self.n))
        return torch.arange(start, min(end, self.n))

    def plan(self, batch_size: int) -> BatchPlan:
        """Split the order into batches; the last one may be smaller."""
        return BatchPlan(range(-(-self.n // batch_size)), lambda k: self.part(k * batch_size, (k + 1) * batch_size))


class Permutation:
    """A permutation of 0 … n−1 derived from a seed, computed on demand without storing it."""

    def __init__(self, n: int, seed: int) -> None:
        self.n = n
        self._left = np.uint64(math.isqrt(n - 1) + 1 if n > 1 else 1)  # sides of a rectangle of at least n positions
        self._right = np.uint64(-(-n // int(self._left)))
        self._keys = _mix_bits(np.uint64(seed) + np.arange(1, ROUNDS + 1, dtype=np.uint64))
        self._block: tuple[int, Tensor] = (-1, torch.empty(0, dtype=torch.int64))

    def at(self, places: Numbers) -> Numbers:
        """Return the numbers at these positions, (k,) uint64."""
        found = self._apply_network(places)
        while len(beyond := np.flatnonzero(found >= self.n)):  # outside 0 … n−1: apply the network again
            found[beyond] = self._apply_network(found[beyond])
        return found

    def part(self, start: int, end: int) -> Tensor:
        """Return the numbers at positions start to end, (end − start,) int64. Neighbours are computed together."""
        parts = []
        while start < end:
            number, within = divmod(start, AT_ONCE)
            if self._block[0] != number:
                first = number * AT_ONCE
                places = np.arange(first, min(first + AT_ONCE, self.n), dtype=np.uint64)
                self._block = number, torch.from_numpy(self.at(places).astype(np.int64))
            parts.append(self._block[1][within : within + end - start])
            start += len(parts[-1])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _apply_network(self, places: Numbers) -> Numbers:
        """Apply the network to these positions of the rectangle; it is one-to-one for every function `_mix_bits`."""
        a, b = places // self._right, places % self._right  # a < left, b < right
        left, right = self._left, self._right
        for key in self._keys:  # (a, b) → (b, a + f(b)); the sides change places with them
            a, b = b, (a + _mix_bits(b ^ key) % left) % left
            left, right = right, left
        return a * right + b


def _mix_bits(x: Numbers) -> Numbers:
    """Mix the bits of each number by the last steps of SplitMix64 (G. Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


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
