"""Processes of a training: their requested number, the supported settings, and the run that a launch belongs to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ..core.config import build
from ..core.errors import LostProcess, SettingError
from ..core.files import read_json
from ..core.memory_budget import format_bytes, free_memory
from ..data.dataset_base import DataSet
from ..distributed.group import rank_and_size as place_in_group
from ..distributed.launch import is_launched, local_world_size, world_size
from ..models.base import BaseModel, as_base_model
from .batches import batch_examples
from .checkpoint import latest_checkpoint
from .config import TrainSettings
from .device import DeviceContext

# Other objectives compare the examples of a whole batch, or keep a state.
DISTRIBUTED_OBJECTIVES = ("supervised", "mae")
SETTINGS = ("processes", "max_restarts", "memory_fraction")
PROCESS_BYTES = 200 << 20  # bytes of a process that has imported PyTorch, without model and data


def process_settings(given: Mapping[str, Any], known: Mapping[str, Any]) -> TrainSettings:
    """Return the settings of processes from `given`, or from the `known` settings of a resumed run.

    Raises SettingError if torchrun has started another number of processes.
    """
    own = {**known, **given}
    settings = build(TrainSettings, {key: own[key] for key in SETTINGS if key in own})
    there = world_size()
    if is_launched() and "processes" in given and settings.processes not in (1, there):
        raise SettingError(
            f"processes={settings.processes}, and torchrun has started {there}: leave processes out, which torchrun "
            "decides."
        )
    return settings


def reject_beyond_machine(settings: TrainSettings) -> None:
    """Raise SettingError if the requested processes would use up the memory of this machine before training starts."""
    free = free_memory() if settings.memory_fraction else None
    if free is not None and settings.processes * PROCESS_BYTES > settings.memory_fraction * free:
        raise SettingError(
            f"processes={settings.processes} take about {format_bytes(settings.processes * PROCESS_BYTES)} before any"
            f" of them has a model, and {format_bytes(free)} are free, of which"
            f" memory_fraction={settings.memory_fraction:g} may be taken. One for each GPU, or for each of the"
            f" {os.cpu_count()} processors here, is enough."
        )


def reject_for_processes(settings: TrainSettings, data: DataSet, model: nn.Module, name: str) -> None:
    """Raise SettingError if the model, called `name`, cannot be trained by this number of processes."""
    there = place_in_group()[1]
    if settings.processes != there:
        raise SettingError(
            f"processes={settings.processes} are started by `cutaway train` alone, and here is one: leave it out."
        )
    if there > 1 and (settings.objective not in DISTRIBUTED_OBJECTIVES or data.tasks is not None):
        what = (
            f"objective={settings.objective}"
            if settings.objective not in DISTRIBUTED_OBJECTIVES
            else "a sequence of tasks"
        )
        raise SettingError(
            f"processes={there} each see a part of a batch, and {what} is learned from whole ones: leave processes out."
        )

    if (tensor := settings.tensor_parallel) > 1:
        if there % tensor:
            raise SettingError(
                f"tensor_parallel={tensor} takes so many processes for each model, and processes={there} are no "
                "multiple of that: give another number of either."
            )
        from ..distributed.tensor_parallel import reject_for_tensor_parallel  # slow to import

        reject_for_tensor_parallel(model, name, tensor)
    if there > 1:
        examples = batch_examples(data.splits["train"], settings)
        reject_small_batches(settings, examples, there, tensor)


def reject_small_batches(
    settings: TrainSettings, examples: int, processes: int, tensor: int, called: str = "processes"
) -> None:
    """Raise SettingError if a batch has fewer `examples` than there are copies of the model that share it.

    `called` is the name of the setting for the number of processes. The last batch of an epoch may be smaller: then
    each copy trains on all of it.
    """
    copies = processes // tensor
    if examples >= copies:
        return
    asked = f"{called}={processes}" + (f" with tensor_parallel={tensor}" if tensor > 1 else "")
    has = f"{examples:,} example{'s' * (examples != 1)}"
    said = f"{asked} shares each batch among {copies}, and it has {has}: some would have nothing to learn from."
    if settings.batch_tokens:
        raise SettingError(f"{said} Give a larger batch_tokens, or fewer {called}.")
    if not settings.batch_size or examples < settings.batch_size:
        raise SettingError(f"{said} The training split has no more: give fewer {called}.")
    said += f" Give batch_size={copies} or more, or fewer {called}."
    if settings.accumulate > 1:
        said += f" accumulate={settings.accumulate} does not help: its batches are shared one by one."
    raise SettingError(said)


def reject_parallel(settings: TrainSettings, model: nn.Module, place: DeviceContext) -> None:
    """Raise SettingError for a parallel strategy that these processes or this model do not support."""
    if settings.parallel in ("ddp", "fsdp", "hsdp") and place.processes == 1:
        there = "this is one" if place.tensor == 1 else f"tensor_parallel={place.tensor} takes all that there are"
        raise SettingError(f"parallel={settings.parallel} is for several processes, and {there}: leave it out.")
    if settings.in_parts:
        _reject_for_shards(settings, model)
    count, within = place.processes * place.tensor, local_world_size()
    if settings.parallel == "hsdp" and (count % within or count == within or within % place.tensor):
        raise SettingError(
            f"parallel=hsdp shards within each machine and copies between machines, and of {count} processes "
            f"{within} are on this one: take parallel=fsdp."
        )


def may_start_sharded(settings: TrainSettings) -> bool:
    """Return whether processes may shard the model from the start, so that no process has to hold it whole."""
    may = settings.in_parts or settings.parallel == "auto"
    pruned = settings.prune_channels or settings.sparsity or settings.prune_pattern != "none"
    whole = settings.vectors or pruned  # these need the initial weights
    return may and not whole and place_in_group()[1] > 1


def max_shards(settings: TrainSettings) -> int:
    """Return the largest number of shards into which processes may divide the model."""
    if not may_start_sharded(settings):
        return 1
    if settings.parallel == "hsdp":
        return local_world_size()
    return settings.tensor_parallel if settings.parallel == "ddp" else place_in_group()[1]


def requires_whole_weights(settings: TrainSettings, model: nn.Module) -> str | None:
    """Return the name of a setting that requires whole weights in each process, or None."""
    found = {
        f"freeze_epochs={settings.freeze_epochs}": settings.freeze_epochs,
        "compile=true": settings.compile,
        "channels_last=true": settings.channels_last,
        "a model that is initialized from training images": (
            type(as_base_model(model)).initialize_from is not BaseModel.initialize_from and not settings.weights
        ),
        "sparse embeddings": any(isinstance(m, nn.Embedding) and m.sparse for m in model.modules()),
    }
    return next((what for what, there in found.items() if there), None)


def _reject_for_shards(settings: TrainSettings, model: nn.Module) -> None:
    """Raise SettingError for settings that sharded weights do not support."""
    what = requires_whole_weights(settings, model)
    if what is None:
        return
    cut = settings.tensor_parallel > 1
    asked = f"tensor_parallel={settings.tensor_parallel}" if cut else f"parallel={settings.parallel}"
    raise SettingError(
        f"{asked} holds weights in parts, which {what} does not know: leave one of them out"
        f"{'' if cut else ', or take parallel=ddp'}."
    )


def find_launched_run(launch: str | None, out: str | Path | None) -> Path | None:
    """Return the run that the processes of a launch have started, in `out` or in runs/, or None."""
    for document in [Path(out) / "run.json"] if out is not None else sorted(Path("runs").glob("*/run.json")):
        if launch is not None and document.is_file() and _launch(document) == launch:
            return document.parent
    return None


def _launch(document: Path) -> Any:
    found = read_json(document)
    return found.get("launch") if isinstance(found, dict) else None


def add_resume_hint(lost: LostProcess, run: Path | None) -> LostProcess:
    """Return the same error, extended by how to resume the run."""
    if run is not None and latest_checkpoint(run / "checkpoints") is not None:
        way = f"Its checkpoint is kept, and any number of processes can go on: cutaway train --resume {run}"
    else:
        way = "There is no checkpoint yet: train anew."
    lost.args = (f"{lost} {way}",)
    return lost
