"""ConvNeXt: a convolutional network with the design of a Vision Transformer, derived from a ResNet.

Z. Liu, H. Mao, C.-Y. Wu, C. Feichtenhofer, T. Darrell, S. Xie, A ConvNet for the 2020s, 2022 (CVPR 2022).
<https://arxiv.org/abs/2201.03545>

    y = x + γ ⊙ W₂ GELU(W₁ LN(D ⊛ x))      D ⊛: depthwise convolution of 7×7; LN: layer normalization
                                           of each pixel over its channels; W₁: from C to 4C of them, W₂: back, the
                                           same at every pixel; γ: layer scale, a factor for each channel

      a block        x ───────────┐            between two stages
                     │ 7×7, C     │            │ LN
                     │ LN         │            │ 2×2, 2C, /2
                     │ 1×1, 4C    │
                     │ GELU       │
                     │ 1×1, C     │            /2  stride; of the stem /4
                     │ × γ        │
                     + ◄──────────┘
                     y

In training the branch of each image is dropped with a probability that rises linearly with the index of the block, from
0 to `drop_path_rate` (stochastic depth, G. Huang et al., 2016 <https://arxiv.org/abs/1603.09382>). Kept branches are
divided by the probability of keeping them, so that the mean is the same.

Shapes, from (N, 3, 224, 224), convnext-tiny: the stem, a convolution of 4×4 with stride 4, and LN (N, 96, 56, 56); four
stages of 3, 3, 9 and 3 blocks with C = 96, 192, 384 and 768 on maps of 56, 28, 14 and 7; mean over the map, LN (N,
768), logits (N, classes). Images of any size are accepted: where the size is not a multiple of the patch, the rest of
the map is not read.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, Result, torchvision_accuracy
from .config import ValidatedConfig, fraction, min_value, positive

EPS = 1e-6  # ε of the normalizations, as in the authors' code: not PyTorch's default


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    layers: tuple[int, ...] = positive((3, 3, 9, 3))  # blocks in each stage
    width: int = positive(96)  # channels of the first stage; each further stage has twice as many
    patch_size: int = positive(4)  # pixels a side of a patch, kernel and stride of the stem: 1 or 2 for few pixels
    layer_scale: float = min_value(0.0, 1e-6)  # γ at first
    drop_path_rate: float = fraction(0.1)  # stochastic depth: how often the last block's branch is left out
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """Smallest height and width of an image: one patch that is halved between the stages, and one pixel is left."""
        return int(self.patch_size * 2 ** (len(self.layers) - 1))


def drop_path(y: Tensor, rate: float, training: bool) -> Tensor:
    """Apply stochastic depth to a residual branch y (N, C, H, W): in training, drop it for each image at that rate."""
    if training and rate > 0:
        y = y * F.dropout(y.new_ones(len(y), 1, 1, 1), rate)  # 0 or 1 / (1 − rate), one draw for each image
    return y


class Stem(nn.Module):
    """Patches to pixels of a map: (N, C, H, W) to (N, C', H/p, W/p)."""

    def __init__(self, in_channels: int, channels: int, patch_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, patch_size, stride=patch_size)
        self.norm = nn.LayerNorm(channels, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        """Return the map, each pixel normalized over its channels."""
        x = self.conv(x).permute(0, 2, 3, 1)  # (N, H/p, W/p, C')
        y: Tensor = self.norm(x)
        return y.permute(0, 3, 1, 2)  # (N, C', H/p, W/p)


class Downsample(nn.Module):
    """The layer between two stages: (N, C, H, W) to (N, 2C, H/2, W/2)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=EPS)
        self.conv = nn.Conv2d(channels, 2 * channels, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Return a convolution of the map, each pixel of it normalized over its channels."""
        x = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)  # (N, C, H, W)
        y: Tensor = self.conv(x)
        return y


class Block(nn.Module):
    """A residual block of a depthwise convolution and a pointwise MLP: (N, C, H, W) to (N, C, H, W)."""

    def __init__(self, channels: int, layer_scale: float, drop_path_rate: float) -> None:
        super().__init__()
        self.drop_path_rate = drop_path_rate
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=EPS)
        self.expand = nn.Linear(channels, 4 * channels)
        self.project = nn.Linear(4 * channels, channels)
        self.layer_scale = nn.Parameter(torch.full((channels, 1, 1), layer_scale))

    def forward(self, x: Tensor) -> Tensor:
        """Return x plus the output of the branch."""
        y: Tensor = self.depthwise(x).permute(0, 2, 3, 1)  # (N, H, W, C): the 1×1 convolutions are products of matrices
        y = self.project(F.gelu(self.expand(self.norm(y))))  # (N, H, W, C)
        y = self.layer_scale * y.permute(0, 3, 1, 2)  # (N, C, H, W)
        return x + drop_path(y, self.drop_path_rate, self.training)


class ConvNeXt(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)
    decayed = ("*.weight",)  # layer scale (C, 1, 1) is a gain, as in the authors' code

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        channels, last = config.width, max(sum(config.layers) - 1, 1)
        self.stages = nn.Sequential()
        first = 0  # number of the stage's first block
        for stage, count in enumerate(config.layers):
            if stage == 0:
                before: nn.Module = Stem(config.in_channels, channels, config.patch_size)
            else:
                before, channels = Downsample(channels), 2 * channels
            rates = [config.drop_path_rate * i / last for i in range(first, first + count)]
            blocks = nn.Sequential(*(Block(channels, config.layer_scale, rate) for rate in rates))
            self.stages.append(nn.Sequential(OrderedDict(downsample=before, blocks=blocks)))
            first += count
        self.norm = nn.LayerNorm(channels, eps=EPS)
        self.head = nn.Linear(channels, config.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]  # every layer has one

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the mean of the last map, normalized, (N, 8C)."""
        validate_image_size(x, self.config.least_size, "convnext")
        x = self.stages(x)  # (N, C, H/4, W/4), (N, 2C, H/8, W/8), (N, 4C, H/16, W/16), then (N, 8C, H/32, W/32)
        y: Tensor = self.norm(x.mean((2, 3)))  # (N, 8C)
        return y

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


Model = ConvNeXt

PRESETS = {
    "convnext-tiny": Config(),
    "convnext-small": Config(layers=(3, 3, 27, 3), drop_path_rate=0.4),
    "convnext-base": Config(layers=(3, 3, 27, 3), width=128, drop_path_rate=0.5),
    "convnext-micro": Config(layers=(2, 2, 2), width=48, patch_size=2, num_classes=10),
}

_TORCHVISION = (
    "torchvision's weight metadata, which has the multiply-adds to three decimals; in full counted on its network; the "
    "authors' release: {}"
)
_SHAPE = (3, 224, 224)

# The paper's rate (table 5) is 4e-3 for batches of 4096; it goes here with the square root of the batch, 4e-3 / 8.
_ON_PHOTOGRAPHS = {
    "optimizer": "adamw",
    "lr": 5e-4,
    "batch_size": 64,
    "weight_decay": 0.05,
    "schedule": "warmup-cosine",
    "warmup": 0.1,
    "label_smoothing": 0.1,
    "epochs": 100,
    "flip": True,
}
# On digits a mirror image is another thing, and of 8 pixels none can be cut off: crop=4 flip=true is for photographs.
_ON_SMALL_IMAGES = _ON_PHOTOGRAPHS | {"lr": 2e-3, "label_smoothing": 0.0, "epochs": 20, "flip": False}

CARD = Card(
    title="A ConvNet for the 2020s",
    authors="Z. Liu, H. Mao, C.-Y. Wu, C. Feichtenhofer, T. Darrell, S. Xie",
    year=2022,
    link="https://arxiv.org/abs/2201.03545",
    family="cnn",
    equation="y = x + γ ⊙ W₂ GELU(W₁ LN(D ⊛ x)), W₁: C → 4C, W₂: 4C → C, D ⊛: 7×7, depthwise",
    oracle="torchvision's ConvNeXt; transformers' ConvNextForImageClassification",
    published={
        "convnext-tiny": Published(28_589_128, 4_455_531_264, _SHAPE, _TORCHVISION.format("28.6M and 4.5G")),
        "convnext-small": Published(50_223_688, 8_683_712_256, _SHAPE, _TORCHVISION.format("50.2M and 8.7G")),
        "convnext-base": Published(88_591_464, 15_354_729_472, _SHAPE, _TORCHVISION.format("88.6M and 15.4G")),
        "convnext-micro": Published(908_890, 32_927_616, (3, 32, 32), "computed from the definition above"),
    },
    divergences=(
        Divergence(
            "sizes",
            paper="T, S, B, L and XL (section 3), for images of 224 and 384 pixels",
            here="T, S and B; convnext-micro is not published: three stages for images of about 32 pixels, patches of "
            "2 in the stem",
            common="T to L (torchvision), T to XL (transformers)",
        ),
        Divergence(
            "1×1 convolutions",
            paper="convolutions",
            here="linear layers on maps with channels last, as in the authors' code: the same products",
            common="as here (torchvision, transformers)",
        ),
        Divergence(
            "ε of layer normalization",
            paper="not specified; the authors' code: 1e-6",
            here="1e-6",
            common="1e-6 (torchvision); the last one 1e-12 (transformers)",
        ),
        Divergence(
            "layer scale",
            paper="1e-6 at first (table 5), a factor for each channel",
            here="the same, kept as (C, 1, 1)",
            common="as here (torchvision); kept as (C) (the authors' code, transformers)",
        ),
        Divergence(
            "stochastic depth",
            paper="0.1, 0.4 and 0.5 for T, S and B (table 5); the authors' code: of each image, linear from 0",
            here="the same",
            common="as here (torchvision); none by default (transformers)",
        ),
        Divergence(
            "GELU",
            paper="not specified; the authors' code: exact",
            here="exact",
            common="exact (torchvision, transformers)",
        ),
        Divergence(
            "initialization",
            paper="truncated normal, 0.2 (table 5); the authors' code: standard deviation 0.02, truncated at ±2",
            here="as the authors' code; biases zero",
            common="as here (torchvision); not truncated (transformers)",
        ),
        Divergence(
            "weight decay",
            paper="0.05, on which parameters is not stated; the authors' code: none on biases, norms and layer scale",
            here="as the authors' code",
            common="on all but norms (torchvision's recipe)",
        ),
        Divergence(
            "training recipe",
            paper="300 epochs with RandAugment, mixup, CutMix, random erasing, label smoothing 0.1 and a moving "
            "average of the weights (table 5)",
            here="the settings of the card",
        ),
    ),
    results={
        "convnext-tiny": (
            Result("ImageNet", {"top-1 accuracy": 82.1}, "224×224 pixels", "the paper, table 1"),
            torchvision_accuracy("ConvNeXt_Tiny_Weights.IMAGENET1K_V1", 82.52, 96.146),
        ),
        "convnext-small": (
            Result("ImageNet", {"top-1 accuracy": 83.1}, "224×224 pixels", "the paper, table 1"),
            torchvision_accuracy("ConvNeXt_Small_Weights.IMAGENET1K_V1", 83.616, 96.65),
        ),
        "convnext-base": (
            Result("ImageNet", {"top-1 accuracy": 83.8}, "224×224 pixels", "the paper, table 1"),
            torchvision_accuracy("ConvNeXt_Base_Weights.IMAGENET1K_V1", 84.062, 96.87),
        ),
    },
    settings={n: _ON_SMALL_IMAGES if n == "convnext-micro" else _ON_PHOTOGRAPHS for n in PRESETS},
)
