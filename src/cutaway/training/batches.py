"""Assignment of examples to training batches, the schedule of tasks, and weights of classes.

The batches of an epoch depend on the seed and the epoch alone, and not on the number of processes that share them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..data.dataset_base import DataSet, Split, Tasks
from ..data.samplers import Batches, BatchPlan, bucket_batches, padding_fraction
from ..data.task_sequence import subset
from .config import TrainSettings
from .evaluation import planned_batches

MIN_REPORTED_PADDING = 0.01  # smallest fraction of padding that is reported


def epoch_batches(split: Split, settings: TrainSettings, epoch: int, among: Tensor | None = None) -> Batches:
    """Return the example indices of each training batch of an epoch.

    The result depends on the arguments alone. `among` restricts the batches to those examples.
    """
    if among is not None:
        batches = epoch_batches(subset(split, among), settings, epoch)
        return [among[index] for index in batches]
    generator, size = torch.Generator().manual_seed(mix_seeds(settings.seed, epoch)), settings.batch_size or len(split)
    if hasattr(split, "plan"):
        return planned_batches(split, size, generator, settings.batch_tokens)
    if settings.sampling == "balanced":
        order = balanced_order(_cpu_target(split), generator)
    else:
        order = torch.randperm(len(split), generator=generator)
    batches = list(order.split(size))  # type: ignore[no-untyped-call]
    if len(batches) > 1 and len(batches[-1]) == 1 < size:
        # Batch norm needs more than one example, so a single last example joins the previous batch.
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


class TaskSchedule:
    """Epochs and batches of the tasks of a training split, which are learned one after another.

    `epochs` counts the epochs of each task. Each task has its own learning-rate schedule, so that the last one is
    learned at the same rate as the first. Data without tasks is a sequence of one task, and so are tasks that are
    learned together.
    """

    def __init__(self, tasks: Tasks | None, train: Split, epochs: int, at_once: bool = False) -> None:
        """Initialize the schedule with `epochs` for each task. With `at_once` all tasks are learned together."""
        self.tasks, self.epochs_per_task = tasks, epochs
        one_by_one = tasks is not None and not at_once
        self.count = tasks.count if tasks is not None and one_by_one else 1
        self.task_ids = tasks.task_ids(train) if tasks is not None and one_by_one else None  # of the examples, (n,)

    @property
    def epochs(self) -> int:
        """Return the number of epochs of all tasks."""
        return self.epochs_per_task * self.count

    def task(self, epoch: int) -> int:
        """Return the task of an epoch."""
        return min(epoch // self.epochs_per_task, self.count - 1)

    def starts_task(self, epoch: int) -> bool:
        """Return whether a task starts with that epoch."""
        return epoch % self.epochs_per_task == 0 and epoch < self.epochs

    def ends_task(self, epoch: int) -> bool:
        """Return whether a task ends with that epoch and another one follows."""
        return epoch + 1 < self.epochs and (epoch + 1) % self.epochs_per_task == 0

    def batches(self, train: Split, settings: TrainSettings, epoch: int) -> Batches:
        """Return the example indices of each batch of an epoch, all of its task."""
        if self.task_ids is None:
            return epoch_batches(train, settings, epoch)
        return epoch_batches(train, settings, epoch, (self.task_ids == self.task(epoch)).nonzero()[:, 0])

    def learned_tasks(self, split: Split, epoch: int) -> Split:
        """Return the part of a split whose tasks have been learned by that epoch, including the current task."""
        return self.tasks.up_to(split, self.task(epoch)) if self.tasks is not None and self.count > 1 else split


def largest_batch(split: Split, settings: TrainSettings) -> Tensor:
    """Return the example indices of the largest batch of the first epoch, padding included.

    If examples have lengths, the longest example comes first.
    """
    lengths: Tensor | None = getattr(split, "lengths", None)
    batches = epoch_batches(split, settings, epoch=0)
    if isinstance(batches, BatchPlan):  # there may be millions, all of one size except the last
        return batches[0]
    if lengths is None or len(lengths) != len(split):
        return max(batches, key=len)
    largest = max(batches, key=lambda index: len(index) * int(lengths[index].max()))
    return largest[lengths[largest].argsort(descending=True)]


def batch_examples(split: Split, settings: TrainSettings) -> int:
    """Return the number of examples in each batch but the last; with batch_tokens, the largest number in any batch."""
    if not settings.batch_tokens:
        return min(settings.batch_size or len(split), len(split))
    batches = epoch_batches(split, settings, epoch=0)
    return len(batches[0]) if isinstance(batches, BatchPlan) else max(map(len, batches))


def epochs_for_steps(split: Split, settings: TrainSettings, epochs: int | None = None) -> tuple[int, int]:
    """Return the number of epochs that `max_steps` takes, and the number of updates in them.

    There are at most `epochs` epochs, by default those of the settings. The last epoch may end early.
    """
    wanted, most = settings.max_steps or 1, epochs or settings.epochs
    epoch = updates = 0
    while updates < wanted and epoch < most:
        updates += math.ceil(len(epoch_batches(split, settings, epoch)) / settings.accumulate)
        epoch += 1
    return epoch, min(updates, wanted)


def balanced_order(target: Tensor, generator: torch.Generator) -> Tensor:
    """Draw as many example indices as there are examples, (n,), with equal probability for each class.

    For each one a class is drawn among those that occur, then an example of it. `target` is the class of each example,
    (n,).
    """
    counts = target.bincount()
    counts = counts[counts > 0]
    by_class = target.argsort(stable=True)  # the examples of a class are consecutive, from its start on
    start = counts.cumsum(0) - counts
    drawn = torch.randint(len(counts), target.shape, generator=generator)
    place = torch.rand(target.shape, generator=generator, dtype=torch.float64) * counts[drawn]
    return by_class[start[drawn] + place.long()]


def class_weights(data: DataSet, settings: TrainSettings) -> Tensor | None:
    """Return weights inverse to the frequency of each class in the training split, with mean 1 over its examples.

    They have the precision of the training. The result is None unless class_weights=balanced.
    """
    if settings.class_weights == "none" or not data.spec.target.classes:
        return None
    target = _cpu_target(data.splits["train"])
    counts = target.bincount(minlength=len(data.spec.target.classes))
    precision = torch.float64 if settings.precision == "float64" else torch.float32
    return len(target) / (len(counts) * counts.clamp(min=1).to(precision))


def padding_notes(split: Split, settings: TrainSettings) -> list[str]:
    """Return a note on the fraction of padding in training batches, if examples have different lengths."""
    lengths: Tensor | None = None if hasattr(split, "is_stateful") else getattr(split, "lengths", None)
    if lengths is None or lengths.min() == lengths.max():
        return []
    size, generator = settings.batch_size or len(split), torch.Generator().manual_seed(settings.seed)
    batches = bucket_batches(lengths, size, generator, settings.batch_tokens)
    if settings.batch_tokens:
        size = max(1, len(split) // len(batches))
    sorted_ = padding_fraction(lengths, batches)
    at_random = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))
    shuffled = padding_fraction(lengths, torch.split(at_random, size))
    if shuffled < MIN_REPORTED_PADDING:
        return []
    said = f"Lengths go from {int(lengths.min()):,} to {int(lengths.max()):,}."
    if shuffled - sorted_ < MIN_REPORTED_PADDING:  # few batches, each with texts of every length
        return [f"{said} {100 * sorted_:.1f} % of the steps of a batch are padding."]
    return [
        f"{said} Batches are of nearly equal length: {100 * sorted_:.1f} % of their steps are padding, where batches "
        f"at random would have {100 * shuffled:.1f} %."
    ]


def _cpu_target(split: Split) -> Tensor:
    """Return the targets of a labelled split on the CPU."""
    assert split.target is not None, "a split to learn from or to validate on has targets"
    return split.target.cpu()


def mix_seeds(*numbers: int) -> int:
    """Combine several numbers into one seed, such that similar numbers give unrelated seeds."""
    mixed = 0
    for number in numbers:  # the multiplier and shifts are SplitMix64's
        mixed = (mixed + number + 0x9E3779B97F4A7C15) & (2**64 - 1)
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        mixed ^= mixed >> 27
    return mixed & (2**63 - 1)
