"""Selection of the parallel strategy by memory: resolves `parallel=auto`, and rejects trainings that do not fit.

All functions use the same simulated step and the same memory of one device as `cutaway plan`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import nn

from ...core.errors import SettingError
from ...core.memory_budget import format_bytes
from ...distributed import environment
from ...distributed.group import rank_zero_only
from ..config import TrainSettings
from ..device import for_sharded_weights, free_memory, num_sharing_processes
from ..memory_check import MIN_REPORTED_FRACTION, reject_step_beyond_memory
from ..parameter_groups import find_blocks
from ..processes import reject_parallel, requires_whole_weights
from ..setup import TrainingSetup
from .fake_step import NeedsRealValues, is_traceable, simulate_step
from .strategies import ProcessMemory, num_shards, process_memory, weight_layout


def resolve_parallel(ready: TrainingSetup) -> None:
    """Resolve `parallel=auto`, if several processes share the batches. All processes must call it.

    Raises SettingError if the model does not fit whole and cannot be sharded.
    """
    settings, place = ready.settings, ready.place
    if settings.parallel == "auto" and place.processes > 1:
        room = _min_room(ready)
        too_large = room is not None and memory_per_process(ready, "ddp").total > room
        ready.settings = replace(settings, parallel="fsdp" if too_large else "ddp")
        reject_parallel(ready.settings, ready.model, place)
        ready.place = for_sharded_weights(ready.settings, place)
    if ready.deferred and not ready.settings.in_parts:
        initialize_deferred(ready)


def reject_beyond_memory(ready: TrainingSetup) -> list[str]:
    """Return a note on the memory of training, if it is a large part of the free memory.

    All processes must call it before the first step, after the strategy is resolved. Raises SettingError, with what
    would fit, if training takes more of a device than memory_fraction allows.
    """
    settings, place = ready.settings, ready.place
    count = place.processes * place.tensor
    if count == 1 or not is_traceable(ready):
        return reject_step_beyond_memory(ready)
    room = _min_room(ready)
    if room is None or room == math.inf:
        return []
    strategy = settings.parallel if settings.parallel in ("fsdp", "hsdp") else "ddp"
    held = memory_per_process(ready, strategy)
    said = (
        f"Training takes about {format_bytes(held.total)} on each of {count} devices with parallel={strategy}, "
        f"{format_bytes(held.of_batch)} of it for its part of a batch"
    )
    if held.total > room:
        free = f"{format_bytes(room)} of each may be taken (memory_fraction={settings.memory_fraction:g})"
        raise SettingError(f"{said}, and {free}. {_suggest_fix(ready, strategy, room)}")
    return [f"{said}; {format_bytes(room)} may be taken."] if held.total > MIN_REPORTED_FRACTION * room else []


def _suggest_fix(ready: TrainingSetup, strategy: str, room: float) -> str:
    """Return what would make the training fit, the most certain first."""
    if strategy == "ddp" and requires_whole_weights(ready.settings, ready.model) is None:
        parts = memory_per_process(ready, "fsdp").total
        if parts <= room:
            return f"Held in parts it takes {format_bytes(parts)} on each, and fits: parallel=fsdp."
        more = f"Held in parts (parallel=fsdp) it takes {format_bytes(parts)} on each: take that with"
    else:
        more = "Take"
    again = "recompute=full, " if ready.settings.recompute != "full" and find_blocks(ready.model) else ""
    return (
        f"{more} more devices, a smaller batch_size (accumulate makes up for it), {again}or a smaller model; "
        "memory_fraction=0 goes on all the same."
    )


def memory_per_process(ready: TrainingSetup, strategy: str) -> ProcessMemory:
    """Return the memory of each process in a step with that strategy. The first process computes it for all."""
    try:
        return rank_zero_only(lambda: _simulate_memory(ready, strategy))
    except NeedsRealValues:
        if ready.deferred is None:
            raise
        initialize_deferred(ready)
        return rank_zero_only(lambda: _simulate_memory(ready, strategy))


def _simulate_memory(ready: TrainingSetup, strategy: str) -> ProcessMemory:
    settings, place = ready.settings, ready.place
    alone = replace(
        ready,
        settings=replace(settings, processes=1, tensor_parallel=1, recompute="none"),
        place=replace(place, rank=0, processes=1, tensor=1, tensor_rank=0),
    )
    weights = weight_layout(
        ready.model, find_blocks(ready.model), place.dtype, place.autocast_dtype, bool(settings.ema)
    )
    on_gpu = place.device.type == "cuda"
    ranks = num_shards(strategy, place.processes, environment.local_world_size() // place.tensor)
    step = simulate_step(alone, place.processes, gpu=on_gpu)
    here = place.device.type == "cpu"
    return process_memory(
        strategy, step, weights, ranks, place.tensor, settings.recompute, reserved=on_gpu, copied=here
    )


def initialize_deferred(ready: TrainingSetup) -> None:
    """Initialize a model whose initialization was deferred, if processes hold it whole."""
    if ready.deferred is not None:
        ready.deferred.fill(ready.model)
        ready.deferred = None


def _min_room(ready: TrainingSetup) -> float | None:
    """Return the bytes that each process may use: the smallest number of any process; None if unknown."""
    device = ready.place.device
    rooms = ready.place.together(available_bytes(ready.model, device, ready.settings, num_sharing_processes(device)))
    return None if None in rooms else min(room for room in rooms if room is not None)


def available_bytes(
    model: nn.Module, device: torch.device, settings: TrainSettings, processes: int = 1
) -> float | None:
    """Return the bytes of the device that each of `processes` processes may use, including those of the loaded model.

    The result is None if the system does not report free memory.
    """
    free = free_memory(device)
    weights = [*model.parameters(), *model.buffers()]
    held = 0 if any(x.is_meta for x in weights) else sum(x.nbytes for x in weights)
    return None if free is None else (settings.memory_fraction or math.inf) * (free + held) / processes
