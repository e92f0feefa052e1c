"""What a model takes to learn, beyond its own weights, and rejecting one that would not fit into memory."""

from __future__ import annotations

from typing import Any

from ..models.memory import Size, refuse_too_large
from ..models.registry import Preset
from .placement import find_device, free_memory
from .settings import TrainSettings

# Copies of each weight that an optimizer remembers. Muon has one of matrices, and two of all that it leaves to AdamW.
REMEMBERED = {"sgd": 0, "momentum": 1, "nesterov": 1, "adagrad": 1, "rmsprop": 1, "muon": 1}
OTHERS_REMEMBER = 2  # adadelta, adam, adamw


def bytes_to_learn(size: Size, settings: TrainSettings) -> int:
    """Bytes of a model that learns: its weights, their gradients, what the optimizer remembers, a moving average."""
    copies = 1 + REMEMBERED.get(settings.optimizer, OTHERS_REMEMBER)
    doubled = 2 if settings.precision == "float64" else 1
    return doubled * (size.bytes + copies * size.trained + (size.bytes if settings.ema else 0))


def reject_too_large_to_learn(found: Preset, config: Any, settings: TrainSettings) -> None:
    """Raise ModelError where a model of that config would not fit into memory with all that it needs to learn."""
    refuse_too_large(
        found,
        config,
        taken=lambda size: bytes_to_learn(size, settings),
        free=free_memory(find_device(settings.device)),
        fraction=settings.memory_fraction,
        what=f" to learn with optimizer={settings.optimizer} (weights, gradients, what the optimizer remembers)",
        way_out="; memory_fraction=0 goes on all the same",
    )
