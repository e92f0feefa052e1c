"""Sequences of tasks made of one data set with classes, for continual learning.

    permuted:K   task t has every example, its pixels (or columns) in another order π_t; π_1 is the original order
    classes:C    task t has the examples of C classes, in the order of the classes

Permuted tasks have the same classes (domain-incremental; after I. J. Goodfellow, M. Mirza, D. Xiao, A. Courville, Y.
Bengio, An empirical investigation of catastrophic forgetting in gradient-based neural networks, 2013
<https://arxiv.org/abs/1312.6211>). Tasks of classes share one head over all classes, which does not get the task
(class-incremental; G. M. van de Ven, A. S. Tolias, Three scenarios for continual learning, 2019
<https://arxiv.org/abs/1904.07734>).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch
from PIL.Image import Image
from torch import Tensor

from ..core.config import shorten
from ..core.errors import IncompatibleSettingError, SettingError, join
from ..core.spec import Classes, ImageSpec, Spec, TableSpec
from .dataset_base import Batch, DataSet, SequenceSplit, Split

FORMS = "permuted:10 (ten tasks, the pixels of each in another order) or classes:2 (two classes a task)"
MOST = 1000


@dataclass(frozen=True)
class TaskSequence:
    """A sequence of tasks and the assignment of examples to them."""

    names: tuple[str, ...]
    classes: int = 0  # classes of a task; 0 for permuted tasks, each of which has all classes

    @property
    def count(self) -> int:
        """The number of tasks."""
        return len(self.names)

    def task_ids(self, split: Split) -> Tensor:
        """Return the task of each example, (n,), from 0."""
        if isinstance(split, PermutedSplit):
            return torch.arange(self.count).repeat_interleave(len(split.base))
        assert split.target is not None, "tasks are of examples with targets"
        return split.target.cpu() // self.classes

    def original(self, split: Split) -> Tensor:
        """Return the number of the original example of each example, (n,); permuted tasks share them."""
        return torch.arange(len(split)) % (len(split.base) if isinstance(split, PermutedSplit) else len(split))

    def up_to(self, split: Split, task: int) -> Split:
        """Return the examples of the tasks up to and including `task`."""
        rows = (self.task_ids(split) <= task).nonzero()[:, 0]
        return split if len(rows) == len(split) else subset(split, rows)


class PermutedSplit(Split):
    """Every example of a split once per task, permuted by the task's order; task after task."""

    def __init__(self, base: Split, orders: Tensor) -> None:
        """Initialize with `orders` (tasks, places), the source position of each position."""
        assert base.target is not None, "tasks are of examples with targets"
        self.base, self.orders, self.target = base, orders, base.target.repeat(len(orders))

    def __len__(self) -> int:
        return len(self.orders) * len(self.base)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of the split, permuted; all channels of an image in the same order."""
        wanted = [index.cpu() for index in order]
        for index, batch in zip(wanted, self.base.batches((index % len(self.base) for index in wanted), seed)):
            x, *rest = batch.inputs
            channels = x.shape[1] if x.ndim > 2 else 1
            flat = x.reshape(len(x), channels, -1)  # (N, C, places)
            orders = self.orders[index // len(self.base)].to(x.device)[:, None].expand(-1, channels, -1)
            yield Batch((flat.gather(2, orders).view(x.shape), *rest), batch.target)

    def name(self, i: int) -> str:
        """Return the example's name and its task."""
        return f"{self.base.name(i % len(self.base))}, task {i // len(self.base) + 1}"

    def image(self, i: int) -> Image | None:
        """Return the original image, before it was permuted."""
        return self.base.image(i % len(self.base))

    def row(self, i: int) -> dict[str, str] | None:
        """Return the original row."""
        return self.base.row(i % len(self.base))


class SubsetSplit(Split):
    """A subset of the examples of a split."""

    def __init__(self, base: Split, rows: Tensor) -> None:
        assert base.target is not None, "a part to learn from, or to be judged by, has targets"
        self.base, self.rows, self.target = base, rows, base.target[rows.to(base.target.device)]

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of the subset."""
        return self.base.batches((self.rows[index] for index in order), seed)

    def name(self, i: int) -> str:
        """Return the example's name."""
        return self.base.name(int(self.rows[i]))


def subset(split: Split, rows: Tensor) -> Split:
    """Return the examples of a split with these numbers."""
    return split.part(rows) if isinstance(split, SequenceSplit) else SubsetSplit(split, rows)


def to_tasks(data: DataSet, asked: str, seed: int) -> DataSet:
    """Divide the data into the tasks that `asked` describes; `seed` draws the orders of permuted tasks.

    Raises SettingError if the data cannot be divided like this.
    """
    said = f"tasks={shorten(asked)}"
    found = re.fullmatch(r"(permuted|classes):(\d{1,6})", asked)
    if found is None:
        raise SettingError(f"Invalid {said}: must be {FORMS}.")
    form, number, target = found[1], int(found[2]), data.spec.target
    if type(target) is not Classes or (data.spec.kind == "graph" and not getattr(data.spec, "graph_level", False)):
        raise IncompatibleSettingError(
            f"{said} makes tasks of examples with classes, and this is {data.spec.kind} data that asks for "
            f"{target.column}{' of nodes' if data.spec.kind == 'graph' else ''}: leave it out."
        )
    train = data.splits["train"]
    if hasattr(train, "plan") and not isinstance(train, SequenceSplit):
        raise IncompatibleSettingError(
            f"{said} takes examples one by one, which {data.spec.kind} data does not give: leave it out."
        )
    made = _permuted_tasks(data, said, number, seed) if form == "permuted" else _tasks_by_class(data, said, number)
    assert made.tasks is not None
    filled = made.tasks.task_ids(made.splits["train"]).bincount(minlength=made.tasks.count)
    if empty := [name for name, n in zip(made.tasks.names, filled.tolist()) if not n]:
        raise IncompatibleSettingError(
            f"{said} leaves no training example to {join(empty[:5], 'and')}: give more data."
        )
    return replace(made, notes=[*data.notes, f"{said}: {made.tasks.count} tasks, learned one after another."])


def _permuted_tasks(data: DataSet, said: str, count: int, seed: int) -> DataSet:
    """Return tasks whose inputs are permuted, each in its own way; the first keeps the original order."""
    if not isinstance(data.spec, ImageSpec | TableSpec):
        raise IncompatibleSettingError(
            f"{said} reorders the pixels of images or the columns of tables, and this is {data.spec.kind} data: "
            "tasks=classes:2 takes its classes two by two."
        )
    if not 2 <= count <= MOST:
        raise SettingError(f"{said} is not a sequence of tasks: give permuted:2 to permuted:{MOST}.")
    if data.augment is not None:
        raise IncompatibleSettingError(
            f"{said} puts pixels where no image has them, and augmentation (flip, crop and the like) moves or blends "
            "them as in an image: leave one of them out."
        )
    places, generator = _places(data.spec), torch.Generator().manual_seed(seed)
    orders = torch.stack(
        [torch.arange(places), *(torch.randperm(places, generator=generator) for _ in range(count - 1))]
    )
    splits = {name: cast(Split, PermutedSplit(split, orders)) for name, split in data.splits.items()}
    names = ("as it is", *(f"order {t + 1}" for t in range(1, count)))
    return replace(data, splits=splits, tasks=TaskSequence(names))


def _tasks_by_class(data: DataSet, said: str, number: int) -> DataSet:
    names = data.spec.target.classes
    divisors = [n for n in range(1, len(names)) if len(names) % n == 0]
    if number not in divisors:
        ways = join([f"classes:{n}" for n in divisors], "or")
        why = "leaves one task" if number == len(names) else "does not divide them"
        raise IncompatibleSettingError(f"Invalid {said}: there are {len(names)} classes, and it {why}. Give {ways}.")
    tasks = tuple(" ".join(names[i : i + number]) for i in range(0, len(names), number))
    return replace(data, tasks=TaskSequence(tasks, number))


def _places(spec: Spec) -> int:
    """Return the number of pixels of an image, or of columns of a table, as the model receives them."""
    return spec.height * spec.width if isinstance(spec, ImageSpec) else int(spec.shape[0])
