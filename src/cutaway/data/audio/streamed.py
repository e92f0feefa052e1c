"""A split whose recordings are read, and become spectrograms, while training goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...errors import Problem
from ..lengths import bucketed
from ..sets import Batch, Split
from ..threads import ahead
from ..verifying import Progress, unreadable

AHEAD = 1  # batches that are read while the one before is learned from
Frames = Callable[[Sequence[int]], tuple[Tensor, Tensor]]  # of some examples: (Σ T, F) one after another; (n,) of each


class StreamedSplit(Split):
    """Recordings as log-mel spectrograms, made a batch at a time, which is padded with zeros to its own longest."""

    def __init__(
        self, frames: Frames, lengths: Tensor, target: Tensor | None, names: Sequence[str], workers: int | None = None
    ) -> None:
        """`frames` gives the normalised frames of examples by their numbers; `lengths` (n,) tell how many each has, for
        the plan of batches."""
        self.lengths, self.target = lengths, target
        self._frames, self._names, self._held = frames, names, 0 if workers == 0 else AHEAD

    def __len__(self) -> int:
        return len(self._names)

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> list[Tensor]:
        """Batches of recordings of nearly equal length."""
        return bucketed(self.lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Batches (N, T, F) with masks (N, T). Raises DataError, naming it, for a recording that cannot be read."""
        del seed
        return ahead(self._batch, order, self._held)

    def name(self, i: int) -> str:
        """The recording's path."""
        return self._names[i]

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Every recording that cannot be read, by name."""
        return unreadable(lambda k: self._frames([k]), len(self), progress)

    def _batch(self, index: Tensor) -> Batch:
        frames, lengths = self._frames(index.tolist())
        mask = torch.arange(int(lengths.max())) < lengths[:, None]  # (N, T)
        x = pad_sequence([*torch.split(frames, lengths.tolist())], batch_first=True)  # (N, T, F)
        target = torch.empty(len(index), 0) if self.target is None else self.target[index]
        return Batch((x, mask), target)
