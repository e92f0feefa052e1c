"""The examples as the guard looks at them: a vector of numbers for each, its name and its target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..dataset_base import SequenceSplit, Split, TensorSplit
from ..images.build import PixelSplit
from ..images.transforms import FileSplit
from .image_patches import Patches, patches

HELD = 60_000  # examples in memory that are looked at in each split, drawn by chance where it has more
READ = 300  # examples that have to be read from files
PATCHED = 10_000  # images of a split that are looked at in patches
CHUNK = 512  # made into vectors at a time
SIDE, WAVES, SMALL = 32, 8, 16  # pixels of an image across; cosines across it that stay; pixels for filters
BLANK = 1e-3  # of its mean: an image whose standard deviation is no more is one colour
COARSE, LOUD = 16, 0.2  # bands and stretches of time of a recording, and the fraction of them that is looked at


class Looks(NamedTuple):
    """What the guard sees of some examples."""

    vectors: Tensor  # (n, F), in which what is alike lies near
    level: Tensor  # (n, 2) mean and standard deviation of images and recordings; (n, 0) of others
    grey: Tensor  # (n, 1, s, s) float16 of images, free of their mean and contrast; (n, 0) of others


@dataclass(frozen=True)
class Seen:
    """Some of the examples of a split, as the guard looks at them."""

    split: Split
    rows: Tensor  # (n,) their numbers in the split
    kind: str

    @property
    def vectors(self) -> Tensor:
        """A vector for each, (n, F) float32, in which what looks or sounds alike lies near."""
        return self._looks.vectors

    @property
    def grey(self) -> Tensor:
        """Images as grey ones of SIDE pixels at most, (n, 1, s, s) float16, of mean 0 and standard deviation 1."""
        return self._looks.grey

    @cached_property
    def small(self) -> Tensor:
        """Images as small grey ones, (n, 1, s, s)."""
        return torch.cat([pooled(some.float(), SMALL) for some in torch.split(self.grey, CHUNK)])

    @cached_property
    def patches(self) -> Patches:
        """What stands out in some of the images."""
        return patches(self.grey, sample(len(self.rows), PATCHED))

    @cached_property
    def spread(self) -> Tensor:
        """What of each is compared between splits, (n, F): the vectors, and the level of images and recordings, from
        which the vectors are free."""
        return torch.cat([self._looks.level, self.vectors], 1)

    @cached_property
    def _looks(self) -> Looks:
        found = [_look(self.split, some, self.kind) for some in torch.split(self.rows, CHUNK)]
        return Looks(*map(torch.cat, zip(*found)))

    @cached_property
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


def _look(split: Split, rows: Tensor, kind: str) -> Looks:
    if isinstance(split, FileSplit):
        return _of_images(split.peek(rows))
    (batch,) = split.batches([rows])
    x, nothing = batch.inputs[0], torch.empty(len(rows), 0)
    if kind == "image":
        return _of_images(x)
    if kind == "audio":
        each = [one[real] for one, real in zip(x, batch.inputs[1])]  # (T, n_mels)
        level = torch.stack([torch.stack([one.mean(), one.std(correction=0)]) for one in each])
        return Looks(torch.stack([loudest(one) for one in each]), level, nothing)
    return Looks(x.flatten(1).float(), nothing, nothing)


def _of_images(images: Tensor) -> Looks:
    grey = images.float().mean(1, keepdim=True)  # (N, 1, H, W)
    smaller = pooled(grey, SIDE)
    small = pooled(grey, SMALL)
    spread, mean = _spread(small)
    level = torch.cat([mean, spread], 1).flatten(1)
    return Looks(low_frequencies(smaller), level, plain(smaller))


def plain(grey: Tensor) -> Tensor:
    """Images (n, 1, s, s) at mean 0 and standard deviation 1, those of one colour 0, as float16."""
    spread, mean = _spread(grey)
    return torch.where(spread > BLANK * mean.abs(), (grey - mean) / spread, 0).half()


def _spread(grey: Tensor) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean of images (n, 1, s, s), (n, 1, 1, 1) each: in two passes, for which PyTorch's
    `std_mean` takes ten times as long."""
    mean = grey.mean((2, 3), keepdim=True)
    return (grey - mean).square().mean((2, 3), keepdim=True).sqrt(), mean


def pooled(images: Tensor, side: int) -> Tensor:
    """Images (N, C, H, W) made smaller, (N, C, side, side), each pixel the mean of a window; those that are smaller
    anyway only square. As products: pooling itself takes twice as long."""
    side = min(side, *images.shape[2:])
    if images.shape[2:] == (side, side):
        return images
    rows, columns = (_windows(size, side) for size in images.shape[2:])
    return rows @ images @ columns.T


def _windows(size: int, side: int) -> Tensor:
    """The mean of each of `side` windows that cover so many pixels, (side, size)."""
    i, place = torch.arange(side)[:, None], torch.arange(size)
    inside = ((place >= i * size // side) & (place < -(-(i + 1) * size // side))).float()
    return inside / inside.sum(1, keepdim=True)


def loudest(spectrogram: Tensor) -> Tensor:
    """Where the loudest fifth of a logarithmic spectrogram (T, n_mels) stands, coarsely and at length 1, (COARSE²,):
    neither noise that is softer nor loudness changes it."""
    above = (spectrogram - torch.quantile(spectrogram, 1 - LOUD)).clamp_min(0)
    return F.normalize(F.adaptive_avg_pool2d(above[None, None], COARSE).flatten(), dim=0)


def low_frequencies(grey: Tensor) -> Tensor:
    """What a perceptual hash is made of, (N, waves² − 1): the lowest cosines of grey images (N, 1, H, W), without their
    mean and at length 1, so that brightness, contrast, size and compression change little (C. Zauner, 2010)."""
    small = pooled(grey, SIDE)[:, 0]  # (N, side, side)
    side = small.shape[-1]
    waves = max(2, min(WAVES, 3 * side // 4))  # the highest that a tiny image has change with its size
    place = (torch.arange(side) + 0.5) * np.pi / side
    cosines = torch.cos(torch.arange(waves)[:, None] * place)  # (waves, side)
    found = (cosines @ small @ cosines.T).flatten(1)[:, 1:]
    return F.normalize(found, dim=1)
