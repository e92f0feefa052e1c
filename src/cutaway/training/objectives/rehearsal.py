"""Rehearsal: some examples of earlier tasks are stored and replayed with those of the current task.

After A. Robins, Catastrophic forgetting, rehearsal and pseudorehearsal, Connection Science 7, 1995
<https://doi.org/10.1080/09540099550039318>; as experience replay with small memories in A. Chaudhry et al., On tiny
episodic memories in continual learning, 2019 <https://arxiv.org/abs/1902.10486>.

Of every class of each finished task the first `buffer` examples in random order are stored. To each batch of the
current task the same number of stored examples is added (so that a step has twice `batch_size`), all of them equally
often. Both depend on the seed, the task and the epoch alone, like all training batches: a resumed run stores the same
examples.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from ...core.errors import SettingError
from ...data.dataset_base import DataSet, Split
from ...data.samplers import Batches
from ..batches import mix_seeds
from ..config import TrainSettings
from .joint import reject_without_tasks
from .supervised import Supervised


class Rehearsal(Supervised):
    """Loss of the task on examples of the current task and stored ones."""

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError if there are no tasks, or fewer examples than are to be stored."""
        reject_without_tasks(settings, data, "stores examples of the tasks before")
        train = data.splits["train"]
        assert data.tasks is not None
        assert train.target is not None
        most = int((data.tasks.of(train) * (int(train.target.max()) + 1) + train.target.cpu()).bincount().max())
        if settings.buffer > most:
            raise SettingError(
                f"buffer={settings.buffer} is more than a class of a task has: at most {most:,} training examples. "
                f"buffer={most} stores them all, as joint training has them."
            )

    def batches(self, train: Split, settings: TrainSettings, epoch: int) -> Batches:
        """Return the batches of the epoch's task, each followed by the same number of stored examples."""
        new, stored = super().batches(train, settings, epoch), self.stored(train, self.sequence.task(epoch))
        if not len(stored):
            return new
        count, random = sum(map(len, new)), Generator().manual_seed(mix_seeds(settings.seed, epoch, 1, 0))
        turns = [stored[torch.randperm(len(stored), generator=random)] for _ in range(math.ceil(count / len(stored)))]
        old = torch.split(torch.cat(turns)[:count], [len(batch) for batch in new])
        return [torch.cat(both) for both in zip(new, old)]

    def stored(self, train: Split, task: int) -> Tensor:
        """Return the indices of the examples that are stored when that task starts."""
        assert self.sequence.of is not None
        assert train.target is not None
        found = [torch.empty(0, dtype=torch.int64)]
        for earlier in range(task):
            rows = (self.sequence.of == earlier).nonzero()[:, 0]
            random = Generator().manual_seed(mix_seeds(self.settings.seed, earlier))
            rows = rows[torch.randperm(len(rows), generator=random)]
            target = train.target[rows].cpu()
            found += [rows[target == k][: self.settings.buffer] for k in range(int(train.target.max()) + 1)]
        return torch.cat(found)
