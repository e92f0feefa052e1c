"""EfficientNet: inverted residual blocks with squeeze-and-excitation, and one coefficient φ that scales the network.

M. Tan, Q. V. Le, EfficientNet: rethinking model scaling for convolutional neural networks, 2019 (ICML 2019).
<https://arxiv.org/abs/1905.11946>

    depth  d = α^φ        α = 1.2     times as many blocks a stage, rounded up
    width  w = β^φ        β = 1.1     times as many channels, rounded to a multiple of 8
    side   r = γ^φ        γ = 1.15    times as many pixels a side of the image

α, β and γ are the result of a grid search under α·β²·γ² ≈ 2: multiply-adds grow with d, w² and r², so each step of φ
doubles them (equation 3). The authors round d and w to one decimal, and sides to tens of pixels:

    φ        0               1/2                  1                    2
    d        1               1.095, so 1.1        1.2                  1.44, so 1.4
    w        1               1.049, so 1.0        1.1                  1.21, so 1.2
    side     224             240.2, so 240        257.6, so 260        296.2, so 300
             efficientnet-b0 efficientnet-b1      efficientnet-b2      B3: model.phi=2

A block is that of MobileNetV2 with SiLU for ReLU6, kernels of 3×3 or 5×5, and a factor for each channel:

    y = x + W_p (s ⊙ z),   z = a(D ⊛ a(W_e x)),   s = σ(W₂ a(W₁ mean(z)))      a(v) = v·σ(v), SiLU

          x ─────────────┐
          │ 1×1, tC      │            not for t = 1
          │ D, k×k, /s   │            depthwise
          z ─────┐       │
          │      │ mean  │
          │      │ W₁    │            to C/4 values: squeeze
          │      │ W₂, σ │            to a factor for each channel: excitation
          × ◄────┘       │
          │ 1×1, C'      │            linear
          + ◄────────────┘            only for s = 1 and C' = C
          y

Squeeze-and-excitation: J. Hu, L. Shen, G. Sun, 2018 <https://arxiv.org/abs/1709.01507>. In training the branch of each
image is dropped with a probability that rises with the index of the block (stochastic depth, as in ConvNeXt).

Shapes, from (N, 3, 224, 224), φ = 0 (table 1): t widens, k is the kernel, c channels, n blocks, s the stride

    t                       1        6        6        6        6        6        6
    k                       3        3        5        3        5        5        3
    c        stem 32       16       24       40       80      112      192      320      last 1280
    n             1         1        2        2        3        3        4        1           1
    s             2         1        2        2        2        1        2        1           1
    map      112×112   112×112   56×56    28×28    14×14    14×14      7×7      7×7         7×7, mean (N, 1280)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published
from .config import ValidatedConfig, choice, fraction, min_value, positive
from .convnext import drop_path
from .mobilenet_v2 import round_channels

ALPHA, BETA, GAMMA = 1.2, 1.1, 1.15  # α, β, γ: depth, width and resolution for φ = 1 (section 4)
STAGES = (  # t, k, c, n, s (table 1)
    *((1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2)),
    *((6, 5, 112, 3, 1), (6, 5, 192, 4, 2), (6, 3, 320, 1, 1)),
)


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    phi: float = 0.0  # φ, the compound coefficient: each step doubles the multiply-adds; -10 to 10
    depth_mult: float | None = min_value(0.01, None)  # d, times as many blocks; auto: 1.2^φ to one decimal
    width_mult: float | None = min_value(0.01, None)  # w, times as many channels; auto: 1.1^φ to one decimal
    stem: str = choice("imagenet", ("imagenet", "cifar"))  # cifar: strides 1 in the stem and the stage of 24 channels
    dropout: float = fraction(0.2)  # dropout rate before the head
    drop_path_rate: float = fraction(0.2)  # stochastic depth: rate of the block after the last; linear from 0
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(-10 <= self.phi <= 10, "phi", self.phi, "between -10 and 10")

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec` for images of at least `least_size`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """Smallest height and width of an image: five layers halve it, or three, and one pixel is left."""
        return 32 if self.stem == "imagenet" else 8

    @property
    def depth(self) -> float:
        """d, the factor of the number of blocks."""
        return round(ALPHA**self.phi, 1) if self.depth_mult is None else self.depth_mult

    @property
    def width(self) -> float:
        """w, the factor of the number of channels."""
        return round(BETA**self.phi, 1) if self.width_mult is None else self.width_mult

    @property
    def resolution(self) -> int:
        """Pixels a side of the images for which φ was intended: 224·γ^φ to the nearest ten. All others work too."""
        return 10 * round(22.4 * GAMMA**self.phi) if self.phi else 224

    def channels(self, count: int) -> int:
        """Return `count` channels times w, as a multiple of 8."""
        return round_channels(count * self.width)

    def blocks(self, count: int) -> int:
        """Return `count` blocks times d, rounded up."""
        return math.ceil(count * self.depth)


class Convolution(nn.Module):
    """Convolution, batch normalization, SiLU: (N, C, H, W) to (N, C', H/s, W/s)."""

    def __init__(self, in_channels: int, out_channels: int, size: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels, out_channels, size, stride, padding=(size - 1) // 2, groups=groups, bias=False
        )
        self.bn = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations."""
        return F.silu(self.bn(self.conv(x)), inplace=True)


class SqueezeExcitation(nn.Module):
    """A factor between 0 and 1 for each channel, from the means of all channels: (N, C, H, W) to the same shape."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the map, each channel times its factor."""
        s: Tensor = self.squeeze(x.mean((2, 3), keepdim=True))  # (N, C/4, 1, 1)
        s = self.excite(F.silu(s)).sigmoid()  # (N, C, 1, 1)
        return x * s


class MBConv(nn.Module):
    """A block of expansion, depthwise convolution, squeeze-and-excitation and projection."""

    def __init__(
        self, in_channels: int, out_channels: int, widening: int, size: int, stride: int, drop_path_rate: float
    ) -> None:
        super().__init__()
        self.drop_path_rate = drop_path_rate
        inner = widening * in_channels
        self.expand = Convolution(in_channels, inner, 1) if widening > 1 else None
        self.depthwise = Convolution(inner, inner, size, stride, groups=inner)
        self.se = SqueezeExcitation(inner, max(1, in_channels // 4))
        self.project = nn.Conv2d(inner, out_channels, 1, bias=False)
        self.bn = nn.BatchNorm2d(out_channels)
        self.residual = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C', H/s, W/s): the input plus the branch, or only the branch if shapes change."""
        y: Tensor = self.expand(x) if self.expand is not None else x  # (N, tC, H, W)
        y = self.se(self.depthwise(y))  # (N, tC, H/s, W/s)
        y = self.bn(self.project(y))  # (N, C', H/s, W/s), linear
        return x + drop_path(y, self.drop_path_rate, self.training) if self.residual else y


class EfficientNet(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        whole = config.stem == "imagenet"
        channels, last = config.channels(32), config.channels(1280)
        self.stem = Convolution(config.in_channels, channels, 3, stride=2 if whole else 1)
        self.stages = nn.Sequential()
        total, index = sum(config.blocks(n) for _, _, _, n, _ in STAGES), 0
        for widening, size, out, count, stride in STAGES:
            stage = nn.Sequential()
            for i in range(config.blocks(count)):
                first = stride if i == 0 and (whole or out != 24) else 1
                rate = config.drop_path_rate * index / total
                stage.append(MBConv(channels, config.channels(out), widening, size, first, rate))
                channels, index = config.channels(out), index + 1
            self.stages.append(stage)
        self.last = Convolution(channels, last, 1)
        self.head = nn.Linear(last, config.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.weight[:, 0].numel() // module.groups  # k²·C', or k² if depthwise
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        bound = 1 / math.sqrt(config.num_classes)
        nn.init.uniform_(self.head.weight, -bound, bound)
        nn.init.zeros_(self.head.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the mean of the last map, (N, 1280) for φ = 0."""
        validate_image_size(x, self.config.least_size, "efficientnet")
        x = self.stages(self.stem(x))  # (N, 320, H/32, W/32)
        x = self.last(x).mean((2, 3))  # (N, 1280)
        return F.dropout(x, self.config.dropout, self.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


Model = EfficientNet

PRESETS = {
    "efficientnet-b0": Config(),
    "efficientnet-b1": Config(phi=0.5),
    "efficientnet-b2": Config(phi=1.0, dropout=0.3),
}

_COUNTS = "torchvision's weight metadata; multiply-adds in full counted on its network; the paper's table 2: {}"

_ON_PHOTOGRAPHS = {
    "optimizer": "adamw",
    "lr": 1e-3,
    "batch_size": 64,
    "schedule": "warmup-cosine",
    "epochs": 30,
    "flip": True,
}

CARD = Card(
    title="EfficientNet: rethinking model scaling for convolutional neural networks",
    authors="M. Tan, Q. V. Le",
    year=2019,
    link="https://arxiv.org/abs/1905.11946",
    family="cnn",
    equation="depth α^φ, width β^φ, resolution γ^φ, α·β²·γ² ≈ 2; y = x + W_p (s ⊙ z), z = a(D ⊛ a(W_e x)), "
    "s = σ(W₂ a(W₁ mean(z)))",
    oracle="torchvision's EfficientNet",
    published={
        "efficientnet-b0": Published(5_288_548, 385_814_752, (3, 224, 224), _COUNTS.format("5.3M and 0.39B")),
        "efficientnet-b1": Published(7_794_184, 686_802_832, (3, 240, 240), _COUNTS.format("7.8M and 0.70B")),
        "efficientnet-b2": Published(
            9_109_994,
            993_561_872,
            (3, 260, 260),
            "torchvision's weight metadata, whose multiply-adds are those of 288 pixels (1.088B, here 1,087,529,456); "
            "the paper's table 2: 9.2M and 1.0B",
        ),
    },
    divergences=(
        Divergence(
            "sizes",
            paper="B0 to B7 (table 2)",
            here="B0 to B2; model.phi=2 is B3. B4 to B7 do not follow from φ exactly: B4 is model.width_mult=1.4 "
            "model.depth_mult=1.8",
            common="B0 to B7 (torchvision)",
        ),
        Divergence(
            "rounding of α^φ and β^φ",
            paper="not specified; the authors' code lists one decimal for each network",
            here="one decimal, which gives the authors' numbers for φ = 0, 1/2, 1 and 2",
            common="listed for each network (torchvision)",
        ),
        Divergence(
            "padding of stride 2",
            paper="not specified; the authors' code (TensorFlow): one pixel more at the right and the bottom",
            here="the same at all sides",
            common="as here (torchvision)",
        ),
        Divergence(
            "batch normalization",
            paper="momentum 0.99 (section 5.2); the authors' code: ε = 1e-3",
            here="PyTorch's defaults: ε = 1e-5, momentum 0.1 in its sense",
            common="as here for B0 to B4 (torchvision)",
        ),
        Divergence(
            "initialization",
            paper="not specified; the authors' code: convolutions normal with variance 2/(k²C'), and 2/k² if "
            "depthwise; the head uniform in ±1/√classes",
            here="as the authors' code; biases zero",
            common="as here, but depthwise convolutions 2/(k²C) (torchvision)",
        ),
        Divergence(
            "stochastic depth",
            paper="survival probability 0.8 (section 5.2); the authors' code: of each image, rate 0.2·i/n for block i "
            "of n, counted from 0",
            here="as the authors' code",
            common="as here (torchvision)",
        ),
        Divergence(
            "optimizer",
            paper="RMSProp with decay and momentum 0.9 at 0.256, times 0.97 every 2.4 epochs; weight decay 1e-5, "
            "AutoAugment (section 5.2)",
            here="AdamW, with warm-up and cosine",
        ),
    ),
    settings=dict.fromkeys(PRESETS, _ON_PHOTOGRAPHS),
)
