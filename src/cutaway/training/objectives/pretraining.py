"""Base class of objectives for pre-training without labels."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Generator, nn

from ...core.errors import SettingError
from ...data.dataset_base import DataSet, Split
from ...nn.eval_mode import eval_mode
from ...tasks.task import Task
from ..config import TrainSettings
from ..device import DeviceContext
from .supervised import Supervised


class Pretraining(Supervised):
    """Objective without targets, which is validated on its own random views."""

    least: ClassVar[int] = 1  # smallest batch that has a loss

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError for settings that need labels or the whole model's output."""
        said = f"objective={settings.objective}"
        if settings.tta:
            raise SettingError(
                "tta=true averages the answers to an image and to its mirror image, and "
                f"{data.spec.target.column} have none."
            )
        if settings.compile:
            raise SettingError(f"compile=true compiles the whole model, and {said} asks its parts: leave it out.")
        if settings.teacher:
            raise SettingError(f"{said} learns without labels, and a teacher tells classes: leave one of them out.")

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        super().__init__(model, task, settings, train, data)
        self.scores = self._scores

    @torch.no_grad()
    def _scores(self, split: Split, place: DeviceContext) -> dict[str, float]:
        """Return the loss on a split, with the same random numbers every time, in batches of the training batch size.

        The difficulty of telling the views of an image from the others depends on the number of others.
        """
        random, total, counted = Generator(place.device).manual_seed(0), 0.0, 0
        size = self.settings.batch_size or len(split)
        plan = [index for index in torch.split(torch.arange(len(split)), size) if len(index) >= self.least]
        with eval_mode(self.model):
            for batch in split.batches(plan):
                inputs, target = place.batch(batch)
                with place.autocast():
                    total += self.loss(inputs, target, None, random).loss.item()
                counted += len(target)
        return {"loss": total / counted if counted else float("nan")}
