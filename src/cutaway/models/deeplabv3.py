"""DeepLabV3: semantic segmentation with atrous convolutions of several rates, on a residual network.

After L.-C. Chen, G. Papandreou, F. Schroff, H. Adam, Rethinking atrous convolution for semantic image segmentation,
2017. <https://arxiv.org/abs/1706.05587>

An atrous convolution with rate r has gaps of r − 1 pixels between its inputs (equation 1), and so a larger receptive
field at the same cost. Atrous spatial pyramid pooling (ASPP) applies several rates to one map in parallel:

    y[i] = Σ_k x[i + r·k] w[k]

                       x (N, C, h, w)
      ┌──────────┬─────────┼─────────┬───────────┐
     1×1      3×3, r₁   3×3, r₂   3×3, r₃     mean, 1×1        each to 256 channels, BN, ReLU
      └──────────┴─────────┼─────────┴───────────┘
                 1×1, BN, ReLU, dropout ── 3×3, BN, ReLU ── 1×1 ──▶ logits, drawn at H × W

The last two stages of the backbone are dilated and have no stride, so that the map has an eighth of the image's height
and width.

Shapes, deeplabv3-resnet50, from (N, 3, 520, 520): backbone (N, 2048, 65, 65), ASPP (N, 256, 65, 65), logits
(N, classes, 65, 65), drawn at (N, classes, 520, 520). Images of any size and number of channels are accepted.

In training an auxiliary FCN head uses the output of the last stage but one; its loss has the weight `auxiliary_weight`.
It is not run in eval mode, and `auxiliary=False` removes it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import ImageSpec, Mask
from . import resnet
from .base import BaseModel
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, fraction, positive
from .fcn import Head as AuxiliaryHead
from .fcn import upsample_to


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    layers: tuple[int, ...] = positive((3, 4, 6, 3))  # residual blocks in each stage of the backbone
    block: str = choice("bottleneck", ("basic", "bottleneck"))  # basic: two 3×3 convolutions; bottleneck: 1×1, 3×3, 1×1
    width: int = positive(64)  # channels of the first stage; each further stage has twice as many
    stem: str = choice("imagenet", ("imagenet", "cifar"))  # 7×7 stride 2, max-pool; cifar: 3×3 only, for small images
    rates: tuple[int, ...] = positive((12, 24, 36))  # of the atrous convolutions, in pixels of the map
    dim: int = positive(256)  # channels of each branch of the pyramid and of its output
    dropout: float = fraction(0.5)  # dropout rate after the pyramid; in the auxiliary head it is 0.1
    auxiliary: bool = True  # one more head in training, on the map of the last stage but one
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(21)  # logits at each pixel, the background's first

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(len(self.layers) >= 2, "layers", self.layers, "two stages or more")

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`; images of any size are accepted."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def backbone(self) -> resnet.Config:
        """The residual network."""
        return resnet.Config(
            layers=self.layers, block=self.block, width=self.width, stem=self.stem, in_channels=self.in_channels
        )


def conv_bn_relu(in_channels: int, out_channels: int, kernel: int, rate: int = 1) -> list[nn.Module]:
    """Return convolution, normalization and ReLU: (N, C, h, w) to (N, C', h, w)."""
    return [resnet.conv(in_channels, out_channels, kernel, dilation=rate), nn.BatchNorm2d(out_channels), nn.ReLU()]


class ImagePooling(nn.Sequential):
    """The branch of the whole map: its mean, 1×1, normalization, ReLU: (N, C, h, w) to (N, dim, 1, 1)."""

    def __init__(self, in_channels: int, dim: int) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), *conv_bn_relu(in_channels, dim, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the same values at every position, (N, dim, h, w)."""
        mean, conv, norm, relu = self
        y: Tensor = conv(mean(x))  # (N, dim, 1, 1)
        # A single image has no variance, so the running statistics are used.
        if isinstance(norm, nn.BatchNorm2d) and norm.training and len(x) == 1:
            y = F.batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
        else:
            y = norm(y)
        y = relu(y)
        return y.expand(-1, -1, *x.shape[2:])


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling: (N, C, h, w) to (N, dim, h, w)."""

    def __init__(self, in_channels: int, config: Config) -> None:
        super().__init__()
        dim = config.dim
        branches: list[nn.Module] = [nn.Sequential(*conv_bn_relu(in_channels, dim, 1))]
        branches += [nn.Sequential(*conv_bn_relu(in_channels, dim, 3, rate)) for rate in config.rates]
        self.convs = nn.ModuleList([*branches, ImagePooling(in_channels, dim)])
        self.project = nn.Sequential(*conv_bn_relu(len(self.convs) * dim, dim, 1), nn.Dropout(config.dropout))

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the branches and project them."""
        y: Tensor = self.project(torch.cat([branch(x) for branch in self.convs], dim=1))
        return y


class DeepLabV3(BaseModel):
    """A network that maps images (N, C, H, W) to logits (N, classes, H, W).

    The names of its parts are torchvision's.
    """

    takes = (ImageSpec,)
    targets = (Mask,)
    auxiliary_weight = 0.5  # torchvision's; the paper has no auxiliary head
    built_on = ("backbone", resnet.ResNet)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.backbone = resnet.Backbone(config.backbone, dilated=min(2, len(config.layers) - 1))
        channels, dim = self.backbone.channels, config.dim
        if config.auxiliary:
            self.aux_classifier = AuxiliaryHead(channels // 2, config.num_classes, dropout=0.1)
        self.classifier = nn.Sequential(
            ASPP(channels, config), *conv_bn_relu(dim, dim, 3), nn.Conv2d(dim, config.num_classes, 1)
        )

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the last convolution, (N, dim, h, w)."""
        features: Tensor = self.classifier[:-1](self.backbone(x)[1])
        return features

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the logits, shape (N, classes, H, W); in training, with an auxiliary head, its logits after them."""
        before, last = self.backbone(x)  # (N, channels / 2, h, w), (N, channels, h, w)
        logits = upsample_to(self.classifier(last), x)
        if not (self.training and self.config.auxiliary):
            return logits
        return logits, upsample_to(self.aux_classifier(before), x)


Model = DeepLabV3

PRESETS = {
    "deeplabv3-resnet18": Config(layers=(2, 2, 2, 2), block="basic"),
    "deeplabv3-resnet50": Config(),
}

# torchvision's recipe: SGD at 0.02 for 32 images in 8 processes, its rate falling polynomially to 0, over 30 epochs.
_ON_PHOTOGRAPHS = {
    "optimizer": "momentum",
    "lr": 0.01,
    "momentum": 0.9,
    "batch_size": 16,
    "weight_decay": 1e-4,
    "schedule": "warmup-cosine",
    "epochs": 30,
    "flip": True,
}

CARD = Card(
    title="Rethinking atrous convolution for semantic image segmentation",
    authors="L.-C. Chen, G. Papandreou, F. Schroff, H. Adam",
    year=2017,
    link="https://arxiv.org/abs/1706.05587",
    family="cnn",
    equation="y[i] = Σ_k x[i + r·k] w[k]",
    oracle="torchvision's DeepLabV3; deeplabv3-resnet18: the same head on torchvision's ResNet, its basic blocks "
    "dilated",
    published={
        "deeplabv3-resnet18": Published(
            16_053_034,
            12_813_275_136,
            (3, 224, 224),
            "computed from torchvision's ResNet-18, dilated, under its heads; multiply-adds without the auxiliary one",
        ),
        "deeplabv3-resnet50": Published(
            42_004_074,
            168_731_205_888,
            (3, 520, 520),
            "torchvision's weight metadata, which counts the auxiliary head: 178.722 billion multiply-adds with it",
        ),
    },
    divergences=(
        Divergence(
            "size of the feature map",
            paper="1/16 of the image in training, with rates 6, 12, 18; 1/8 in evaluation, with doubled rates",
            here="always 1/8, with rates 12, 24, 36",
            common="as here (torchvision)",
        ),
        Divergence(
            "after the pyramid",
            paper="1×1 with 256 channels, then 1×1 to the classes",
            here="1×1, dropout of 0.5, 3×3 with 256 channels, then 1×1 to the classes",
            common="as here (torchvision)",
        ),
        Divergence(
            "multi-grid",
            paper="rates 1, 2, 4 within the last stage",
            here="one rate within a stage",
            common="as here (torchvision)",
        ),
        Divergence(
            "auxiliary head",
            paper="none",
            here="that of FCN, on the second to last stage, with half the loss weight",
            common="as here (torchvision)",
        ),
    ),
    results={
        "deeplabv3-resnet50": (
            Result(
                "COCO 2017, classes of VOC",
                {"mIoU": 66.4, "pixel accuracy": 92.4},
                "validation set",
                "torchvision, DeepLabV3_ResNet50_Weights.COCO_WITH_VOC_LABELS_V1",
            ),
        ),
    },
    settings=dict.fromkeys(PRESETS, _ON_PHOTOGRAPHS),
)
