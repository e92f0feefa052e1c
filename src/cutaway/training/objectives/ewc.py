"""Elastic weight consolidation: weights that are important for earlier tasks are kept near their values.

After J. Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks, 2016.
<https://arxiv.org/abs/1612.00796>

    L(θ) = L_B(θ) + Σ_i λ/2 F_i (θ_i − θ*_A,i)²     (equation 3)

θ*_A are the weights at the end of task A, F the diagonal Fisher information there (`nn.fisher`), λ is `ewc_lambda`.
Several earlier tasks have one such penalty each. Their sum has the gradient of a single penalty, with the sum of all F
about the mean of their θ* weighted by F. Only this one is stored, so that memory does not grow with the number of
tasks.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from ...data.dataset_base import DataSet, Split
from ...models.images import as_output_tuple
from ...nn.eval_mode import eval_mode
from ...nn.fisher import diagonal_fisher
from ...tasks.task import Task
from ..batches import mix_seeds
from ..config import TrainSettings
from ..device import DeviceContext
from .joint import reject_without_tasks
from .supervised import BatchLoss, Supervised


class EWC(Supervised):
    """Loss of the task, and the quadratic penalty of earlier tasks.

    The loss that is reported is that of the task alone.
    """

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError for data or settings that elastic weight consolidation does not support."""
        reject_without_tasks(settings, data, "holds what mattered to the tasks before")

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        super().__init__(model, task, settings, train, data)
        self.strength, self.samples = settings.ewc_lambda, settings.fisher_samples
        self.fisher: dict[str, Tensor] = {}  # sum of F over finished tasks
        self.held: dict[str, Tensor] = {}  # mean of their weights, weighted by F

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> BatchLoss:
        """Return the losses of a batch."""
        loss, total, outputs = super().loss(inputs, target, index, random)
        if self.fisher:
            total = total + self.task.count(target) * self.penalty()  # so that the mean loss has it once
        return BatchLoss(loss, total, outputs)

    def penalty(self) -> Tensor:
        """Return Σ_i λ/2 F_i (θ_i − θ*_i)², ()."""
        learned = dict(self.model.named_parameters())
        parts = [(F * (learned[name] - self.held[name]).square()).sum() for name, F in self.fisher.items()]
        return self.strength / 2 * torch.stack(parts).sum()

    def end_task(self, train: Split, place: DeviceContext, epoch: int) -> None:
        """Add the task that ends with that epoch to the penalty."""
        assert self.sequence.of is not None, "tasks end where there are some"
        task = self.sequence.task(epoch)
        random = Generator().manual_seed(mix_seeds(self.settings.seed, task))
        rows = (self.sequence.of == task).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=random)[: self.samples]]
        learned = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        examples = (place.batch(batch)[0] for batch in train.batches(torch.split(rows, 1)))
        with eval_mode(self.model):
            found = diagonal_fisher(lambda x: as_output_tuple(self.model(*x))[0], list(learned.values()), examples)
        with torch.no_grad():
            for (name, weight), new in zip(learned.items(), found):
                before = self.fisher.get(name, torch.zeros_like(new))
                held, summed = self.held.get(name, weight), before + new
                mean = (before * held + new * weight) / summed
                self.held[name] = torch.where(summed > 0, mean, weight).clone()
                self.fisher[name] = summed

    def remembered(self) -> dict[str, Tensor]:
        """Return F and θ* of finished tasks, for the checkpoint."""
        return {f"{what}.{k}": v for what, of in (("fisher", self.fisher), ("held", self.held)) for k, v in of.items()}

    def remember(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the state from a checkpoint."""
        for name, value in tensors.items():
            what, key = name.split(".", 1)
            (self.fisher if what == "fisher" else self.held)[key] = value
