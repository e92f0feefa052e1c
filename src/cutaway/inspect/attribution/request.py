"""What a method is asked and what it answers, and captum kept quiet while it is at work."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from .differentiable_input import Entry

AT_ONCE = 1 << 22  # numbers that go through a model at once, at most


@dataclass(frozen=True)
class Ask:
    """What can be asked of a method."""

    steps: int | None = None  # of the integral, or random draws; None: as many as it takes
    layer: str | None = None  # Grad-CAM's
    window: int | None = None  # pixels to a side that are covered at once
    background: Tensor | None = None  # examples that stand for what is usual, as the first input: GradientShap's
    seed: int = 0


@dataclass(frozen=True)
class Found:
    """What a method gives."""

    values: Tensor  # one number for each part of the input
    total: Tensor  # (N,), their sum
    beside: Tensor | None = None  # of pairs: the other side
    start: Tensor | None = None  # (N,), F(baseline), where it is not that of the entry
    tolerance: float | None = None  # the relative gap that is let pass; None: no sum is promised
    about: str | None = None  # what the baseline is, where it is not that of the entry
    based: bool = True  # whether there is a baseline at all
    layer: str | None = None
    steps: int | None = None


def size_of(*maps: Tensor | None, examples: int) -> Tensor:
    """Σ |a| of each example, (N,)."""
    return torch.stack([m.detach().reshape(examples, -1).abs().sum(1) for m in maps if m is not None]).sum(0)


def at_once(entry: Entry) -> int:
    """How many copies of the examples go through the model at once."""
    return max(1, AT_ONCE // max(1, entry.z.numel()))


def doubled(first: int, most: int) -> Iterator[int]:
    """first, twice that, and so on, up to `most`."""
    for k in range(int(math.log2(max(most // first, 1))) + 1):
        yield first * 2**k


@contextmanager
def undisturbed(model: nn.Module, seed: int) -> Iterator[None]:
    """Within it the model is in evaluation mode and random numbers are those of `seed`; after it all is as it was:
    mode, torch's and numpy's random states. Warnings of libraries are for no person to fix, and are not shown."""
    training = {module: module.training for module in model.modules()}
    state = np.random.get_state()  # noqa: NPY002  # captum draws from it
    try:
        with (
            warnings.catch_warnings(),
            torch.random.fork_rng([]),
            torch.enable_grad(),
            torch.backends.cudnn.flags(enabled=False),  # its recurrent layers have no gradient in evaluation mode
        ):
            warnings.simplefilter("ignore")
            model.eval()
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
        for module, was in training.items():
            module.training = was
