"""Weights that processes hold in parts, by rows, by heads and hidden units or by both: a strategy of the loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..distributed.parts import TENSOR, norm_of, part
from ..distributed.sharding import collect_gradients, mesh_of, shard
from ..distributed.storage import Saver
from ..distributed.tensor_parallel import parallelize
from .checkpoint import LAST, State
from .layers import blocks
from .parallel import Alone
from .placement import Placement
from .settings import TrainSettings


class Sharded(Alone):
    """Each process holds a part of every weight, and learns from a copy of the model."""

    def __init__(self, model: nn.Module, place: Placement, settings: TrainSettings) -> None:
        super().__init__(copy.deepcopy(model), place, settings)
        model.to("cpu" if place.writes else "meta")  # it is for the end, which is the first process's
        mesh = mesh_of(place.device, place.processes, settings.parallel, place.tensor)
        if place.tensor > 1:
            parallelize(self.model, mesh[TENSOR])
        self.root: Any = shard(self.model, mesh, blocks(self.model), place.autocast_dtype)
        self.loss = self.root
        self.saver = Saver()

    def learn(self, loss: Callable[..., Any]) -> None:
        """The same, by all processes."""
        self.root.loss = loss

    @contextmanager
    def batch(self, last: bool) -> Iterator[None]:
        """Until the last batch of an update gradients wait, whole, in each process."""
        collect_gradients(self.root, last)
        with super().batch(last), self.normalizing():
            yield

    @contextmanager
    def answering(self) -> Iterator[None]:
        """What stands outside of blocks is whole here; a block's weights come when it computes."""
        self.root.unshard()
        try:
            yield
        finally:
            self.root.reshard()

    def clip(self, parameters: list[nn.Parameter], most: float) -> float | Tensor:
        """The norm is that of the whole gradient."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = norm_of(gradients)
        torch._foreach_mul_([part(gradient) for gradient in gradients], (most / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def save(self, folder: Path, tensors: dict[str, Tensor], state: State) -> None:
        """Each process writes the parts that it holds, while the loop goes on."""
        self.saver.save(folder, LAST, tensors, {"state": state.to_json()})

    def saved(self) -> None:
        """As above."""
        self.saver.wait()
