"""Strategies: what the processes of a training each hold of the model, and how their gradients come together.

The loop asks one of these objects, which strategies.py chooses, and reads the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..distributed.batch_norm import SynchronizedBatchNorm
from ..distributed.ddp import added_up
from .checkpoint import State, save_whole
from .config import TrainSettings
from .device import Placement
from .parameter_groups import blocks, has_batch_norm
from .qat import rounding_of
from .recompute import recomputing


class Alone:
    """One process, which has everything itself."""

    def __init__(self, model: nn.Module, place: Placement, settings: TrainSettings) -> None:
        self.model, self.place = model, place
        self.synchronized = place.processes > 1 and settings.sync_batchnorm and has_batch_norm(model)
        self.loss: Callable[..., Any] = model  # of a batch
        self.recompute = settings.recompute
        self.blocks = [] if settings.recompute == "none" else blocks(model)
        self.rounding = rounding_of(model, settings)

    def learn(self, loss: Callable[..., Any]) -> None:
        """From now on `loss` is learned from, by the parameters that have gradients now."""
        self.loss = loss

    def batch(self, last: bool) -> AbstractContextManager[object]:
        """The context of a batch's forward and backward pass; whether it is the `last` one of an update, after which
        gradients come together."""
        # Most have none, and in a step of half a millisecond two that do nothing are felt.
        return self._in_context() if self.rounding or self.blocks else nullcontext()

    @contextmanager
    def _in_context(self) -> Iterator[None]:
        with self.rounded(), recomputing(self.blocks, self.recompute, self.normalizing):
            yield

    def rounded(self) -> AbstractContextManager[object]:
        """The context in which weights and inputs are rounded, where the model learns to be quantized."""
        return self.rounding.applied() if self.rounding else nullcontext()

    def normalizing(self) -> AbstractContextManager[object]:
        """The context in which batch normalization is over all processes, where it is to be."""
        return SynchronizedBatchNorm() if self.synchronized else nullcontext()

    def share_statistics(self) -> None:
        """Take over the first process's running statistics, where each has its own."""
        if not self.synchronized:
            self.place.share_buffers(self.model)

    def answering(self) -> AbstractContextManager[object]:
        """The context in which the model answers outside of the loss."""
        return self.rounded()

    def clip(self, parameters: list[nn.Parameter], most: float) -> float | Tensor:
        """Scale the gradients to a norm of at most `most`; the norm that they had."""
        return nn.utils.clip_grad_norm_(parameters, most)

    def save(self, folder: Path, tensors: dict[str, Tensor], state: State) -> None:
        """Write a checkpoint to the folder; all processes ask for it. Raises FileError."""
        save_whole(folder, tensors, state, self.place.writes)

    def saved(self) -> None:
        """Wait until the last checkpoint is written, where the loop went on meanwhile. Raises FileError."""


class Replicated(Alone):
    """Distributed data parallel: each process holds the whole model and adds up the gradients of all."""

    def __init__(self, model: nn.Module, place: Placement, settings: TrainSettings) -> None:
        super().__init__(model, place, settings)
        self._learning: frozenset[str] = frozenset()

    def learn(self, loss: Callable[..., Any]) -> None:
        """As above. What learns has changed where an epoch's phase has."""
        learning = frozenset(name for name, p in self.model.named_parameters() if p.requires_grad)
        if learning != self._learning:
            self.loss = loss  # what added up those before is gone before another one is made
            self.loss, self._learning = added_up(self.model, loss), learning

    @contextmanager
    def batch(self, last: bool) -> Iterator[None]:
        """As above, with batch normalization over all processes."""
        waiting = nullcontext() if last else self.loss.no_sync()  # type: ignore[attr-defined]
        with super().batch(last), waiting, self.normalizing():
            yield
