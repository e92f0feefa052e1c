"""What `parallel=auto` means: the whole model in each process where, as `cutaway plan` has it, that fits; or a part.

Both reckon with the same step, made of shapes, and with the same room.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import nn

from ...distributed import environment
from ..layers import blocks
from ..placement import for_parts, free_memory
from ..prepared import Prepared
from ..processes import reject_parallel
from ..settings import TrainSettings
from .step import step_of
from .strategies import memory_of, weights_of


def settle_parallel(ready: Prepared) -> None:
    """Say which strategy `parallel=auto` is, where several processes share the batches; all of them ask for it.

    Raises SettingError where the model does not fit whole, and cannot be held in parts.
    """
    settings, place = ready.settings, ready.place
    if settings.parallel != "auto" or place.processes == 1:
        return
    sharing = environment.local_world_size() if place.device.type == "cpu" else 1
    room = room_here(ready.model, place.device, settings, sharing)
    (too_large,) = place.total_of_all(float(room is not None and whole_in_each(ready) > room))
    ready.settings = replace(settings, parallel="fsdp" if too_large else "ddp")
    reject_parallel(ready.settings, ready.model, place)
    ready.place = for_parts(ready.settings, place)


def room_here(model: nn.Module, device: torch.device, settings: TrainSettings, sharing: int = 1) -> float | None:
    """Bytes of the device that each of so many processes which share it may take, with those that the model has taken
    already; None where the system does not say."""
    free = free_memory(device)
    weights = [*model.parameters(), *model.buffers()]
    held = 0 if any(x.is_meta for x in weights) else sum(x.nbytes for x in weights)
    return None if free is None else (settings.memory_fraction or math.inf) * (free + held) / sharing


def whole_in_each(ready: Prepared) -> float:
    """Bytes that each of the processes holds in a step by `parallel=ddp`."""
    settings, place = ready.settings, ready.place
    alone = replace(
        ready,
        settings=replace(settings, processes=1, tensor_parallel=1, recompute="none"),
        place=replace(place, rank=0, processes=1, tensor=1, tensor_rank=0),
    )
    weights = weights_of(ready.model, blocks(ready.model), place.dtype, place.autocast_dtype, bool(settings.ema))
    step = step_of(alone, place.processes, gpu=place.device.type == "cuda")
    reserved = place.device.type == "cuda"
    return memory_of("ddp", step, weights, 1, place.tensor, settings.recompute, reserved).total
