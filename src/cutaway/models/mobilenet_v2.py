"""MobileNetV2: inverted residual blocks, narrow at both ends and wide within, with depthwise 3×3 convolutions.

M. Sandler, A. Howard, M. Zhu, A. Zhmoginov, L.-C. Chen, MobileNetV2: inverted residuals and linear bottlenecks, 2018.
<https://arxiv.org/abs/1801.04381>

    y = x + W_p (D ⊛ r(W_e x))       W_e: C → tC and W_p: tC → C, convolutions of 1×1; D ⊛: of 3×3, each channel by
                                     itself; r = ReLU6, which D ⊛ … goes through too; nothing follows W_p

W_p is linear: a ReLU on few channels would lose information (section 3.2). A k×k convolution from C to C' channels
takes C·C'·k² MACs a pixel; a depthwise and a 1×1 convolution take C·k² + C·C', about eight times fewer for k = 3.

Shapes, from (N, 3, 224, 224), α = 1 (table 2): t widens, c channels, n blocks, s the stride of the first

    t                       1        6        6        6        6        6        6
    c        stem 32       16       24       32       64       96      160      320      last 1280
    n             1         1        2        3        4        3        3        1           1
    s             2         1        2        2        2        1        2        1           1
    map      112×112   112×112   56×56    28×28    14×14    14×14      7×7      7×7         7×7, mean (N, 1280)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, Result, torchvision_accuracy
from .config import ValidatedConfig, choice, fraction, min_value, positive

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    width_mult: float = min_value(0.01, 1.0)  # α, the width multiplier: channels of all layers, as multiples of 8
    stem: str = choice("imagenet", ("imagenet", "cifar"))  # cifar: strides 1 in the stem and the first stage of 24
    dropout: float = fraction(0.2)  # dropout rate before the head
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec` for images of at least `least_size`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """Smallest height and width of an image: five layers halve it, or three, and one pixel is left."""
        return 32 if self.stem == "imagenet" else 8

    def width(self, channels: int) -> int:
        """Return `channels` times α, as a multiple of 8."""
        return round_channels(channels * self.width_mult)


def round_channels(channels: float) -> int:
    """Return the nearest multiple of 8 that is at least nine tenths of `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


class Convolution(nn.Module):
    """Convolution, batch normalization, ReLU6: (N, C, H, W) to (N, C', H/s, W/s)."""

    def __init__(self, in_channels: int, out_channels: int, size: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels, out_channels, size, stride, padding=(size - 1) // 2, groups=groups, bias=False
        )
        self.bn = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return values between 0 and 6."""
        return F.relu6(self.bn(self.conv(x)), inplace=True)


class InvertedResidual(nn.Module):
    """A block of expansion, depthwise convolution and linear projection: (N, C, H, W) to (N, C', H/s, W/s)."""

    def __init__(self, in_channels: int, out_channels: int, widening: int, stride: int) -> None:
        super().__init__()
        inner = widening * in_channels
        self.expand = Convolution(in_channels, inner, 1) if widening > 1 else None
        self.depthwise = Convolution(inner, inner, 3, stride, groups=inner)
        self.project = nn.Conv2d(inner, out_channels, 1, bias=False)
        self.bn = nn.BatchNorm2d(out_channels)
        self.residual = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus the output of the branch, or only the branch if shapes change."""
        y: Tensor = self.expand(x) if self.expand is not None else x  # (N, tC, H, W)
        y = self.depthwise(y)  # (N, tC, H/s, W/s)
        y = self.bn(self.project(y))  # (N, C', H/s, W/s), linear
        return x + y if self.residual else y


class MobileNetV2(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        whole = config.stem == "imagenet"
        channels, last = config.width(32), max(1280, config.width(1280))
        layers: list[nn.Module] = [Convolution(config.in_channels, channels, 3, stride=2 if whole else 1)]
        for widening, out, count, stride in STAGES:
            for i in range(count):
                first = stride if i == 0 and (whole or out != 24) else 1
                layers.append(InvertedResidual(channels, config.width(out), widening, first))
                channels = config.width(out)
        layers.append(Convolution(channels, last, 1))
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(last, config.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the mean of the last map, (N, 1280)."""
        validate_image_size(x, self.config.least_size, "mobilenet-v2")
        x = self.layers(x).mean((2, 3))  # (N, 1280)
        return F.dropout(x, self.config.dropout, self.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


Model = MobileNetV2

PRESETS = {"mobilenet-v2": Config()}

_TORCHVISION = "torchvision's weight metadata; in full counted on its network; the paper's table 4: 3.4M and 300M"

_ON_PHOTOGRAPHS = {
    "optimizer": "adamw",
    "lr": 1e-3,
    "batch_size": 64,
    "schedule": "warmup-cosine",
    "epochs": 30,
    "flip": True,
}

CARD = Card(
    title="MobileNetV2: inverted residuals and linear bottlenecks",
    authors="M. Sandler, A. Howard, M. Zhu, A. Zhmoginov, L.-C. Chen",
    year=2018,
    link="https://arxiv.org/abs/1801.04381",
    family="cnn",
    equation="y = x + W_p r(D ⊛ r(W_e x)), W_e: C → tC, W_p: tC → C, D ⊛: 3×3, depthwise",
    oracle="torchvision's MobileNetV2",
    published={"mobilenet-v2": Published(3_504_872, 300_774_272, (3, 224, 224), _TORCHVISION)},
    divergences=(
        Divergence("dropout before the head", paper="not specified", here="0.2", common="0.2 (torchvision)"),
        Divergence(
            "initialization",
            paper="not specified",
            here="convolutions normal with variance 2/(9C') or 2/C', C' the output channels; the head with standard "
            "deviation 0.01",
            common="as here (torchvision)",
        ),
        Divergence(
            "channels times α",
            paper="rounding not specified; for α < 1 the last layer keeps its 1280",
            here="the nearest multiple of 8 that is at least 90 %; the last layer keeps its 1280",
            common="as here (torchvision)",
        ),
        Divergence(
            "optimizer",
            paper="RMSProp with decay and momentum 0.9 at 0.045, times 0.98 each epoch, for 16 workers with 96 images; "
            "decay 4e-5",
            here="AdamW, with warm-up and cosine",
        ),
    ),
    results={
        "mobilenet-v2": (
            Result("ImageNet", {"top-1 accuracy": 72.0}, "224×224 pixels", "the paper, table 4"),
            Result(
                "ImageNet", {"top-1 accuracy": 71.8, "top-5 accuracy": 91.0}, "224×224 pixels", "the authors' release"
            ),
            torchvision_accuracy("MobileNet_V2_Weights.IMAGENET1K_V1", 71.878, 90.286),
            torchvision_accuracy("MobileNet_V2_Weights.IMAGENET1K_V2", 72.154, 90.822),
        ),
    },
    settings={"mobilenet-v2": _ON_PHOTOGRAPHS},
)
