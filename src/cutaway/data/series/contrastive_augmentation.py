"""Contrastive augmentation of series: two random views of each series.

After T. T. Um et al., Data augmentation of wearable sensor data for Parkinson's disease monitoring using convolutional
neural networks, 2017 <https://arxiv.org/abs/1706.00527>, drawn independently for each series and applied to the whole
batch at once: cropping with resampling to the original length, scaling of each variable, and jittering with noise on
every value. The series are standardised before.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from ..augment import uniform

PART = (0.6, 1.0)  # of a series' length
SCALE = (0.8, 1.25)  # of each variable, on a logarithmic scale
JITTER = 0.1  # standard deviation of the noise, relative to that of the training series


class SeriesViews:
    """Augmentation that makes two views of each series of a batch."""

    def __call__(self, x: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return two augmented views, each (N, T, F), of the series (N, T, F)."""
        both = add_jitter(scale_variables(random_resized_part(torch.cat([x, x]), generator), generator), generator)
        return both[: len(x)], both[len(x) :]


def random_resized_part(x: Tensor, generator: Generator) -> Tensor:
    """Crop a random part of each series (N, T, F), with a length in PART, and resample it to T steps linearly."""
    low, high = PART
    n, steps, _ = x.shape
    share = low + (high - low) * uniform(x, (n, 1), generator).to(x.dtype)  # (N, 1)
    begin = (1 - share) * uniform(x, (n, 1), generator).to(x.dtype)
    place = (begin + share * torch.linspace(0, 1, steps, dtype=x.dtype, device=x.device)) * (steps - 1)  # (N, T)
    before = place.floor().clamp(0, max(steps - 2, 0)).long()
    after, beyond = (before + 1).clamp(max=steps - 1), (place - before).unsqueeze(2)  # (N, T, 1)
    one, other = (x.gather(1, at.unsqueeze(2).expand_as(x)) for at in (before, after))
    return torch.lerp(one, other, beyond)


def scale_variables(x: Tensor, generator: Generator) -> Tensor:
    """Multiply each variable of each series (N, T, F) by a factor drawn from SCALE."""
    low, high = SCALE
    drawn = uniform(x, (len(x), 1, x.shape[2]), generator).to(x.dtype)
    return x * low * (high / low) ** drawn


def add_jitter(x: Tensor, generator: Generator) -> Tensor:
    """Add noise of standard deviation JITTER to each value."""
    return x + JITTER * torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
