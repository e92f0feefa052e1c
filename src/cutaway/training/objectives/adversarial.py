"""Adversarial training: a network is trained on images that are changed to increase its loss.

After A. Madry, A. Makelov, L. Schmidt, D. Tsipras, A. Vladu, Towards deep learning models resistant to adversarial
attacks, 2017. <https://arxiv.org/abs/1706.06083>

    min_θ E[ max_{|δ| ≤ ε} L(x + δ, y; θ) ]     (equation 2.1; the inner maximum by FGSM or PGD, `nn.adversarial`)
"""

from __future__ import annotations

from torch import Generator, Tensor, nn

from ...data.dataset_base import DataSet, Split
from ...tasks.task import Task
from ..attacks import Attack
from ..config import TrainSettings
from .supervised import BatchLoss, Supervised


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
