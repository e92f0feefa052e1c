"""Selection of the parallel strategy."""

from __future__ import annotations

from torch import nn

from ..checkpoints.deferred_init import DeferredInit
from .config import TrainSettings
from .device import DeviceContext
from .parallel import DataParallel, SingleProcess


def select_strategy(
    model: nn.Module, place: DeviceContext, settings: TrainSettings, deferred: DeferredInit | None = None
) -> SingleProcess:
    """Return the parallel strategy for this model, whose initialization may be `deferred`."""
    if place.processes * place.tensor == 1:
        return SingleProcess(place.model(model), place, settings)
    if not settings.in_parts:
        return DataParallel(place.model(model), place, settings)
    from .sharded_strategy import ShardedDataParallel  # slow to import

    return ShardedDataParallel(model, place, settings, deferred)
