"""SimCLR: a network learns without labels, by telling which two views are of one image, or of one series.

After T. Chen, S. Kornblith, M. Norouzi, G. Hinton, A simple framework for contrastive learning of visual
representations, 2020. <https://arxiv.org/abs/2002.05709>

    ℓ(i, j) = −log( exp(s_ij / τ) / Σ_{k ≠ i} exp(s_ik / τ) ),   s_ij the cosine similarity of z_i and z_j
    z = W₂ ReLU(W₁ h),   h what the network's head sees of a view (its features)

Of the 2N views of a batch of N images, two are of each image (`data.images.contrastive_augmentation`; of series,
`data.series.contrastive_augmentation`); the mean of ℓ(i, j) over all of them from either side is the loss (NT-Xent,
`nn.losses.nt_xent`). W₁ is the projection, which is thrown away when training is over, and W₂ the network's own head
with as many outputs as views are compared by: a network that takes the weights gets a new one. τ is `temperature`.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from ...core.errors import ModelError, SettingError
from ...core.spec import Spec, Views
from ...data.dataset_base import DataSet, Split
from ...data.images.transforms import ImagePreprocessing
from ...data.series.signals import SeriesPreprocessing
from ...nn.losses import nt_xent
from ...tasks.task import Task
from ..config import TrainSettings
from ..parameter_groups import PROJECTION, auxiliary, heads
from .pretraining import Pretraining
from .supervised import Learned

TEMPERATURE = 0.5  # unless another is asked for


def head_of(model: nn.Module) -> nn.Linear:
    """The linear layer that gives the outputs. Raises ModelError where something else does, as in LeNet-5."""
    name = next(name for name in heads(model) if not auxiliary(name))
    head, config = model.get_submodule(name), getattr(model, "config", None)
    if not isinstance(head, nn.Linear) or head.out_features != getattr(config, "num_classes", None):
        raise ModelError(
            "objective=simclr compares views by what a linear head makes of them, and the outputs of "
            f"{type(model).__name__} come from something else: take another model."
        )
    return head


class SimCLR(Pretraining):
    """The NT-Xent loss of two views of each image; the targets are not looked at."""

    adds = (PROJECTION,)
    least = 2

    @classmethod
    def reject(cls, settings: TrainSettings, data: DataSet) -> None:
        """Raise SettingError for what contrastive pre-training cannot have."""
        if not isinstance(data.spec.target, Views):
            raise SettingError(
                "objective=simclr makes views of images and of series with one class each, and this is "
                f"{data.spec.kind} data that asks for {data.spec.target.column}: leave it out."
            )
        super().reject(settings, data)
        fewest = min(settings.batch_size or len(data.splits["train"]), len(data.splits["train"]))
        if fewest < 2:
            raise SettingError(
                f"objective=simclr tells an image's views from those of the others in its batch, and "
                f"batch_size={fewest} has no others: give 2 or more, better a few hundred."
            )

    @classmethod
    def added(cls, model: nn.Module, spec: Spec) -> dict[str, nn.Module]:
        """W₁ and the ReLU, as wide as what the head sees. Raises ModelError for a model whose head is not linear."""
        dim = head_of(model).in_features
        return {PROJECTION: nn.Sequential(nn.Linear(dim, dim), nn.ReLU())}

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, train: Split, data: DataSet) -> None:
        super().__init__(model, task, settings, train, data)
        assert isinstance(data.preprocessing, ImagePreprocessing | SeriesPreprocessing), "views are of these"
        self.views = data.preprocessing.views()
        self.head, self.temperature = head_of(model), settings.temperature or TEMPERATURE

    def loss(self, inputs: tuple[Tensor, ...], target: Tensor, index: Tensor | None, random: Generator) -> Learned:
        """What comes of a batch."""
        views = torch.cat(self.views(inputs[0], random))  # (2N, C, H, W), or (2N, T, F)
        h = self.model.features(views)  # type: ignore[operator]  # (2N, D)
        z: Tensor = self.head(self.model.get_submodule(PROJECTION)(h))  # (2N, dim)
        one, other = z.chunk(2)
        loss = nt_xent(one, other, self.temperature).sum()
        return Learned(loss, loss, z)
