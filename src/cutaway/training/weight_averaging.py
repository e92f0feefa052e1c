"""Weight averaging, which often improves the validation score.

An exponential moving average over all updates:

    w̄ ← d w̄ + (1 − d) w   after every update, d = min(decay, (1 + s) / (10 + s)) at update s

B. Polyak, A. Juditsky, Acceleration of stochastic approximation by averaging, 1992. The rising d is that of
TensorFlow's ExponentialMovingAverage: early weights are soon forgotten. Buffers (batch norm's statistics) are copied.

Or the mean of the weights after the last epochs: A. Vaswani et al., 2017, section 6.1, average the last 5 checkpoints
<https://arxiv.org/abs/1706.03762>.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from ..checkpoints.saving import read_tensors, write_tensors
from ..distributed.tensor_parallel import load, shard_like


class MovingAverage:
    """Exponential moving average of a model's weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = model
        self.weights = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average with the weights after update number `step`, counted from 0."""
        d = min(self.decay, (1 + step) / (10 + step))
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        torch._foreach_lerp_([self.weights[k] for k in parameters], list(parameters.values()), 1 - d)
        for key, buffer in self.model.named_buffers():
            if key in self.weights:
                self.weights[key].copy_(buffer)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Use the averaged weights within this context."""
        with swap_weights(self.model, self.weights):
            yield

    def load(self, weights: dict[str, Tensor]) -> None:
        """Load a saved average."""
        for key, value in weights.items():
            self.weights[key].copy_(shard_like(value, self.weights[key]))


class LastEpochs:
    """Weights after each of the last epochs, in files next to the checkpoint.

    Files that were written before a kill remain valid, and an epoch that is repeated writes the same file.
    """

    def __init__(self, folder: Path, epochs: int) -> None:
        """Initialize the folder. `epochs` is the number of epochs to keep."""
        self.folder, self.epochs = folder, epochs

    def keep(self, epoch: int, weights: dict[str, Tensor]) -> None:
        """Write the weights after this epoch, counted from 1, and remove those that are no longer needed."""
        if not weights:  # another process writes them
            return
        write_tensors(self._file(epoch), weights, {})
        self._file(epoch - self.epochs).unlink(missing_ok=True)

    def mean(self, epoch: int) -> tuple[dict[str, Tensor], int]:
        """Return the mean of the last weights up to this epoch, summed in double precision, and the first epoch in it.

        Statistics of batch norm are averaged too; counts are those of the last epoch.
        """
        first = max(1, epoch - self.epochs + 1)
        weights, _ = read_tensors(self._file(epoch))
        sums = {k: v.double() for k, v in weights.items() if v.is_floating_point()}
        for earlier in range(first, epoch):
            of_epoch, _ = read_tensors(self._file(earlier))
            for key, total in sums.items():
                total += of_epoch[key]
        count = epoch - first + 1
        return weights | {k: (total / count).to(weights[k].dtype) for k, total in sums.items()}, first

    def _file(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch}.safetensors"


@contextlib.contextmanager
def swap_weights(model: nn.Module, weights: dict[str, Tensor]) -> Iterator[None]:
    """Use these weights in the model within this context, and restore its own on exit."""
    live = {k: v.detach().clone() for k, v in model.state_dict().items()}
    load(model, weights)
    try:
        yield
    finally:
        load(model, live)
