"""Views of series: what a signal can look like and still be of the same thing.

After T. T. Um et al., Data augmentation of wearable sensor data for Parkinson's disease monitoring using convolutional
neural networks, 2017 <https://arxiv.org/abs/1706.00527>, each drawn anew for each series, all of a batch at once:
a part of it brought back to its length (cropping), every variable larger or smaller (scaling), and noise added to every
value (jittering). Series are standardised already.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from ..augment import uniform

PART = (0.6, 1.0)  # of a series' length
SCALE = (0.8, 1.25)  # of each variable, on a logarithmic scale
JITTER = 0.1  # standard deviation of what is added to each value, in those of the training series


class SeriesViews:
    """Two views of each series of a batch."""

    def __call__(self, x: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Series (N, T, F) to twice (N, T, F)."""
        both = jittered(scaled(resized_part(torch.cat([x, x]), generator), generator), generator)
        return both[: len(x)], both[len(x) :]


def resized_part(x: Tensor, generator: Generator) -> Tensor:
    """A part of each series (N, T, F), of PART of its length and anywhere in it, brought to T steps, linearly."""
    low, high = PART
    n, steps, _ = x.shape
    share = low + (high - low) * uniform(x, (n, 1), generator).to(x.dtype)  # (N, 1)
    begin = (1 - share) * uniform(x, (n, 1), generator).to(x.dtype)
    place = (begin + share * torch.linspace(0, 1, steps, dtype=x.dtype, device=x.device)) * (steps - 1)  # (N, T)
    before = place.floor().clamp(0, max(steps - 2, 0)).long()
    after, beyond = (before + 1).clamp(max=steps - 1), (place - before).unsqueeze(2)  # (N, T, 1)
    one, other = (x.gather(1, at.unsqueeze(2).expand_as(x)) for at in (before, after))
    return torch.lerp(one, other, beyond)


def scaled(x: Tensor, generator: Generator) -> Tensor:
    """Each variable of each series (N, T, F) times a number of its own, drawn from SCALE."""
    low, high = SCALE
    drawn = uniform(x, (len(x), 1, x.shape[2]), generator).to(x.dtype)
    return x * low * (high / low) ** drawn


def jittered(x: Tensor, generator: Generator) -> Tensor:
    """Series with noise of JITTER added to each value."""
    return x + JITTER * torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
