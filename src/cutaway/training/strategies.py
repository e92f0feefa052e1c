"""Selection of the parallel strategy."""

from __future__ import annotations

from torch import nn

from ..checkpoints.deferred_init import Deferred
from .config import TrainSettings
from .device import Placement
from .parallel import Alone, Replicated


def strategy(model: nn.Module, place: Placement, settings: TrainSettings, deferred: Deferred | None = None) -> Alone:
    """Return the parallel strategy for this model, whose initialization may be `deferred`."""
    if place.processes * place.tensor == 1:
        return Alone(place.model(model), place, settings)
    if not settings.in_parts:
        return Replicated(place.model(model), place, settings)
    from .sharded_strategy import Sharded  # slow to import

    return Sharded(model, place, settings, deferred)
