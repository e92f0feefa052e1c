"""The examples as the guard looks at them: a vector of numbers for each, its name and its target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..images.dataset import PixelSplit
from ..images.file_split import FileSplit
from ..sets import SequenceSplit, Split, TensorSplit

HELD = 60_000  # examples in memory that are looked at in each split, drawn by chance where it has more
READ = 300  # examples that have to be read from files
CHUNK = 512  # made into vectors at a time
SIDE, WAVES = 32, 8  # pixels of an image that is looked at, and cosines across it that stay
COARSE = 16  # bands and stretches of time of a recording


@dataclass(frozen=True)
class Seen:
    """Some of the examples of a split, as the guard looks at them."""

    split: Split
    rows: Tensor  # (n,) their numbers in the split
    kind: str

    @cached_property
    def vectors(self) -> Tensor:
        """A vector for each, (n, F) float32, in which what looks alike lies near."""
        chunks = torch.split(self.rows, CHUNK)
        return torch.cat([_vectors(self.split, some, self.kind) for some in chunks])

    @property
    def target(self) -> Tensor:
        """The target of each, (n,)."""
        assert self.split.target is not None
        return self.split.target[self.rows]

    def name(self, i: int) -> str:
        """What a person calls the i-th of them."""
        return self.split.name(int(self.rows[i]))


def sample(n: int, count: int, seed: int = 0) -> Tensor:
    """The numbers of `count` of n examples, by chance and in order; of all where there are no more."""
    if n <= count:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:count].sort().values


def seen_of(split: Split, kind: str) -> Seen | None:
    """The examples of a split that are looked at; None for one that cannot be looked into at little cost."""
    if split.target is None or not len(split):
        return None
    if isinstance(split, TensorSplit | SequenceSplit | PixelSplit):
        return Seen(split, sample(len(split), HELD), kind)
    return Seen(split, sample(len(split), READ), kind) if isinstance(split, FileSplit) else None


def _vectors(split: Split, rows: Tensor, kind: str) -> Tensor:
    if isinstance(split, FileSplit):
        return low_frequencies(split.peek(rows))
    (batch,) = split.batches([rows])
    x = batch.inputs[0]
    if kind == "image":
        return low_frequencies(x)
    if kind == "audio":
        real = batch.inputs[1]
        heard = [F.adaptive_avg_pool2d(one[own][None, None], COARSE).flatten() for one, own in zip(x, real)]
        return torch.stack(heard)
    return x.flatten(1).float()


def low_frequencies(images: Tensor) -> Tensor:
    """What a perceptual hash is made of, (N, 63): the lowest cosines of the brightness of images (N, C, H, W), without
    its mean and at length 1, so that brightness, contrast, size and compression change little (C. Zauner, 2010)."""
    grey = images.float().mean(1, keepdim=True)
    side = min(SIDE, *grey.shape[2:])
    small = F.adaptive_avg_pool2d(grey, side)[:, 0]  # (N, side, side)
    waves = min(WAVES, side)
    place = (torch.arange(side) + 0.5) * np.pi / side
    cosines = torch.cos(torch.arange(waves)[:, None] * place)  # (waves, side)
    found = (cosines @ small @ cosines.T).flatten(1)[:, 1:]  # (N, waves² − 1)
    return F.normalize(found, dim=1)
