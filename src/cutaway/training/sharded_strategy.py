"""Parallel strategy with sharded weights: by rows, by heads and hidden units, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.deferred_init import DeferredInit, copy_to_meta, move_parameters_to_meta, named_tensors
from ..distributed.dtensors import TENSOR, global_norm, load_full_tensors, local_part
from ..distributed.fsdp import build_mesh, set_gradient_sync, shard
from ..distributed.storage import Saver
from ..distributed.tensor_parallel import parallelize
from .checkpoint import LAST, TrainingState
from .config import TrainSettings
from .device import DeviceContext
from .parallel import SingleProcess
from .parameter_groups import find_blocks


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
