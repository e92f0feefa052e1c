"""Settings and results of attribution methods, and a context that isolates captum's side effects."""

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

AT_ONCE = 1 << 22  # largest number of elements in one pass


@dataclass(frozen=True)
class MethodSettings:
    """Settings of a method."""

    steps: int | None = None  # points of the integral, or random samples; None: until convergence
    layer: str | None = None  # for Grad-CAM
    window: int | None = None  # side of the occlusion window, in pixels
    background: Tensor | None = None  # reference examples, as the first input, for GradientShap
    seed: int = 0


@dataclass(frozen=True)
class AttributionMap:
    """The result of a method."""

    values: Tensor  # one number for each part of the input
    total: Tensor  # (N,), their sum
    beside: Tensor | None = None  # for pairs: the other side
    start: Tensor | None = None  # (N,), F(baseline), if it differs from that of the entry
    tolerance: float | None = None  # tolerated relative gap; None: the values need not sum to the change
    about: str | None = None  # description of the baseline, if it differs from that of the entry
    based: bool = True  # whether there is a baseline
    layer: str | None = None
    steps: int | None = None


def absolute_sum(*maps: Tensor | None, examples: int) -> Tensor:
    """Return Σ |a| of each example, (N,)."""
    return torch.stack([m.detach().reshape(examples, -1).abs().sum(1) for m in maps if m is not None]).sum(0)


def copies_per_pass(entry: Entry) -> int:
    """Return the number of copies of the examples in one pass."""
    return max(1, AT_ONCE // max(1, entry.z.numel()))


def doubled(first: int, most: int) -> Iterator[int]:
    """Yield `first` and its doubles, up to `most`."""
    for k in range(int(math.log2(max(most // first, 1))) + 1):
        yield first * 2**k


@contextmanager
def isolated(model: nn.Module, seed: int) -> Iterator[None]:
    """Run with the model in evaluation mode and random numbers from `seed`, and restore the previous state afterwards.

    This includes the mode, and torch's and numpy's random states. Library warnings, which users cannot act on, are
    hidden.
    """
    training = {module: module.training for module in model.modules()}
    state = np.random.get_state()  # noqa: NPY002  # captum draws from it
    try:
        with (
            warnings.catch_warnings(),
            torch.random.fork_rng([]),
            torch.enable_grad(),
            torch.backends.cudnn.flags(
                enabled=False
            ),  # recurrent layers have no gradient with cuDNN in evaluation mode
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
