"""A simple convolutional network: two convolutions with batch normalization, pooling, one linear layer.

It is from no particular paper: the smallest network with each part of modern convolutional networks. Batch
normalization is from S. Ioffe, C. Szegedy, Batch normalization: accelerating deep network training by reducing internal
covariate shift, 2015. <https://arxiv.org/abs/1502.03167>

    a = ReLU(BN(W ∗ x)),   BN(z) = γ (z − μ) / √(σ² + ε) + β;   logits = W₃ vec(pool(a)) + b

Shapes, from an image (N, C, H, W), H and W at least 8:
    conv 3×3, padding 1, BN, ReLU     (N, 32, H, W)
    max over 2×2                      (N, 32, H/2, W/2)
    conv 3×3, padding 1, BN, ReLU     (N, 64, H/2, W/2)
    mean over a grid of 4×4 cells     (N, 64, 4, 4)
    linear                            (N, classes)

The grid has the same number of cells for every image size, so that one set of weights serves every size. The
convolutions have no bias: the normalization after them has one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published
from .config import ValidatedConfig, positive

GRID = 4  # cells of the last feature maps, in height and width


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(10)  # size of the output: number of classes; 1 for a number, or for two classes
    widths: tuple[int, ...] = positive((32, 64))  # channels of the two convolutions

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(len(self.widths) == 2, "widths", self.widths, "two numbers")

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """The smallest height and width: after halving, each cell of the grid still has a pixel of its own."""
        return 2 * GRID


class SimpleCNN(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        first, second = config.widths
        self.conv1 = nn.Conv2d(config.in_channels, first, kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        self.conv2 = nn.Conv2d(first, second, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(second)
        self.head = nn.Linear(second * GRID * GRID, config.num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: (N, 64·4·4), the grids of the last feature maps one after another."""
        validate_image_size(x, self.config.least_size, "simplecnn")
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)  # (N, 32, H/2, W/2)
        x = F.relu(self.bn2(self.conv2(x)))  # (N, 64, H/2, W/2)
        return F.adaptive_avg_pool2d(x, GRID).flatten(1)  # (N, 64·4·4)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


Model = SimpleCNN

PRESETS = {"simplecnn": Config()}

CARD = Card(
    title="Batch normalization: accelerating deep network training by reducing internal covariate shift",
    authors="S. Ioffe, C. Szegedy",
    year=2015,
    link="https://arxiv.org/abs/1502.03167",
    family="cnn",
    equation="a = ReLU(BN(W ∗ x)); logits = W₃ vec(pool(a)) + b",
    oracle="torch.nn.Sequential, built by hand",
    published={"simplecnn": Published(29_738, 22_423_552, (3, 64, 64), "computed from the definition above")},
    divergences=(
        Divergence(
            "network of this name",
            paper="none",
            here="32 and 64 channels, pooling after the first convolution, a grid of 4×4 cells for every image size",
            common="in courses 16 and 32 channels with biases, one pooling after the second convolution, and a linear "
            "layer of all 32·16·16 values of a 32×32 image: 87 114 parameters, from which these sizes are "
            "reconstructed (docs/own_models.md)",
        ),
    ),
    settings={"simplecnn": {"optimizer": "adamw", "lr": 2e-3, "epochs": 15, "batch_size": 64}},
)
