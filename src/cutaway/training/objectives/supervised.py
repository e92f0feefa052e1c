"""Supervised learning: the loss of what the network answers, given what it should have answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn

from ...core.spec import Spec
from ...data.dataset_base import DataSet, Split
from ...data.samplers import Batches
from ...models.base import contract_of
from ...models.images import answers_of
from ...tasks.task import Task
from ..chunked_head import words_of
from ..config import TrainSettings
from ..device import Placement
from ..evaluation import carries, going_on
from ..task_schedule import Sequence


class Learned(NamedTuple):
    """What comes of a batch."""

    loss: Tensor  # (), summed over what the task counts: the one that is told
    total: Tensor  # (), summed likewise: the one whose gradient is taken, of the loss and of what is beside it
    outputs: Tensor | None = None  # what the network answered, where that was held


class Supervised:
    """The task's loss of the network's outputs, and of its auxiliary heads where it has some.

    An objective of another kind is a subclass with a `loss` of its own. What it cannot have it rejects, before there is
    a model; what the model needs to learn by it is `added` to the model, and gone when training is over.
    """

    adds: ClassVar[tuple[str, ...]] = ()  # the modules that the model has while it learns, by name: those of `added`
    at_once = False  # whether the tasks of a sequence are learned together
    weighable: ClassVar[bool] = True  # whether a step's memory can be traced: not that of second derivatives

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError for data, or for another setting, that this objective cannot have."""

    @classmethod
    def learned_from(cls, data: DataSet, settings: TrainSettings) -> DataSet:
        """The data as this objective learns from it."""
        return data

    @classmethod
    def added(cls, model: nn.Module, spec: Spec) -> dict[str, nn.Module]:
        """The modules, by name, that the model has while it learns from such data and loses afterwards; ModelError
        where it has no place for them."""
        return {}

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        self.model, self.task, self.settings, self.data = model, task, settings, data
        self.network = contract_of(model)
        self.sequence = Sequence(data.tasks, train, settings.epochs, self.at_once)
        self.forward: Callable[..., Tensor] = torch.compile(model) if settings.compile else model
        self.words = words_of(model, task, settings.loss_chunk, compiled=settings.compile)
        self.scores: Callable[[Split, Placement], dict[str, float]] | None = None  # of a split, where it judges itself
        self.carries = carries(model, train)
        self.carried: tuple[Tensor, ...] = ()  # what goes on from batch to batch of an epoch: a model's state

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> Learned:
        """What comes of a batch, of the examples of that `index` (N,); what is random in it is drawn from `random`.
        Auxiliary heads add their part to the gradient, and to nothing else that is counted or shown."""
        if self.words and self.words.many(target):
            loss = self.words.loss(inputs, target)
            return Learned(loss, loss)
        outputs, *auxiliary = self._answers(inputs)
        loss = self.task.loss(outputs, target)
        beside = (self.network.auxiliary_weight * self.task.loss(a, target) for a in auxiliary)
        return Learned(loss, sum(beside, loss), outputs)

    def batches(self, train: Split, settings: TrainSettings, epoch: int) -> Batches:
        """The example numbers of each batch of an epoch, the same whenever it is asked."""
        return self.sequence.batches(train, settings, epoch)

    def end_task(self, train: Split, place: Placement, epoch: int) -> None:
        """What is to be done when the task that ends with that epoch, of several, has been learned."""

    def remembered(self) -> dict[str, Tensor]:
        """What goes on from task to task beside the weights, by name, for the checkpoint."""
        return {}

    def remember(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what a checkpoint has: `remembered`."""

    def _answers(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The model's outputs for a batch, those of auxiliary heads after them.

        Where batches go on where the ones before ended, so does the model, from the state it had there; gradients go no
        further back than the batch: truncated back-propagation through time.
        """
        if not self.carries:
            return answers_of(self.forward(*inputs))
        before = going_on(self.carried, len(inputs[0]))
        outputs, state = self.model.advance(*inputs, before)  # type: ignore[operator]
        self.carried = tuple(part.detach() for part in state)
        return (outputs,)
