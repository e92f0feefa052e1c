"""The batches of an epoch, computed when they are asked for, and the order that they draw from.

A corpus of 6 GB has a hundred million windows. Their order, held as numbers, takes 0.8 GB; the batches, held as
tensors, take more; and a run that is resumed late in an epoch waits for all of them. So a batch is computed from its
number, and beyond 2²² examples so is the order: by a Feistel network on exactly their numbers (J. Black, P. Rogaway,
Ciphers with arbitrary finite domains, 2002, <https://doi.org/10.1007/3-540-45760-7_9>, method 3). It is a permutation
whatever its round function, and mixes as well as that does; nothing is held, and any place of it costs the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

HELD = 1 << 22  # examples up to which an order is drawn as a whole: 33 MB
ROUNDS = 8
AT_ONCE = 1 << 13  # places of a permutation that are computed together
Numbers = npt.NDArray[np.uint64]
Batches = Sequence[Tensor]  # the numbers of the examples of each batch


class Plan(Sequence[Tensor]):
    """Batches, each the numbers of its examples, (N,) int64, computed when it is asked for. A slice is a plan too."""

    def __init__(self, numbers: range, batch: Callable[[int], Tensor]) -> None:
        """`batch` gives the batch of each of these numbers."""
        self._numbers, self._batch = numbers, batch

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Tensor]:
        return map(self._batch, self._numbers)

    @overload
    def __getitem__(self, i: int) -> Tensor: ...
    @overload
    def __getitem__(self, i: slice) -> Plan: ...
    def __getitem__(self, i: int | slice) -> Tensor | Plan:
        if isinstance(i, slice):
            return Plan(self._numbers[i], self._batch)
        return self._batch(self._numbers[i])


class Order:
    """The numbers 0 … n−1 one after another, or, with a generator, a permutation that it draws."""

    def __init__(self, n: int, generator: torch.Generator | None) -> None:
        self.n = n
        self._held: Tensor | None = None
        self._drawn: Permutation | None = None
        if generator is not None and n <= HELD:
            self._held = torch.randperm(n, generator=generator)
        elif generator is not None:
            self._drawn = Permutation(n, int(torch.randint(1 << 62, (), generator=generator)))

    def part(self, start: int, end: int) -> Tensor:
        """What stands from one place on up to another, or to the end, (end − start,)."""
        if self._held is not None:
            return self._held[start:end]
        if self._drawn is not None:
            return self._drawn.part(start, min(end, self.n))
        return torch.arange(start, min(end, self.n))

    def plan(self, batch_size: int) -> Plan:
        """The order cut into batches; the last has what is left."""
        return Plan(range(-(-self.n // batch_size)), lambda k: self.part(k * batch_size, (k + 1) * batch_size))


class Permutation:
    """A permutation of 0 … n−1 that a seed says, computed place by place: n may be anything, nothing is held."""

    def __init__(self, n: int, seed: int) -> None:
        self.n = n
        self._left = np.uint64(math.isqrt(n - 1) + 1 if n > 1 else 1)  # sides of a rectangle of n places, or few more
        self._right = np.uint64(-(-n // int(self._left)))
        self._keys = _mixed(np.uint64(seed) + np.arange(1, ROUNDS + 1, dtype=np.uint64))
        self._block: tuple[int, Tensor] = (-1, torch.empty(0, dtype=torch.int64))

    def at(self, places: Numbers) -> Numbers:
        """What stands at these places, (k,) uint64."""
        found = self._walked(places)
        while len(beyond := np.flatnonzero(found >= self.n)):  # in the rectangle, and no number: on from there
            found[beyond] = self._walked(found[beyond])
        return found

    def part(self, start: int, end: int) -> Tensor:
        """What stands from one place on up to another, (end − start,) int64. Neighbours are computed together."""
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

    def _walked(self, places: Numbers) -> Numbers:
        """Where the network leads from these places of the rectangle: one-to-one, whatever `_mixed` gives."""
        a, b = places // self._right, places % self._right  # a < left, b < right
        left, right = self._left, self._right
        for key in self._keys:  # (a, b) → (b, a + f(b)); the sides change places with them
            a, b = b, (a + _mixed(b ^ key) % left) % left
            left, right = right, left
        return a * right + b


def _mixed(x: Numbers) -> Numbers:
    """Each number with its bits mixed: SplitMix64's last steps (G. Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
