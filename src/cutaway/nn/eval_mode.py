"""Training mode and evaluation mode, in which dropout drops nothing and normalization goes by what it has learned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def resting(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards every module is in its own again: one that was frozen, for one."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, was in training.items():
            module.training = was
