"""SimCLR: contrastive pre-training, which matches two views of an image or a series; and the base of pre-training.

After T. Chen, S. Kornblith, M. Norouzi, G. Hinton, A simple framework for contrastive learning of visual
representations, 2020. <https://arxiv.org/abs/2002.05709>

    ℓ(i, j) = −log( exp(s_ij / τ) / Σ_{k ≠ i} exp(s_ik / τ) ),   s_ij the cosine similarity of z_i and z_j
    z = W₂ ReLU(W₁ h),   h the input of the network's head for a view (its features)

A batch of N images or series has 2N views, two of each (`data.augment`). The loss is the mean of ℓ(i, j) over all
positive pairs in both directions (NT-Xent, `nn.losses.nt_xent`). W₁ is the projection, which is discarded after
training, and W₂ the network's own head, whose outputs are compared. A network that is fine-tuned from the weights gets
a new head. τ is `temperature`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from ...core.errors import IncompatibleSettingError, ModelError
from ...core.spec import Spec, Views
from ...data.dataset_base import DataSet, Split
from ...data.images.transforms import ImagePreprocessing
from ...data.series.transforms import SeriesPreprocessing
from ...nn.losses import nt_xent
from ...nn.modules import eval_mode
from ...tasks.task import Task
from ..config import TrainSettings
from ..device import DeviceContext
from ..optim import PROJECTION, auxiliary_head, output_layers
from .supervised import BatchLoss, Supervised


class Pretraining(Supervised):
    """Objective without targets, which is validated on its own random views."""

    least: ClassVar[int] = 1  # smallest batch that has a loss

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError for settings that need labels or the whole model's output."""
        said = f"objective={settings.objective}"
        if settings.tta:
            raise IncompatibleSettingError(
                "tta=true averages the answers to an image and to its mirror image, and "
                f"{data.spec.target.column} have none."
            )
        if settings.compile:
            raise IncompatibleSettingError(
                f"compile=true compiles the whole model, and {said} asks its parts: leave it out."
            )
        if settings.teacher:
            raise IncompatibleSettingError(
                f"{said} learns without labels, and a teacher tells classes: leave one of them out."
            )

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


TEMPERATURE = 0.5  # default


def linear_head(model: nn.Module) -> nn.Linear:
    """Return the linear output layer. Raises ModelError if the outputs come from another layer, as in LeNet-5."""
    name = next(name for name in output_layers(model) if not auxiliary_head(name))
    head, config = model.get_submodule(name), getattr(model, "config", None)
    if not isinstance(head, nn.Linear) or head.out_features != getattr(config, "num_classes", None):
        raise ModelError(
            f"objective=simclr needs a model with a linear head, which {type(model).__name__} does not have: use "
            "another model."
        )
    return head


class SimCLR(Pretraining):
    """NT-Xent loss of two views of each image. Targets are not used."""

    adds = (PROJECTION,)
    least = 2

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError for data or settings that contrastive pre-training does not support."""
        if not isinstance(data.spec.target, Views):
            raise IncompatibleSettingError(
                "objective=simclr makes views of images and of series with one class each, and this is "
                f"{data.spec.kind} data that asks for {data.spec.target.column}: leave it out."
            )
        super().reject(settings, data)
        fewest = min(settings.batch_size or len(data.splits["train"]), len(data.splits["train"]))
        if fewest < 2:
            raise IncompatibleSettingError(
                f"objective=simclr tells an image's views from those of the others in its batch, and "
                f"batch_size={fewest} has no others: give 2 or more, better a few hundred."
            )

    @classmethod
    def training_modules(cls, model: nn.Module, spec: Spec) -> dict[str, nn.Module]:
        """Return W₁ and the ReLU, as wide as the head's input. Raises ModelError for a model without a linear head."""
        dim = linear_head(model).in_features
        return {PROJECTION: nn.Sequential(nn.Linear(dim, dim), nn.ReLU())}

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        super().__init__(model, task, settings, train, data)
        assert isinstance(data.preprocessing, ImagePreprocessing | SeriesPreprocessing), "views are of these"
        self.views = data.preprocessing.views()
        self.head, self.temperature = linear_head(model), settings.temperature or TEMPERATURE

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> BatchLoss:
        """Return the losses of a batch."""
        views = torch.cat(self.views(inputs[0], random))  # (2N, C, H, W), or (2N, T, F)
        h = self.model.features(views)  # type: ignore[operator]  # (2N, D)
        z: Tensor = self.head(self.model.get_submodule(PROJECTION)(h))  # (2N, dim)
        one, other = z.chunk(2)
        loss = nt_xent(one, other, self.temperature).sum()
        return BatchLoss(loss, loss, z)
