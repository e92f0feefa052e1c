"""Objectives of continual learning: joint training, rehearsal, and elastic weight consolidation (EWC).

Joint training on all tasks at once is an upper bound for learning them one after another.

Rehearsal: some examples of earlier tasks are stored and replayed with those of the current task.

After A. Robins, Catastrophic forgetting, rehearsal and pseudorehearsal, Connection Science 7, 1995
<https://doi.org/10.1080/09540099550039318>; as experience replay with small memories in A. Chaudhry et al., On tiny
episodic memories in continual learning, 2019 <https://arxiv.org/abs/1902.10486>.

Of every class of each finished task the first `buffer` examples in random order are stored. To each batch of the
current task the same number of stored examples is added (so that a step has twice `batch_size`), all of them equally
often. Both depend on the seed, the task and the epoch alone, like all training batches: a resumed run stores the same
examples.

Elastic weight consolidation: weights that are important for earlier tasks are kept near their values.

After J. Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks, 2016.
<https://arxiv.org/abs/1612.00796>

    L(θ) = L_B(θ) + Σ_i λ/2 F_i (θ_i − θ*_A,i)²     (equation 3)

θ*_A are the weights at the end of task A, F the diagonal Fisher information there (`nn.losses`), λ is `ewc_lambda`.
Several earlier tasks have one such penalty each. Their sum has the gradient of a single penalty, with the sum of all F
about the mean of their θ* weighted by F. Only this one is stored, so that memory does not grow with the number of
tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from ...core.errors import IncompatibleSettingError, SettingError
from ...data.dataset_base import DataSet, Split
from ...data.samplers import Batches
from ...models.base import as_output_tuple
from ...nn.losses import diagonal_fisher
from ...nn.modules import eval_mode
from ...tasks.task import Task
from ..batches import mix_seeds
from ..config import TrainSettings
from ..device import DeviceContext
from .supervised import BatchLoss, Supervised


def reject_without_tasks(settings: TrainSettings, data: DataSet, does: str) -> None:
    """Raise SettingError if there is not a sequence of tasks; `does` describes the objective in the message."""
    if data.tasks is None:
        raise IncompatibleSettingError(
            f"objective={settings.objective} {does}, and there are no tasks: give tasks=permuted:10 or "
            "tasks=classes:2, or leave it out."
        )


class Joint(Supervised):
    """Loss of the task, with examples of all tasks in every batch."""

    at_once = True

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError if there are no tasks."""
        reject_without_tasks(settings, data, "learns all tasks at once")


class Rehearsal(Supervised):
    """Loss of the task on examples of the current task and stored ones."""

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError if there are no tasks, or fewer examples than are to be stored."""
        reject_without_tasks(settings, data, "stores examples of the tasks before")
        train = data.splits["train"]
        assert data.tasks is not None
        assert train.target is not None
        most = int((data.tasks.task_ids(train) * (int(train.target.max()) + 1) + train.target.cpu()).bincount().max())
        if settings.buffer > most:
            raise SettingError(
                f"buffer={settings.buffer} is more than a class of a task has: at most {most:,} training examples. "
                f"buffer={most} stores them all, as joint training has them."
            )

    def batches(self, train: Split, settings: TrainSettings, epoch: int) -> Batches:
        """Return the batches of the epoch's task, each followed by the same number of stored examples."""
        new, stored = super().batches(train, settings, epoch), self.stored(train, self.task_schedule.task(epoch))
        if not len(stored):
            return new
        count, random = sum(map(len, new)), Generator().manual_seed(mix_seeds(settings.seed, epoch, 1, 0))
        turns = [stored[torch.randperm(len(stored), generator=random)] for _ in range(math.ceil(count / len(stored)))]
        old = torch.split(torch.cat(turns)[:count], [len(batch) for batch in new])
        return [torch.cat(both) for both in zip(new, old)]

    def stored(self, train: Split, task: int) -> Tensor:
        """Return the indices of the examples that are stored when that task starts."""
        assert self.task_schedule.task_ids is not None
        assert train.target is not None
        found = [torch.empty(0, dtype=torch.int64)]
        for earlier in range(task):
            rows = (self.task_schedule.task_ids == earlier).nonzero()[:, 0]
            random = Generator().manual_seed(mix_seeds(self.settings.seed, earlier))
            rows = rows[torch.randperm(len(rows), generator=random)]
            target = train.target[rows].cpu()
            found += [rows[target == k][: self.settings.buffer] for k in range(int(train.target.max()) + 1)]
        return torch.cat(found)


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
            total = total + self.task.loss_denominator(target) * self.penalty()  # so that the mean loss has it once
        return BatchLoss(loss, total, outputs)

    def penalty(self) -> Tensor:
        """Return Σ_i λ/2 F_i (θ_i − θ*_i)², ()."""
        learned = dict(self.model.named_parameters())
        parts = [(F * (learned[name] - self.held[name]).square()).sum() for name, F in self.fisher.items()]
        return self.strength / 2 * torch.stack(parts).sum()

    def end_task(self, train: Split, place: DeviceContext, epoch: int) -> None:
        """Add the task that ends with that epoch to the penalty."""
        assert self.task_schedule.task_ids is not None, "tasks end where there are some"
        task = self.task_schedule.task(epoch)
        random = Generator().manual_seed(mix_seeds(self.settings.seed, task))
        rows = (self.task_schedule.task_ids == task).nonzero()[:, 0]
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

    def state(self) -> dict[str, Tensor]:
        """Return F and θ* of finished tasks, for the checkpoint."""
        return {f"{what}.{k}": v for what, of in (("fisher", self.fisher), ("held", self.held)) for k, v in of.items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the state from a checkpoint."""
        for name, value in tensors.items():
            what, key = name.split(".", 1)
            (self.fisher if what == "fisher" else self.held)[key] = value
