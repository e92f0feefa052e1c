"""Features of examples for the quality checks: a vector for each, its name and its target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..dataset_base import SequenceSplit, Split, TensorSplit
from ..images.dataset import PixelSplit
from ..images.transforms import FileSplit
from .altered_copies import Patches, average_pool, extract_patches

HELD = 60_000  # largest sample of in-memory examples of a split
READ = 300  # largest sample of examples that are read from files
PATCHED = 10_000  # images of a split whose patches are extracted
CHUNK = 512  # examples processed at a time
SIDE, WAVES, SMALL = 32, 8, 16  # side of a pooled image; cosines kept per side; side for filter fits
BLANK = 1e-3  # of its mean: an image of at most this standard deviation is blank
COARSE, LOUD = 16, 0.2  # mel and time bins of a recording, and the fraction of loudest ones


class ExampleFeatures(NamedTuple):
    """Features of some examples."""

    vectors: Tensor  # (n, F), in which similar examples are close
    level: Tensor  # (n, 2) mean and standard deviation of images and recordings; (n, 0) for others
    grey: Tensor  # (n, 1, s, s) float16 of images with standardised contrast; (n, 0) for others


@dataclass(frozen=True)
class SplitFeatures:
    """A sample of a split's examples with their features."""

    split: Split
    rows: Tensor  # (n,) their indices in the split
    kind: str

    @property
    def vectors(self) -> Tensor:
        """Return a vector for each example, (n, F) float32, in which similar examples are close."""
        return self._looks.vectors

    @property
    def grey(self) -> Tensor:
        """Return standardised grey images of at most SIDE pixels, (n, 1, s, s) float16."""
        return self._looks.grey

    @cached_property
    def small(self) -> Tensor:
        """Return small grey images, (n, 1, s, s)."""
        return torch.cat([average_pool(some.float(), SMALL) for some in torch.split(self.grey, CHUNK)])

    @cached_property
    def patches(self) -> Patches:
        """Return the salient patches of some of the images."""
        return extract_patches(self.grey, sample_indices(len(self.rows), PATCHED))

    @cached_property
    def spread(self) -> Tensor:
        """Return the features (n, F) that are compared between splits: level, where there is one, and vectors.

        The vectors of images and recordings do not depend on the level.
        """
        return torch.cat([self._looks.level, self.vectors], 1)

    @cached_property
    def _looks(self) -> ExampleFeatures:
        found = [_compute_features(self.split, some, self.kind) for some in torch.split(self.rows, CHUNK)]
        return ExampleFeatures(*map(torch.cat, zip(*found)))

    @cached_property
    def target(self) -> Tensor:
        """Return the target of each example, (n,)."""
        assert self.split.target is not None
        return self.split.target[self.rows]

    def name(self, i: int) -> str:
        """Return the display name of the i-th example."""
        return self.split.name(int(self.rows[i]))


def sample_indices(n: int, count: int, seed: int = 0) -> Tensor:
    """Return the sorted indices of `count` of n examples, sampled at random, or of all if n ≤ count."""
    if n <= count:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:count].sort().values


def extract_features(split: Split, kind: str) -> SplitFeatures | None:
    """Sample the examples of a split; None if the split is expensive to read."""
    if split.target is None or not len(split):
        return None
    if isinstance(split, TensorSplit | SequenceSplit | PixelSplit):
        return SplitFeatures(split, sample_indices(len(split), HELD), kind)
    return SplitFeatures(split, sample_indices(len(split), READ), kind) if isinstance(split, FileSplit) else None


def _compute_features(split: Split, rows: Tensor, kind: str) -> ExampleFeatures:
    if isinstance(split, FileSplit):
        return _image_features(split.peek(rows))
    (batch,) = split.batches([rows])
    x, nothing = batch.inputs[0], torch.empty(len(rows), 0)
    if kind == "image":
        return _image_features(x)
    if kind == "audio":
        each = [one[real] for one, real in zip(x, batch.inputs[1])]  # (T, n_mels)
        level = torch.stack([torch.stack([one.mean(), one.std(correction=0)]) for one in each])
        return ExampleFeatures(torch.stack([loudest_pattern(one) for one in each]), level, nothing)
    return ExampleFeatures(x.flatten(1).float(), nothing, nothing)


def _image_features(images: Tensor) -> ExampleFeatures:
    grey = images.float().mean(1, keepdim=True)  # (N, 1, H, W)
    smaller = average_pool(grey, SIDE)
    small = average_pool(grey, SMALL)
    spread, mean = _spread(small)
    level = torch.cat([mean, spread], 1).flatten(1)
    return ExampleFeatures(dct_features(smaller), level, standardise_images(smaller))


def standardise_images(grey: Tensor) -> Tensor:
    """Standardise images (n, 1, s, s) to mean 0 and standard deviation 1 as float16; blank images become 0."""
    spread, mean = _spread(grey)
    return torch.where(spread > BLANK * mean.abs(), (grey - mean) / spread, 0).half()


def _spread(grey: Tensor) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean of images (n, 1, s, s), (n, 1, 1, 1) each.

    Two passes are ten times as fast as PyTorch's `std_mean` here.
    """
    mean = grey.mean((2, 3), keepdim=True)
    return (grey - mean).square().mean((2, 3), keepdim=True).sqrt(), mean


def loudest_pattern(spectrogram: Tensor) -> Tensor:
    """Return a coarse map of the loudest fifth of a logarithmic spectrogram (T, n_mels), of norm 1, (COARSE²,).

    Softer noise and loudness do not change it.
    """
    above = (spectrogram - torch.quantile(spectrogram, 1 - LOUD)).clamp_min(0)
    return F.normalize(F.adaptive_avg_pool2d(above[None, None], COARSE).flatten(), dim=0)


def dct_features(grey: Tensor) -> Tensor:
    """Compute perceptual-hash features (N, waves² − 1): the lowest cosines of grey images (N, 1, H, W).

    They exclude the mean and have norm 1, so that brightness, contrast, size and compression change little (C. Zauner,
    2010).
    """
    small = average_pool(grey, SIDE)[:, 0]  # (N, side, side)
    side = small.shape[-1]
    waves = max(2, min(WAVES, 3 * side // 4))  # the highest frequencies of a tiny image change with its size
    place = (torch.arange(side) + 0.5) * np.pi / side
    cosines = torch.cos(torch.arange(waves)[:, None] * place)  # (waves, side)
    found = (cosines @ small @ cosines.T).flatten(1)[:, 1:]
    return F.normalize(found, dim=1)


def get_text(seen: SplitFeatures, i: int) -> str:
    """Return the i-th text of the sample."""
    row = seen.split.row(int(seen.rows[i]))
    return next(iter(row.values())) if row else ""
