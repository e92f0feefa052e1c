"""A moving average of the weights, which often scores better than the weights themselves.

    w̄ ← d w̄ + (1 − d) w   after every update, d = min(decay, (1 + s) / (10 + s)) at update s

B. Polyak, A. Juditsky, Acceleration of stochastic approximation by averaging, 1992; the rising d is that of
TensorFlow's ExponentialMovingAverage: early weights are soon forgotten. Buffers (batch norm's statistics) are copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn


class Average:
    """The average of one model's weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = model
        self.weights = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after update number `step`, counted from 0."""
        d = min(self.decay, (1 + step) / (10 + step))
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        torch._foreach_lerp_([self.weights[k] for k in parameters], list(parameters.values()), 1 - d)
        for key, buffer in self.model.named_buffers():
            if key in self.weights:
                self.weights[key].copy_(buffer)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Within this context the model has the averaged weights."""
        live = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.weights)
        try:
            yield
        finally:
            self.model.load_state_dict(live)

    def load(self, weights: dict[str, Tensor]) -> None:
        """Go on from saved averages."""
        for key, value in weights.items():
            self.weights[key].copy_(value)
