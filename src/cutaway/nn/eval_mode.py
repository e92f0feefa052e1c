"""A context manager for evaluation mode.

In evaluation mode dropout is inactive and normalization uses its learned statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch the model to evaluation mode within the context.

    Afterwards each module returns to its own previous mode. Modules may differ, for example when some are frozen.
    """
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, was in training.items():
            module.training = was
