"""Dry runs of a prepared training: the memory of each process and the communication of a step."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from ...checkpoints.deferred_init import copy_to_meta
from ...core.errors import SettingError
from ...distributed.dry_run import DryRun, dry_run
from ...training.batches import largest_batch
from ...training.config import TrainSettings
from ...training.objectives.choice import build_objective
from ...training.optim import build_optimizers, find_blocks
from ...training.parallel import DISTRIBUTED_OBJECTIVES, checkpointed
from ...training.setup import TrainingSetup
from ...training.simulated_step import run_operation


def dry_runs(
    ready: TrainingSetup, shared: TrainSettings, strategies: Iterable[str], devices: int, machine: int
) -> dict[str, DryRun]:
    """Return the dry run of each strategy on a number of devices, `machine` of them in each machine.

    It uses the largest batch, the loss and the optimizer of the training. Only the shapes of the weights are used.

    Raises SettingError for objectives that do not support several processes, and for networks that need values.
    """
    of_several = [name for name in strategies if name != "one"]
    if not of_several:
        raise SettingError("Invalid dry_run=true: needs several devices, e.g. gpus=8.")
    if ready.settings.objective not in DISTRIBUTED_OBJECTIVES:
        raise SettingError(
            f"Invalid dry_run=true: objective={ready.settings.objective} does not support several processes. Leave "
            "dry_run out."
        )
    return {name: _dry_run_strategy(ready, shared, name, devices, machine) for name in of_several}


def _dry_run_strategy(ready: TrainingSetup, shared: TrainSettings, strategy: str, devices: int, machine: int) -> DryRun:
    """Return the dry run of one step of `strategy` on `devices` devices, `machine` of them on each machine."""
    model, split, place = copy_to_meta(ready.model), ready.data.splits["train"], ready.place
    index = largest_batch(split, ready.settings)
    index = index[: -(-len(index) * shared.tensor_parallel // devices)]  # the share of a device, rounded up
    batch = next(iter(split.batches([index], seed=0)))

    def step(sharded: nn.Module) -> Tensor:
        objective = build_objective(sharded, ready.data, ready.task, ready.settings, split, place, ready.teacher)
        inputs, target = place.batch(batch)
        with place.autocast():
            total: Tensor = objective.loss(inputs, target, index, torch.Generator()).total
        return total

    try:
        return dry_run(
            lambda: model,
            step,
            find_blocks,
            processes=devices,
            parallel=strategy,
            tensor_parallel=shared.tensor_parallel,
            machine=machine,
            dtype=place.autocast_dtype,
            optimizers=partial(build_optimizers, settings=ready.settings),
            within=lambda: checkpointed(find_blocks(model), shared.recompute, nullcontext),
            carry_out=run_operation,
        )
    except (RuntimeError, TypeError) as error:
        raise SettingError(
            f"Invalid dry_run=true: the forward pass of {ready.preset.name} depends on values, and a dry run has "
            "shapes only. Leave dry_run out."
        ) from error
