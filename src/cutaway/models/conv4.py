"""The four-block convolutional network of few-shot learning: 64 filters of 3×3 in each block, and one linear layer.

After O. Vinyals, C. Blundell, T. Lillicrap, K. Kavukcuoglu, D. Wierstra, Matching networks for one shot learning, 2016,
section 4.1.1 <https://arxiv.org/abs/1606.04080>, as C. Finn, P. Abbeel, S. Levine, Model-agnostic meta-learning for
fast adaptation of deep networks, 2017, section 5.2 <https://arxiv.org/abs/1703.03400> and J. Snell, K. Swersky, R. S.
Zemel, Prototypical networks for few-shot learning, 2017, section 3.1 <https://arxiv.org/abs/1703.05175> have it.

    block(x) = pool(ReLU(BN(W ∗ x + b)));   h = mean(block⁴(x));   logits = W₅ h + b₅

Shapes, from an image (N, C, H, W); downsampling=max, conv4, and downsampling=stride, conv4-strided:
    conv 3×3, padding 1, BN, ReLU, max over 2×2    (N, 64, H/2, W/2), rounded down
    conv 3×3, padding 1, stride 2, BN, ReLU        (N, 64, H/2, W/2), rounded up
    three more of these                            (N, 64, H/16, W/16)
    the mean over the map                          (N, 64); max reduces Omniglot's 28×28 pixels to one position
    linear                                         (N, classes)

Prototypical networks compare images only by h and have no linear layer. The strided form is that of the paper on
meta-learning for Omniglot, with a quarter of the multiply-adds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, positive

BLOCKS = 4


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_channels: int = positive(1)  # 1 for grey, 3 for RGB
    num_classes: int = positive(5)  # size of the output: number of classes of an episode
    width: int = positive(64)  # channels of each block
    downsampling: str = choice("max", ("max", "stride"))  # how a block halves the sides: pooling, or strides

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """The smallest height and width: one pixel is left after halving four times."""
        return 2**BLOCKS if self.downsampling == "max" else 1


class Conv4(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        stride = 2 if config.downsampling == "stride" else 1
        inputs = (config.in_channels, *(config.width,) * (BLOCKS - 1))
        self.convs = nn.ModuleList(nn.Conv2d(i, config.width, 3, stride, padding=1) for i in inputs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(config.width) for _ in inputs)
        self.head = nn.Linear(config.width, config.num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: (N, 64)."""
        validate_image_size(x, self.config.least_size, "conv4")
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(x)))
            if self.config.downsampling == "max":
                x = F.max_pool2d(x, 2)  # (N, 64, H/2, W/2)
        return x.mean((2, 3))  # (N, 64)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


Model = Conv4

PRESETS = {"conv4": Config(), "conv4-strided": Config(downsampling="stride")}

_DEFINITION = "computed from the definition above"
CARD = Card(
    title="Matching networks for one shot learning",
    authors="O. Vinyals, C. Blundell, T. Lillicrap, K. Kavukcuoglu, D. Wierstra",
    year=2016,
    link="https://arxiv.org/abs/1606.04080",
    family="cnn",
    equation="block(x) = pool(ReLU(BN(W ∗ x + b))); logits = W₅ mean(block⁴(x)) + b₅",
    oracle="torch.nn.Sequential, built by hand",
    published={
        "conv4": Published(112_261, 9_815_360, (1, 28, 28), _DEFINITION),
        "conv4-strided": Published(112_261, 2_656_832, (1, 28, 28), _DEFINITION),
    },
    divergences=(
        Divergence(
            "features",
            paper="64 values for 28×28 pixels, a mean where Finn et al. use strides; all positions for larger images",
            here="the mean over positions, so that one set of weights serves images of any size",
        ),
        Divergence(
            "initialization",
            paper="not specified; Finn et al.: normal, in the head truncated at two standard deviations of 0.01",
            here="uniform in ±1/√fan-in, including biases (PyTorch's default)",
        ),
        Divergence(
            "statistics of batch normalization",
            paper="Finn et al.: of the current batch, also in evaluation",
            here="the same with objective=maml; otherwise running averages",
        ),
    ),
    settings={
        name: {"optimizer": "adam", "lr": 1e-3, "weight_decay": 0.0, "schedule": "cosine"}
        for name in ("conv4", "conv4-strided")
    },
)
