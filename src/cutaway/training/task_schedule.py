"""Epochs of a sequence of tasks that are learned one after another.

`epochs` counts the epochs of each task. Each task has its own learning-rate schedule, so that the last one is learned
at the same rate as the first. Data without tasks is a sequence of one task, and so are tasks that are learned together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.config import as_text, shorten
from ..core.errors import SettingError
from ..data.dataset_base import DataSet, Split, Tasks
from ..data.samplers import Batches
from ..statistics.intervals import Metric
from ..tasks import continual
from ..tasks.classification import Classification
from ..tasks.task import Task
from .batches import epoch_batches
from .callbacks import swap_weights
from .checkpoint import load_weights, save_weights
from .config import TrainSettings
from .device import DeviceContext
from .evaluation import EVALUATION_BATCH_SIZE, SplitOutputs, evaluate_split

# Settings that would end the sequence early, or keep other weights than the last.
NOT_WITH_TASKS = ("max_steps", "minutes", "patience", "average_epochs", "ema", "freeze_epochs", "monitor", "lora")


class TaskSequence:
    """Sequence of the tasks of a training split."""

    def __init__(self, tasks: Tasks | None, train: Split, epochs: int, at_once: bool = False) -> None:
        """Initialize the sequence with `epochs` for each task. With `at_once` all tasks are learned together."""
        self.tasks, self.each = tasks, epochs
        self.count = tasks.count if tasks is not None and not at_once else 1
        self.of = tasks.task_ids(train) if tasks is not None and not at_once else None  # the task of each example, (n,)

    @property
    def epochs(self) -> int:
        """Return the number of epochs of all tasks."""
        return self.each * self.count

    def task(self, epoch: int) -> int:
        """Return the task of an epoch."""
        return min(epoch // self.each, self.count - 1)

    def begins(self, epoch: int) -> bool:
        """Return whether a task starts with that epoch."""
        return epoch % self.each == 0 and epoch < self.epochs

    def ends(self, epoch: int) -> bool:
        """Return whether a task ends with that epoch and another one follows."""
        return epoch + 1 < self.epochs and (epoch + 1) % self.each == 0

    def batches(self, train: Split, settings: TrainSettings, epoch: int) -> Batches:
        """Return the example indices of each batch of an epoch, all of its task."""
        if self.of is None:
            return epoch_batches(train, settings, epoch)
        return epoch_batches(train, settings, epoch, (self.of == self.task(epoch)).nonzero()[:, 0])

    def seen(self, split: Split, epoch: int) -> Split:
        """Return the part of a split whose tasks have been learned by that epoch, including the current task."""
        return self.tasks.up_to(split, self.task(epoch)) if self.tasks is not None and self.count > 1 else split

    def keep(self, checkpoints: Path, epoch: int, weights: Mapping[str, Tensor]) -> None:
        """Write the weights at the end of the task that ends with that epoch, for evaluation on the test split."""
        save_weights(_task_weights_path(checkpoints, self.task(epoch)), dict(weights))


def reject_for_tasks(settings: TrainSettings, data: DataSet) -> None:
    """Raise SettingError for settings that are incompatible with a sequence of tasks."""
    usual = TrainSettings()
    if data.tasks is None:
        return
    for key in NOT_WITH_TASKS:
        value = getattr(settings, key)
        if value and value != getattr(usual, key):
            raise SettingError(
                f"{key}={shorten(as_text(value))} cannot be used with tasks: each task has its own epochs, and "
                "the weights after the last one are kept. Leave it out."
            )


def reject_loss_for_tasks(settings: TrainSettings, data: DataSet, task: Task) -> None:
    """Raise SettingError for a loss that is incompatible with a sequence of tasks."""
    if data.tasks is not None and task.loss_name == "perceptron":
        raise SettingError(
            "loss=perceptron ends training at the first epoch without a mistake, and tasks come one after another: "
            "take loss=cross_entropy."
        )
    if settings.objective == "ewc" and task.loss_name not in ("cross_entropy", "map"):
        raise SettingError(
            f"objective=ewc asks how likely each class is, which loss={task.loss_name} does not tell: take "
            "loss=cross_entropy."
        )


def reject_other_epochs(settings: TrainSettings, data: DataSet, before: Mapping[str, Any]) -> None:
    """Raise SettingError if a run of several tasks is resumed with another number of epochs than `before`."""
    if data.tasks is not None and settings.epochs != before["settings"]["epochs"]:
        raise SettingError(
            f"epochs={settings.epochs} cannot change in a run of tasks, each of which has "
            f"{before['settings']['epochs']}: leave it out, or start a new run."
        )


def evaluate_tasks(
    tasks: Tasks | None,
    model: nn.Module,
    task: Task,
    split: Split,
    place: DeviceContext,
    run: Path,
    results: SplitOutputs,
) -> tuple[dict[str, Metric], dict[str, Any]]:
    """Return metrics of each task after each task was learned, and details for the report; both empty without tasks.

    `results` are the model's outputs for the split. Outputs at earlier times are computed with the weights that the run
    saved after each task. If there are none, as after joint training, only the final results are used.
    """
    if tasks is None:
        return {}, {}
    assert isinstance(task, Classification)
    kept = [_task_weights_path(run / "checkpoints", k) for k in range(tasks.count - 1)]
    answers = []
    if all(path.is_file() for path in kept):
        for path in kept:
            with swap_weights(model, load_weights(path)):
                answers.append(evaluate_split(model, split, place, EVALUATION_BATCH_SIZE, task))
    right = torch.stack([task.decide(found.outputs) == found.target for found in (*answers, results)])  # (times, n)
    of, original = tasks.task_ids(split), tasks.original(split)
    return continual.metrics(right, of, original), continual.details(right, of, tasks.names)


def _task_weights_path(checkpoints: Path, task: int) -> Path:
    return checkpoints / f"task-{task + 1}.safetensors"
