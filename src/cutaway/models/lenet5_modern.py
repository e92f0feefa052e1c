"""LeNet-5 in the form in common use today.

After Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-based learning applied to document recognition,
Proc. IEEE 86(11), 1998, section II.B. <https://doi.org/10.1109/5.726791>

    a = ReLU(W ∗ x + b),  pooled by max over 2×2;  logits = W₃ ReLU(W₂ ReLU(W₁ vec(a)))

Shapes, from an image (N, C, 32, 32): C1 (N, 6, 28, 28), pool (N, 6, 14, 14), C3 (N, 16, 10, 10), pool (N, 16, 5, 5),
C5 120, F6 84, logits (N, classes). `lenet5` is the network as published.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError
from ..core.spec import ImageSpec
from .base import BaseModel
from .card import Card, Divergence, Published
from .config import ValidatedConfig, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_channels: int = positive(1)  # 1 for grey, 3 for RGB
    num_classes: int = positive(10)  # logits
    image_size: int = min_value(16, 32)  # height and width; smaller images are padded or enlarged to it

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`.

        The image size stays: the data is brought to it.
        """
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)


class LeNet5Modern(BaseModel):
    """A network that maps images of shape (N, C, S, S) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.c1 = nn.Conv2d(config.in_channels, 6, kernel_size=5)
        self.c3 = nn.Conv2d(6, 16, kernel_size=5)
        side = ((config.image_size - 4) // 2 - 4) // 2  # of the last map: 5 where the image is 32
        self.c5 = nn.Linear(16 * side * side, 120)
        self.f6 = nn.Linear(120, 84)
        self.head = nn.Linear(84, config.num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: (N, 84)."""
        size = self.config.image_size
        if x.shape[2:] != (size, size):
            raise InputShapeError(
                f"lenet5-modern is built for images of {size}×{size} pixels, and these are "
                f"{x.shape[2]}×{x.shape[3]}: bring them to image_size={size}."
            )
        x = F.max_pool2d(F.relu(self.c1(x)), 2)  # (N, 6, 14, 14)
        x = F.max_pool2d(F.relu(self.c3(x)), 2)  # (N, 16, 5, 5)
        x = F.relu(self.c5(x.flatten(1)))  # (N, 120)
        return F.relu(self.f6(x))  # (N, 84)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


Model = LeNet5Modern

PRESETS = {"lenet5-modern": Config()}

CARD = Card(
    title="Gradient-based learning applied to document recognition",
    authors="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner",
    year=1998,
    link="https://doi.org/10.1109/5.726791",
    family="cnn",
    equation="a = ReLU(W ∗ x + b), max over 2×2; logits = W₃ ReLU(W₂ ReLU(W₁ vec(a)))",
    oracle="torch.nn.Sequential, built by hand",
    published={
        "lenet5-modern": Published(61_706, 416_520, (1, 32, 32), "computed from the common definition"),
    },
    divergences=(
        Divergence("activation", paper="1.7159 tanh(2x/3)", here="ReLU"),
        Divergence(
            "sub-sampling", paper="sum of 2×2, trainable coefficient and bias", here="max over 2×2, no parameters"
        ),
        Divergence(
            "C3", paper="each map sees 3 to 6 of the 6 before it, by a table of connections", here="each sees all 6"
        ),
        Divergence("output", paper="radial basis functions on fixed codes", here="linear, trained by cross-entropy"),
    ),
    settings={"lenet5-modern": {"optimizer": "adamw", "lr": 2e-3, "epochs": 40, "batch_size": 64, "crop": 2}},
)
