"""Supervised learning, which is the base class of all objectives, and adversarial training.

Supervised learning minimizes the loss of the network's outputs and the targets. In adversarial training, a network is
trained on images that are changed to increase its loss.

After A. Madry, A. Makelov, L. Schmidt, D. Tsipras, A. Vladu, Towards deep learning models resistant to adversarial
attacks, 2017. <https://arxiv.org/abs/1706.06083>

    min_θ E[ max_{|δ| ≤ ε} L(x + δ, y; θ) ]     (equation 2.1; the inner maximum by FGSM or PGD, `nn.adversarial`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn

from ...core.errors import IncompatibleSettingError, SettingError, UnknownName
from ...core.spec import Classes, Spec
from ...data.augment import per_channel
from ...data.dataset_base import Batch, DataSet, Preprocessing, Split
from ...data.images.transforms import ImagePreprocessing
from ...data.samplers import Batches
from ...models.base import as_base_model, as_output_tuple
from ...nn.adversarial import Bounds, fgsm, pgd
from ...nn.modules import eval_mode
from ...tasks.task import Task
from ..batches import TaskSchedule
from ..chunked_head import build_chunked_head
from ..config import TrainSettings
from ..device import DeviceContext
from ..evaluation import is_stateful, trim_state


class BatchLoss(NamedTuple):
    """Losses and outputs of a batch."""

    loss: Tensor  # (), summed over the batch: the loss that is reported
    total: Tensor  # (), summed over the batch: the loss with all penalties, which is optimized
    outputs: Tensor | None = None  # the network's outputs, if they were held


class Supervised:
    """Loss of the task for the network's outputs, and for those of auxiliary heads if there are any.

    Other objectives are subclasses with their own `loss`. Each rejects settings that it does not support before the
    model is built. Modules that are needed for training alone are its `training_modules`, which are added to the model
    and removed after training.
    """

    adds: ClassVar[tuple[str, ...]] = ()  # names of the modules in `training_modules`
    at_once = False  # whether the tasks of a sequence are learned together
    weighable: ClassVar[bool] = True  # whether a step's memory can be traced, which second derivatives prevent

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError for data or settings that this objective does not support."""

    @classmethod
    def learned_from(cls, data: DataSet, settings: TrainSettings) -> DataSet:
        """Return the data as this objective uses it."""
        return data

    @classmethod
    def training_modules(cls, model: nn.Module, spec: Spec) -> dict[str, nn.Module]:
        """Return the modules, by name, that the model has only during training on such data.

        Raises ModelError if the model does not support them.
        """
        return {}

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        self.model, self.task, self.settings, self.data = model, task, settings, data
        self.network = as_base_model(model)
        self.task_schedule = TaskSchedule(data.tasks, train, settings.epochs, self.at_once)
        self.forward: Callable[..., Tensor] = torch.compile(model) if settings.compile else model
        self.sample_weights = data.weights  # of the training examples, (n,), on the CPU
        whole = self.sample_weights is None
        self.chunked_head = build_chunked_head(model, task, settings.loss_chunk, settings.compile) if whole else None
        self.scores: Callable[[Split, DeviceContext], dict[str, float]] | None = None  # own validation of a split
        self.is_stateful = is_stateful(model, train)
        self.hidden_state: tuple[Tensor, ...] = ()  # state of the model, carried between batches

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> BatchLoss:
        """Return the losses of a batch with the examples `index` (N,), with random numbers from `random`.

        Auxiliary heads contribute to the gradient, but not to any loss or metric that is reported.
        """
        if self.chunked_head and self.chunked_head.should_chunk(target):
            loss = self.chunked_head.loss(inputs, target)
            return BatchLoss(loss, loss)
        outputs, *auxiliary = self._answers(inputs)
        loss = self._task_loss(outputs, target, index)
        beside = (self.network.auxiliary_weight * self._task_loss(a, target, index) for a in auxiliary)
        return BatchLoss(loss, sum(beside, loss), outputs)

    def loss_denominator(self, target: Tensor, index: Tensor) -> float:
        """Return the sum of the sample weights of a batch with the examples `index` (N,), times those of classes."""
        assert self.sample_weights is not None
        weights: Tensor = self.task.example_weights(target).cpu()  # type: ignore[attr-defined]
        return float((self.sample_weights[index] * weights).sum())

    def _task_loss(self, outputs: Tensor, target: Tensor, index: Tensor | None) -> Tensor:
        """Return the loss of the task, summed over the batch with the sample weights, if there are any."""
        if self.sample_weights is None:
            return self.task.loss(outputs, target)
        assert index is not None
        losses: Tensor = self.task.training_losses(outputs, target)  # type: ignore[attr-defined]
        return (losses * self.sample_weights[index].to(losses)).sum()

    def batches(self, train: Split, settings: TrainSettings, epoch: int) -> Batches:
        """Return the example indices of each batch of an epoch, the same on every call."""
        return self.task_schedule.batches(train, settings, epoch)

    def end_task(self, train: Split, place: DeviceContext, epoch: int) -> None:
        """Finish the task that ends with that epoch, if there are several."""

    def state(self) -> dict[str, Tensor]:
        """Return the state that the objective carries from task to task, by name, for the checkpoint."""
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the state from a checkpoint."""

    def _answers(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the model's outputs for a batch, followed by those of auxiliary heads.

        If batches continue one another, the model continues from its previous state. Gradients do not go beyond the
        batch, which is truncated back-propagation through time.
        """
        if not self.is_stateful:
            return as_output_tuple(self.forward(*inputs))
        before = trim_state(self.hidden_state, len(inputs[0]))
        outputs, state = self.model.advance(*inputs, before)  # type: ignore[operator]
        self.hidden_state = tuple(part.detach() for part in state)
        return (outputs,)


class AdversarialTraining(Supervised):
    """Loss of the task on images that are changed by at most ε."""

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        super().__init__(model, task, settings, train, data)
        method = settings.attack
        assert method is not None
        self.attack = Attack(model, task, data.preprocessing, method, settings.attack_eps, settings.attack_steps)

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> BatchLoss:
        """Return the losses of an attacked batch."""
        x, *rest = inputs
        return super().loss((self.attack(x, target, random), *rest), target, index, random)


METHODS = ("fgsm", "pgd")


class Attack:
    """Adversarial attack on normalized images (N, C, H, W), which changes a pixel by at most `eps` of its range.

    A pixel ranges from 0 to 1 before normalization.
    """

    def __init__(
        self, model: nn.Module, task: Task, preprocessing: Preprocessing, method: str, eps: float, steps: int
    ) -> None:
        """Initialize the attack. Raises SettingError unless the data is images with classes and `eps` is positive."""
        if not isinstance(preprocessing, ImagePreprocessing) or not isinstance(preprocessing.spec.target, Classes):
            kind = preprocessing.spec.kind
            raise IncompatibleSettingError(
                f"attack={method} changes pixels of images so that they are misclassified, but this is {kind} "
                f"data with target {preprocessing.spec.target.column}: leave it out."
            )
        if not eps > 0:
            raise SettingError(f"eps={eps:g} changes nothing: a pixel goes from 0 to 1, and 8/255 is 0.031.")
        self.model, self.task, self.method, self.steps = model, task, method, steps
        self.eps, self.mean, self.std = eps, preprocessing.mean, preprocessing.std

    def __call__(self, x: Tensor, target: Tensor, generator: Generator) -> Tensor:
        """Return the attacked images. The gradient is that of the model in eval mode."""
        mean, std = per_channel(self.mean, x), per_channel(self.std, x)
        bounds = Bounds(self.eps / std, -mean / std, (1 - mean) / std)

        def loss(images: Tensor) -> Tensor:
            return self.task.loss(as_output_tuple(self.model(images))[0], target)

        with eval_mode(self.model):
            if self.method == "fgsm":
                return fgsm(loss, x, bounds)
            return pgd(loss, x, bounds, self.steps, generator)


class AttackedSplit(Split):
    """A split whose images are attacked when they are read. The random start is the same on every pass."""

    def __init__(
        self,
        split: Split,
        model: nn.Module,
        task: Task,
        preprocessing: Preprocessing,
        place: DeviceContext,
        method: str,
        eps: float,
        steps: int,
    ) -> None:
        """Initialize the split. Raises UnknownName for an unknown method, and SettingError as `Attack` does."""
        if method not in METHODS:
            raise UnknownName("attack", method, METHODS)
        self.split, self.place, self.target = split, place, split.target
        self.attack = Attack(model, task, preprocessing, method, eps, steps)

    def __len__(self) -> int:
        return len(self.split)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the attacked batches."""
        generator = Generator(self.place.device).manual_seed(0)
        for batch in self.split.batches(order, seed):
            (x, *rest), target = self.place.batch(batch)
            yield Batch((self.attack(x, target, generator), *rest), target)

    def name(self, i: int) -> str:
        """Return the name of example i."""
        return self.split.name(i)
