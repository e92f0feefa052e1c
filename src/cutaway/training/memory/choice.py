"""Selection of the parallel strategy by memory: resolves `parallel=auto`, and rejects trainings that do not fit.

All functions use the same simulated step and the same memory of one device as `cutaway plan`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import nn

from ...core.errors import SettingError
from ...core.memory_budget import in_bytes
from ...distributed import environment
from ...distributed.group import by_first
from ..config import TrainSettings
from ..device import for_parts, free_memory, sharing
from ..memory_check import WORTH_SAYING, reject_step_beyond_memory
from ..parameter_groups import blocks
from ..processes import reject_parallel, whole_weights_for
from ..setup import Prepared
from .fake_step import NeedsNumbers, can_be_watched, step_of
from .strategies import Memory, holders, memory_of, weights_of


def settle_parallel(ready: Prepared) -> None:
    """Resolve `parallel=auto`, if several processes share the batches. All processes must call it.

    Raises SettingError if the model does not fit whole and cannot be sharded.
    """
    settings, place = ready.settings, ready.place
    if settings.parallel == "auto" and place.processes > 1:
        room = _min_room(ready)
        too_large = room is not None and held_by_each(ready, "ddp").total > room
        ready.settings = replace(settings, parallel="fsdp" if too_large else "ddp")
        reject_parallel(ready.settings, ready.model, place)
        ready.place = for_parts(ready.settings, place)
    if ready.deferred and not ready.settings.in_parts:
        fill(ready)


def reject_beyond_memory(ready: Prepared) -> list[str]:
    """Return a note on the memory of training, if it is a large part of the free memory.

    All processes must call it before the first step, after the strategy is resolved. Raises SettingError, with what
    would fit, if training takes more of a device than memory_fraction allows.
    """
    settings, place = ready.settings, ready.place
    count = place.processes * place.tensor
    if count == 1 or not can_be_watched(ready):
        return reject_step_beyond_memory(ready)
    room = _min_room(ready)
    if room is None or room == math.inf:
        return []
    strategy = settings.parallel if settings.parallel in ("fsdp", "hsdp") else "ddp"
    held = held_by_each(ready, strategy)
    said = (
        f"Training takes about {in_bytes(held.total)} on each of {count} devices with parallel={strategy}, "
        f"{in_bytes(held.of_batch)} of it for its part of a batch"
    )
    if held.total > room:
        free = f"{in_bytes(room)} of each may be taken (memory_fraction={settings.memory_fraction:g})"
        raise SettingError(f"{said}, and {free}. {_suggest_fix(ready, strategy, room)}")
    return [f"{said}; {in_bytes(room)} may be taken."] if held.total > WORTH_SAYING * room else []


def _suggest_fix(ready: Prepared, strategy: str, room: float) -> str:
    """Return what would make the training fit, the most certain first."""
    if strategy == "ddp" and whole_weights_for(ready.settings, ready.model) is None:
        parts = held_by_each(ready, "fsdp").total
        if parts <= room:
            return f"Held in parts it takes {in_bytes(parts)} on each, and fits: parallel=fsdp."
        more = f"Held in parts (parallel=fsdp) it takes {in_bytes(parts)} on each: take that with"
    else:
        more = "Take"
    again = "recompute=full, " if ready.settings.recompute != "full" and blocks(ready.model) else ""
    return (
        f"{more} more devices, a smaller batch_size (accumulate makes up for it), {again}or a smaller model; "
        "memory_fraction=0 goes on all the same."
    )


def held_by_each(ready: Prepared, strategy: str) -> Memory:
    """Return the memory of each process in a step with that strategy. The first process computes it for all."""
    try:
        return by_first(lambda: _simulate_memory(ready, strategy))
    except NeedsNumbers:
        if ready.deferred is None:
            raise
        fill(ready)
        return by_first(lambda: _simulate_memory(ready, strategy))


def _simulate_memory(ready: Prepared, strategy: str) -> Memory:
    settings, place = ready.settings, ready.place
    alone = replace(
        ready,
        settings=replace(settings, processes=1, tensor_parallel=1, recompute="none"),
        place=replace(place, rank=0, processes=1, tensor=1, tensor_rank=0),
    )
    weights = weights_of(ready.model, blocks(ready.model), place.dtype, place.autocast_dtype, bool(settings.ema))
    on_gpu = place.device.type == "cuda"
    ranks = holders(strategy, place.processes, environment.local_world_size() // place.tensor)
    step = step_of(alone, place.processes, gpu=on_gpu)
    here = place.device.type == "cpu"
    return memory_of(strategy, step, weights, ranks, place.tensor, settings.recompute, reserved=on_gpu, copied=here)


def fill(ready: Prepared) -> None:
    """Initialize a model whose initialization was deferred, if processes hold it whole."""
    if ready.deferred is not None:
        ready.deferred.fill(ready.model)
        ready.deferred = None


def _min_room(ready: Prepared) -> float | None:
    """Return the bytes that each process may use: the smallest number of any process; None if unknown."""
    device = ready.place.device
    rooms = ready.place.together(room_here(ready.model, device, ready.settings, sharing(device)))
    return None if None in rooms else min(room for room in rooms if room is not None)


def room_here(model: nn.Module, device: torch.device, settings: TrainSettings, processes: int = 1) -> float | None:
    """Return the bytes of the device that each of `processes` processes may use, including those of the loaded model.

    The result is None if the system does not report free memory.
    """
    free = free_memory(device)
    weights = [*model.parameters(), *model.buffers()]
    held = 0 if any(x.is_meta for x in weights) else sum(x.nbytes for x in weights)
    return None if free is None else (settings.memory_fraction or math.inf) * (free + held) / processes
