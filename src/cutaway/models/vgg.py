"""The VGG networks: 8 to 16 convolutions of 3×3 and three fully connected layers, optionally with batch normalization.

K. Simonyan, A. Zisserman, Very deep convolutional networks for large-scale image recognition, 2014 (ICLR 2015).
<https://arxiv.org/abs/1409.1556>

    a = max(0, W ∗ x + b), every W of 3×3: three in a row see 7×7 and have 3·3²C² = 27C² weights, where one of 7×7 has
    7²C² = 49C², and they have three ReLUs between them for one

Shapes, from (N, C, 224, 224); a stage is its convolutions, then the max over 2×2:

    stage           1                2               3               4               5
    channels       64              128             256             512             512
    vgg11 (A)       1                1               2               2               2    convolutions
    vgg13 (B)       2                2               2               2               2
    vgg16 (D)       2                2               3               3               3
    vgg19 (E)       2                2               4               4               4
    map      (N, 64, 112, 112) (N, 128, 56, 56) (N, 256, 28, 28) (N, 512, 14, 14) (N, 512, 7, 7)

    fc6, fc7, fc8   (N, 4096), (N, 4096), (N, classes)

The name counts the layers that have weights. For images of few pixels, whose last feature maps are smaller than 7×7,
a grid of that size would repeat the same values: `pool_to=1` averages each map to one cell, and fc6 has a 49th of the
weights.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, imagenet_error, torchvision_accuracy
from .config import ValidatedConfig, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    stages: tuple[int, ...] = positive((1, 1, 2, 2, 2))  # convolutions before each max-pool
    width: int = positive(64)  # channels of the first stage; each further stage has twice as many, up to 8 times
    batch_norm: bool = False  # batch normalization after each convolution
    pool_to: int = positive(7)  # side of the feature maps before fc6; 1 for small images such as 32×32
    hidden_dim: int = positive(4096)  # units of fc6 and of fc7
    dropout: float = fraction(0.5)  # dropout rate after fc6 and fc7
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec` for images of at least `least_size`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of each stage."""
        return tuple(self.width * min(2**stage, 8) for stage in range(len(self.stages)))

    @property
    def least_size(self) -> int:
        """Smallest height and width of an image: every stage halves it, and one pixel is left."""
        return int(2 ** len(self.stages))


def convolutions(config: Config) -> nn.Sequential:
    """Return the stages in a row: (N, C, H, W) to (N, 8w, H/32, W/32).

    The places of its layers are torchvision's.

    After the last convolution of a stage the max comes before the ReLU. In either order they give the same, and in this
    one the ReLU has a quarter of the pixels.
    """
    layers: list[nn.Module] = []
    channels = config.in_channels
    for count, width in zip(config.stages, config.widths):
        for i in range(count):
            layers.append(nn.Conv2d(channels, width, 3, padding=1))
            if config.batch_norm:
                layers.append(nn.BatchNorm2d(width))
            if i == count - 1:
                layers.append(nn.MaxPool2d(2))
            layers.append(nn.ReLU(inplace=True))
            channels = width
    return nn.Sequential(*layers)


class VGG(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.convolutions = convolutions(config)
        self.avgpool = nn.AdaptiveAvgPool2d(config.pool_to)
        self.fc6 = nn.Linear(config.widths[-1] * config.pool_to**2, config.hidden_dim)
        self.fc7 = nn.Linear(config.hidden_dim, config.hidden_dim)
        self.fc8 = nn.Linear(config.hidden_dim, config.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]  # every convolution has one
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: fc7, (N, 4096)."""
        validate_image_size(x, self.config.least_size, "vgg")
        x = self.convolutions(x)  # (N, 512, 7, 7)
        x = self.avgpool(x).flatten(1)  # (N, 512·7·7)
        x = self._dropped(F.relu(self.fc6(x), inplace=True))  # (N, 4096)
        return self._dropped(F.relu(self.fc7(x), inplace=True))  # (N, 4096)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.fc8(self.features(x))
        return logits

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)


Model = VGG

_STAGES = {
    "vgg11": (1, 1, 2, 2, 2),
    "vgg13": (2, 2, 2, 2, 2),
    "vgg16": (2, 2, 3, 3, 3),
    "vgg19": (2, 2, 4, 4, 4),
}
PRESETS = {name: Config(stages=stages) for name, stages in _STAGES.items()}
PRESETS |= {f"{name}-bn": Config(stages=stages, batch_norm=True) for name, stages in _STAGES.items()}

_TORCHVISION = (
    "torchvision's weight metadata, which has the multiply-adds to three decimals; in full counted on its network; "
    "parameters in millions without -bn: the paper's table 2"
)
_SHAPE = (3, 224, 224)

# The paper's momentum at 0.01 is for many updates on a million images. On 4 000 of CIFAR-10 (width=16, pool_to=1) vgg11
# was still guessing after 180 updates; with AdamW at 3e-4 its loss fell from the thirtieth on. Wider ones want less.
_ON_PHOTOGRAPHS = {
    "optimizer": "adamw",
    "lr": 1e-4,
    "batch_size": 64,
    "schedule": "warmup-cosine",
    "epochs": 30,
    "flip": True,
}
_NORMALIZED = _ON_PHOTOGRAPHS | {"lr": 3e-4}  # normalization allows a higher rate

CARD = Card(
    title="Very deep convolutional networks for large-scale image recognition",
    authors="K. Simonyan, A. Zisserman",
    year=2014,
    link="https://arxiv.org/abs/1409.1556",
    family="cnn",
    equation="a = max(0, W ∗ x + b), W of 3×3; three in a row: 3·3²C² = 27C² weights for 7²C² = 49C²",
    oracle="torchvision's VGG",
    published={
        "vgg11": Published(132_863_336, 7_609_090_048, _SHAPE, _TORCHVISION),
        "vgg13": Published(133_047_848, 11_308_466_176, _SHAPE, _TORCHVISION),
        "vgg16": Published(138_357_544, 15_470_264_320, _SHAPE, _TORCHVISION),
        "vgg19": Published(143_667_240, 19_632_062_464, _SHAPE, _TORCHVISION),
        "vgg11-bn": Published(132_868_840, 7_609_090_048, _SHAPE, _TORCHVISION),
        "vgg13-bn": Published(133_053_736, 11_308_466_176, _SHAPE, _TORCHVISION),
        "vgg16-bn": Published(138_365_992, 15_470_264_320, _SHAPE, _TORCHVISION),
        "vgg19-bn": Published(143_678_248, 19_632_062_464, _SHAPE, _TORCHVISION),
    },
    divergences=(
        Divergence(
            "configurations",
            paper="A to E; A-LRN with local response normalization, which did not help, and C with 1×1 convolutions",
            here="A, B, D and E",
            common="as here (torchvision)",
        ),
        Divergence(
            "batch normalization",
            paper="none: published later (S. Ioffe, C. Szegedy, 2015)",
            here="none; in the presets -bn after every convolution, before the ReLU",
            common="both (torchvision); biases are kept although they have no effect, as here",
        ),
        Divergence(
            "initialization",
            paper="A with normal weights of variance 0.01; the deeper ones with layers of the trained A; a note that "
            "Glorot initialization makes this unnecessary",
            here="normal: convolutions with variance 2/(9C), C the output channels; dense layers with variance 0.01²",
            common="as here (torchvision)",
        ),
        Divergence(
            "images of other sizes",
            paper="in testing fc6 to fc8 become convolutions, and the map of classes is averaged",
            here="average pooling of the last feature maps to 7×7 before fc6: no change at 224×224",
            common="as here (torchvision)",
        ),
        Divergence(
            "optimizer",
            paper="momentum 0.9 at 0.01 for batches of 256, divided by 10 whenever the validation accuracy stopped "
            "rising, three times in 74 epochs; decay 5e-4",
            here="AdamW, with warm-up and cosine",
        ),
    ),
    results={
        "vgg11": (
            imagenet_error(29.6, 10.4, "whole image, one scale", "the paper, table 3"),
            torchvision_accuracy("VGG11_Weights.IMAGENET1K_V1", 69.02, 88.628),
        ),
        "vgg13": (
            imagenet_error(28.7, 9.9, "whole image, one scale", "the paper, table 3"),
            torchvision_accuracy("VGG13_Weights.IMAGENET1K_V1", 69.928, 89.246),
        ),
        "vgg16": (
            imagenet_error(25.6, 8.1, "whole image, one scale", "the paper, table 3"),
            torchvision_accuracy("VGG16_Weights.IMAGENET1K_V1", 71.592, 90.382),
        ),
        "vgg19": (
            imagenet_error(25.5, 8.0, "whole image, one scale", "the paper, table 3"),
            torchvision_accuracy("VGG19_Weights.IMAGENET1K_V1", 72.376, 90.876),
        ),
        "vgg11-bn": (torchvision_accuracy("VGG11_BN_Weights.IMAGENET1K_V1", 70.37, 89.81),),
        "vgg13-bn": (torchvision_accuracy("VGG13_BN_Weights.IMAGENET1K_V1", 71.586, 90.374),),
        "vgg16-bn": (torchvision_accuracy("VGG16_BN_Weights.IMAGENET1K_V1", 73.36, 91.516),),
        "vgg19-bn": (torchvision_accuracy("VGG19_BN_Weights.IMAGENET1K_V1", 74.218, 91.842),),
    },
    settings={name: _NORMALIZED if config.batch_norm else _ON_PHOTOGRAPHS for name, config in PRESETS.items()},
)
