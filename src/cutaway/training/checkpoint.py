"""Training checkpoints: everything that a run needs to resume exactly, as named tensors and JSON, without pickle.

The checkpoint of a run is one safetensors file with a checksum, `last.safetensors`. If processes hold weights in
shards, it is a folder `last-N` with the shards of each process (distributed/checkpoint.py). Any number of processes can
resume from either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..checkpoints.saving import find_mismatches, read_tensors, write_tensors
from ..core.errors import FileError, NotARunError, WeightsMismatchError
from ..core.schema import COUNT, NUMBER, dataclass_schema, from_document, replace_nonfinite, validate_document
from ..distributed.checkpoint import INDEX, Checkpoint, SingleFileCheckpoint, complete_checkpoints, remove
from ..distributed.tensor_parallel import gather_tensors, is_sharded, load, shard_like

LAST = "last"
WHOLE = f"{LAST}.safetensors"


@dataclass
class TrainingState:
    """Progress of training: everything that the loop counts."""

    epoch: int = 0  # finished epochs
    batch: int = 0  # finished batches of the current epoch
    update: int = 0  # finished updates, over all epochs
    lr: float = 0.0  # of the last update
    loss_sum: float = 0.0  # of the current epoch
    counted: float = 0.0  # divisor of loss_sum for the mean
    row_loss_sum: float = 0.0  # loss_sum at the last row of the current epoch
    row_counted: float = 0.0  # counted at the last row of the current epoch
    mistakes: int = 0  # corrections by the perceptron rule, over all epochs
    mistakes_before: int = 0  # mistakes at the start of the current epoch
    seconds: float = 0.0  # of training, over all sessions
    phase_update: int = 0  # updates before the current phase, which trains the head alone or everything
    phase_seconds: float = 0.0  # seconds of training before the current phase
    best_epoch: int = 0  # epoch with the best weights, counted from 1; 0 for none
    best_score: float | None = None
    best_loss: float | None = None  # validation loss of that epoch, which decides between equal scores
    best_zeros: int = 0  # pruned weights at that epoch; more are better
    resumed: int = 0  # number of times the run was resumed
    stopped: str = ""  # reason for the end of training; empty before
    run: str = ""  # id of the run (`runs.train.run_id`); earlier versions left it empty
    callbacks: dict[str, Any] = field(default_factory=dict)  # their states at the last checkpoint (callbacks.py)
    history: list[dict[str, Any]] = field(default_factory=list)  # rows of metrics.csv (callbacks.py)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, which are not changed by later rows."""
        best = {"best_score": self.best_score, "best_loss": self.best_loss}  # NaN becomes None
        return {**vars(self), **replace_nonfinite(best), "history": [*self.history]}


STATE = {"state": dataclass_schema(TrainingState, history=[dict], best_score=NUMBER | None, best_loss=NUMBER | None)}
ROW = {"epoch?": NUMBER, "step?": COUNT, "seconds?": NUMBER}


def read_state(meta: Any, path: Path) -> TrainingState:
    """Return the state that `to_json` wrote to the file at `path`. Raises FileError if it is not a valid state."""
    validate_document(meta, STATE, path, "Resume from a copy of the run's folder, or train again.")
    for row in meta["state"].get("history") or ():
        validate_document(row, ROW, path, "Resume from a copy of the run's folder, or train again.")
    found = from_document(TrainingState, meta["state"])
    found.history = [*found.history]
    return found


def checkpoint_tensors(
    model: nn.Module,
    optimizers: list[Optimizer],
    average: Mapping[str, Tensor] | None,
    hidden_state: tuple[Tensor, ...] = (),
    remembered: Mapping[str, Tensor] | None = None,
    random: Sequence[Mapping[str, Tensor]] = (),
    callbacks: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by name, whole or sharded as in memory.

    `average` are the averaged weights, `hidden_state` is that of a recurrent model, `remembered` the state of the
    objective from earlier tasks, and `random` the random state of each process, by default that of this process alone.
    `callbacks` are the tensors in the states of callbacks.
    """
    tensors: dict[str, Tensor] = {f"model.{k}": v for k, v in model.state_dict().items()}
    if average is not None:
        tensors |= {f"average.{k}": v for k, v in average.items()}
    for i, optimizer in enumerate(optimizers):
        for parameter, values in optimizer.state_dict()["state"].items():
            tensors |= {
                f"optimizer.{i}.{parameter}.{k}": torch.as_tensor(v) for k, v in values.items() if v is not None
            }
    tensors |= {f"carried.{i}": part for i, part in enumerate(hidden_state)}
    tensors |= {f"remembered.{k}": v for k, v in (remembered or {}).items()}
    tensors |= {f"callback.{k}": v for k, v in (callbacks or {}).items()}
    for rank, states in enumerate(random or [random_state()]):
        tensors |= {f"{_random_prefix(rank)}{name}": state for name, state in states.items()}
    return tensors


def save_whole(folder: Path, tensors: Mapping[str, Tensor], state: TrainingState, writes: bool = True) -> None:
    """Write the checkpoint as one file atomically, and remove sharded checkpoints, which it replaces.

    All processes must call this function, but only the one with `writes` writes the file. Raises FileError if it cannot
    be written.
    """
    tensors = gather_tensors(tensors, keep=writes)
    if writes:
        write_tensors(folder / WHOLE, tensors, {"state": state.to_json()})
        for path in _sharded_checkpoints(folder):
            remove(path)


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint, a file or a folder, in a run's `checkpoints` folder, or None."""
    file = [folder / WHOLE] if (folder / WHOLE).is_file() else []
    # Both kinds exist only if the process was killed while switching from one kind to the other.
    return max([*file, *_sharded_checkpoints(folder)[-1:]], key=_modified_ns, default=None)


def _sharded_checkpoints(folder: Path) -> list[Path]:
    return complete_checkpoints(folder, LAST)


def _modified_ns(checkpoint: Path) -> int:
    return (checkpoint / INDEX if checkpoint.is_dir() else checkpoint).stat().st_mtime_ns


class Loaded(NamedTuple):
    """The contents of a checkpoint except for the model and the optimizers."""

    state: TrainingState
    hidden_state: tuple[Tensor, ...]  # of a recurrent model
    learned: dict[str, Tensor]  # state of the objective
    callbacks: dict[str, Tensor]  # tensors in the states of callbacks


def load_checkpoint(
    folder: Path, model: nn.Module, optimizers: list[Optimizer], average: Mapping[str, Tensor] | None, rank: int = 0
) -> Loaded:
    """Restore everything from the newest checkpoint in the folder.

    The random state is that of the process with this `rank`. If the checkpoint has no state for this
    rank, a new one is seeded. Raises FileError if there is no checkpoint, or a file is missing, damaged or of another
    run.
    """
    path = latest_checkpoint(folder)
    if path is None:
        raise NotARunError(f"{folder} has no checkpoint to resume from: start a new run.")
    if path.is_dir() or any(map(is_sharded, model.parameters())):
        tensors, meta = _read_parts(path, model, optimizers, average, rank)
    else:
        tensors, meta = read_tensors(path)
        _reject_other(path, model, tensors)
    try:
        load(model, _strip_prefix("model.", tensors))
        if average is not None:
            for name, value in _strip_prefix("average.", tensors).items():
                average[name].copy_(shard_like(value, average[name]))
        for i, optimizer in enumerate(optimizers):
            _load_optimizer(optimizer, _strip_prefix(f"optimizer.{i}.", tensors))
        state = read_state(meta, path)
    except FileError:
        raise
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise WeightsMismatchError(f"{path} is not a checkpoint of this model and these settings: {error}") from error
    random = _strip_prefix(_random_prefix(rank), tensors)
    if random:
        torch.set_rng_state(random["cpu"])
    else:
        torch.manual_seed(rank + torch.initial_seed() + state.update)
    cuda = _strip_prefix("cuda.", random)
    if cuda and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([cuda[k] for k in sorted(cuda, key=int)][: torch.cuda.device_count()])
    carried, device = _strip_prefix("carried.", tensors), next(model.parameters()).device
    remembered = {k: v.to(device) for k, v in _strip_prefix("remembered.", tensors).items()}
    states = tuple(carried[k].to(device) for k in sorted(carried, key=int))
    return Loaded(state, states, remembered, _strip_prefix("callback.", tensors))


def _read_parts(
    path: Path, model: nn.Module, optimizers: list[Optimizer], average: Mapping[str, Tensor] | None, rank: int
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint, with the current sharding of each tensor, without the random states of other processes."""
    from ..distributed.checkpoint import read  # slow to import

    checkpoint = Checkpoint(path) if path.is_dir() else SingleFileCheckpoint(path)
    _reject_other(path, model, checkpoint.tensors)
    held = {f"model.{k}": v for k, v in model.state_dict().items()}
    held |= {f"average.{k}": v for k, v in average.items()} if average is not None else {}
    for i, optimizer in enumerate(optimizers):
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        held |= {f"optimizer.{i}.{number}": weight for number, weight in enumerate(weights)}
    tensors = {}
    for name, stored in checkpoint.tensors.items():
        if name.startswith("random.") and _random_rank(name) != rank:
            continue
        weight = held.get(name, held.get(name.rpartition(".")[0]))  # optimizer state is sharded like its weight
        if weight is not None and weight.shape == stored.shape:
            tensors[name] = torch.empty_like(weight, dtype=stored.dtype, requires_grad=False)
        else:
            tensors[name] = torch.empty_like(stored, device="cpu")
    read(checkpoint, tensors)
    return tensors, checkpoint.meta


def _reject_other(path: Path, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Raise FileError if a checkpoint is of another model."""
    if problems := find_mismatches(model.state_dict(), _strip_prefix("model.", tensors)):
        raise WeightsMismatchError(
            f"{path} is the checkpoint of another model: {'; '.join(problems)}. Resume with the run's own checkpoint, "
            "from a copy of its folder, or start a new run."
        )


def random_state() -> dict[str, Tensor]:
    """Return PyTorch's random state in this process, by device."""
    found = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        found |= {f"cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return found


def _random_prefix(rank: int) -> str:
    """Return the prefix of the names of a process's random state."""
    return f"random.{rank}." if rank else "random."


def _random_rank(name: str) -> int:
    """Return the rank of the process that this random state is of."""
    number = name.split(".")[1]
    return int(number) if number.isdecimal() else 0


def load_weights(path: Path, model: nn.Module | None = None) -> dict[str, Tensor]:
    """Load only the weights of a checkpoint. Raises FileError if it is damaged, or not of that `model`."""
    tensors, _ = read_tensors(path)
    if model is not None:
        _reject_other(path, model, tensors)
    return _strip_prefix("model.", tensors)


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Write weights alone, in the format that `load_weights` reads."""
    write_tensors(path, {f"model.{k}": v for k, v in weights.items()}, {})


def _strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _load_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load the optimizer's state from the tensors `PARAMETER.NAME` of a checkpoint."""
    document = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        parameter, name = key.split(".", 1)
        state.setdefault(int(parameter), {})[name] = value
    document["state"] = state
    optimizer.load_state_dict(document)
    # Files keep no strides, and a fused optimizer traverses memory in order: the state of a weight must have the same
    # memory format as the weight, such as channels last.
    for weight, remembered in optimizer.state.items():
        for name, value in remembered.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                remembered[name] = value = shard_like(value, weight)
            if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                remembered[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def task_weights_path(checkpoints: Path, task: int) -> Path:
    """Return the file with the weights at the end of a task, for evaluation on the test split."""
    return checkpoints / f"task-{task + 1}.safetensors"
