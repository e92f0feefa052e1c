"""Parallel strategies: how processes hold a model and combine their gradients.

`select_strategy` selects one of them for the loop: a single process, data parallelism, or sharded weights (by rows, by
heads and hidden units, or both). All have the same interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.deferred_init import DeferredInit, copy_to_meta, move_parameters_to_meta, named_tensors
from ..distributed.checkpoint import Saver
from ..distributed.ddp import SynchronizedBatchNorm, wrap_in_ddp
from ..distributed.fsdp import build_mesh, set_gradient_sync, shard
from ..distributed.tensor_parallel import TENSOR, global_norm, load_full_tensors, local_part, parallelize
from .checkpoint import LAST, TrainingState, save_whole
from .config import TrainSettings
from .device import DeviceContext
from .parameter_groups import find_blocks, has_batch_norm
from .qat import build_fake_quantization
from .recompute import checkpointed


class SingleProcess:
    """Strategy of a single process, which holds the whole model."""

    def __init__(self, model: nn.Module, place: DeviceContext, settings: TrainSettings) -> None:
        self.model, self.place = model, place
        self.synchronized = place.processes > 1 and settings.sync_batchnorm and has_batch_norm(model)
        self.loss: Callable[..., Any] = model  # loss of a batch
        self.recompute = settings.recompute
        self.blocks = [] if settings.recompute == "none" else find_blocks(model)
        self.rounding = build_fake_quantization(model, settings)

    def learn(self, loss: Callable[..., Any]) -> None:
        """Set the loss, which is optimized over the parameters that currently require gradients."""
        self.loss = loss

    def batch(self, last: bool) -> AbstractContextManager[object]:
        """Return the context of a batch's forward and backward pass.

        `last` marks the last batch of an update, after which gradients are synchronized.
        """
        # Two empty contexts would be noticeable in a step of half a millisecond.
        return self._in_context() if self.rounding or self.blocks else nullcontext()

    @contextmanager
    def _in_context(self) -> Iterator[None]:
        with self.rounded(), checkpointed(self.blocks, self.recompute, self.normalizing):
            yield

    def rounded(self) -> AbstractContextManager[object]:
        """Return the context in which weights and inputs are rounded, for quantization-aware training."""
        return self.rounding.applied() if self.rounding else nullcontext()

    def normalizing(self) -> AbstractContextManager[object]:
        """Return the context that synchronizes batch normalization over all processes, if it is enabled."""
        return SynchronizedBatchNorm() if self.synchronized else nullcontext()

    def share_statistics(self) -> None:
        """Broadcast running statistics from the first process, if batch normalization is not synchronized."""
        if not self.synchronized:
            self.place.share_buffers(self.model)

    def answering(self) -> AbstractContextManager[object]:
        """Return the context for calling the model outside of the loss."""
        return self.rounded()

    def clip(self, parameters: list[nn.Parameter], most: float) -> float | Tensor:
        """Clip the norm of the gradients to at most `most`, and return the norm before clipping."""
        return nn.utils.clip_grad_norm_(parameters, most)

    def save(self, folder: Path, tensors: dict[str, Tensor], state: TrainingState) -> None:
        """Write a checkpoint to the folder. All processes must call it. Raises FileError."""
        save_whole(folder, tensors, state, self.place.writes)

    def saved(self) -> None:
        """Wait until the last checkpoint is written, if it is written in the background. Raises FileError."""


class DataParallel(SingleProcess):
    """Distributed data parallel: each process holds the whole model, and gradients are summed over all processes."""

    def __init__(self, model: nn.Module, place: DeviceContext, settings: TrainSettings) -> None:
        super().__init__(model, place, settings)
        self._learning: frozenset[str] = frozenset()

    def learn(self, loss: Callable[..., Any]) -> None:
        """Set the loss, and rebuild DistributedDataParallel if the trainable parameters have changed."""
        learning = frozenset(name for name, p in self.model.named_parameters() if p.requires_grad)
        if learning != self._learning:
            self.loss = loss  # release the previous wrapper first
            self.loss, self._learning = wrap_in_ddp(self.model, loss), learning

    @contextmanager
    def batch(self, last: bool) -> Iterator[None]:
        """Return the context of a batch, with batch normalization over all processes.

        Only the last batch synchronizes gradients.
        """
        waiting = nullcontext() if last else self.loss.no_sync()  # type: ignore[attr-defined]
        with super().batch(last), waiting, self.normalizing():
            yield


class ShardedDataParallel(SingleProcess):
    """Strategy in which each process holds a shard of every weight.

    Training uses a copy of the model, which is sharded before its weights are initialized. The model itself keeps only
    its shapes until the end.
    """

    def __init__(
        self, model: nn.Module, place: DeviceContext, settings: TrainSettings, deferred: DeferredInit | None = None
    ) -> None:
        super().__init__(copy_to_meta(model).to(place.dtype), place, settings)
        mesh = build_mesh(place.device, place.processes, settings.parallel, place.tensor)
        if place.tensor > 1:
            parallelize(self.model, mesh[TENSOR])
        self.root: Any = shard(self.model, mesh, find_blocks(self.model), place.autocast_dtype)
        self.root.to_empty(device=place.device)
        load_full_tensors(self.model, deferred.numbers(model) if deferred else named_tensors(model))
        move_parameters_to_meta(model.to(place.dtype))
        for own, of_all in zip(model.buffers(), self.model.buffers()):
            own.copy_(of_all)
        self.loss = self.root
        self.saver = Saver()

    def learn(self, loss: Callable[..., Any]) -> None:
        """Set the loss in all processes."""
        self.root.loss = loss

    @contextmanager
    def batch(self, last: bool) -> Iterator[None]:
        """Return the context of a batch.

        Before the last batch of an update, whole gradients are accumulated in each process.
        """
        set_gradient_sync(self.root, last)
        with super().batch(last), self.normalizing():
            yield

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Gather the parameters outside of blocks within this context. A block gathers its own when it computes."""
        self.root.unshard()
        try:
            yield
        finally:
            self.root.reshard()

    def clip(self, parameters: list[nn.Parameter], most: float) -> float | Tensor:
        """Clip the gradients by the norm of the whole gradient over all shards, and return that norm."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = global_norm(gradients)
        torch._foreach_mul_([local_part(gradient) for gradient in gradients], (most / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def save(self, folder: Path, tensors: dict[str, Tensor], state: TrainingState) -> None:
        """Write the shards of each process in the background."""
        self.saver.save(folder, LAST, tensors, {"state": state.to_json()})

    def saved(self) -> None:
        """Wait until the shards are written. Raises FileError."""
        self.saver.wait()


def select_strategy(
    model: nn.Module, place: DeviceContext, settings: TrainSettings, deferred: DeferredInit | None = None
) -> SingleProcess:
    """Return the parallel strategy for this model, whose initialization may be `deferred`."""
    if place.processes * place.tensor == 1:
        return SingleProcess(place.model(model), place, settings)
    if not settings.in_parts:
        return DataParallel(place.model(model), place, settings)
    # MERGED

    return ShardedDataParallel(model, place, settings, deferred)
