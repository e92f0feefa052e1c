"""Meta-learning: a network is trained on episodes to classify new classes from a few examples.

MAML (C. Finn, P. Abbeel, S. Levine, 2017 <https://arxiv.org/abs/1703.03400>) learns weights from which one or a few
steps of gradient descent on the support of an episode lead to a small loss on its queries. Prototypical networks (J.
Snell, K. Swersky, R. S. Zemel, 2017 <https://arxiv.org/abs/1703.05175>) learn features such that queries are nearest to
the mean over the support of their class. The equations are in `nn.few_shot`, episodes are defined in `data.episodes`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Generator, Tensor, nn

from ...core.errors import IncompatibleSettingError
from ...core.spec import Episodes
from ...data.dataset_base import DataSet, Split
from ...tasks.task import Task
from ..config import TrainSettings
from ..optim import backbone_names
from .supervised import BatchLoss, Supervised


class Prototypes(Supervised):
    """Loss of queries by their distances to prototypes. The network's head is not used."""

    numbers = False  # whether regression is supported

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError for data or settings that few-shot learning does not support."""
        said, target = f"objective={settings.objective}", data.spec.target
        if not isinstance(target, Episodes):
            raise IncompatibleSettingError(
                f"{said} learns from episodes of classes, of images in class folders, and this is {data.spec.kind} "
                f"data that asks for {target.column}: leave it out."
            )
        if not target.ways and not cls.numbers:
            raise IncompatibleSettingError(
                f"{said} tells classes apart, and {data.name} are numbers: take objective=maml."
            )
        asks = {
            "compile": "compiles the whole model, and episodes ask it in another way",
            "tta": "averages the answers to an image and to its mirror image, and episodes are not mirrored",
            "teacher": "tells classes that stay, and those of an episode are new",
            "lora": "adapts weights that others learned, and here all are learned to be adapted",
        }
        for key, why in asks.items():
            if getattr(settings, key):
                raise IncompatibleSettingError(f"{key}={getattr(settings, key)} {why}: leave it out with {said}.")

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        super().__init__(model, task, settings, train, data)
        learning = {name for name, p in model.named_parameters() if p.requires_grad}
        if not self.numbers and (settings.freeze_epochs or not learning & backbone_names(model)):
            raise IncompatibleSettingError(
                "objective=prototypes trains the backbone, but all of it is frozen here: leave freeze and "
                "freeze_epochs out, or use a network with more than a head."
            )

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> BatchLoss:
        """Return the losses of a batch of episodes."""
        asked: Any = self.task
        outputs: Tensor = asked.run_model(self.model, inputs[0], target, self.settings.first_order)
        loss = self.task.loss(outputs, target)
        return BatchLoss(loss, loss, outputs)


class MAML(Prototypes):
    """Loss of queries after gradient descent on the support."""

    numbers, weighable = True, False

    @classmethod
    def learned_from(cls, data: DataSet, settings: TrainSettings) -> DataSet:
        """Return the data with a target that contains the settings of the inner loop, which evaluation needs too."""
        if not isinstance(data.spec.target, Episodes):
            return data
        inner = {"inner_lr": settings.inner_lr, "inner_steps": settings.inner_steps}
        target = dataclasses.replace(data.spec.target, **inner)  # type: ignore[arg-type]
        spec: Any = dataclasses.replace(data.spec, target=target)
        preprocessing: Any = data.preprocessing
        return dataclasses.replace(data, spec=spec, preprocessing=dataclasses.replace(preprocessing, spec=spec))
