"""FCN, the fully convolutional network for semantic segmentation, on a residual network: torchvision's form.

After J. Long, E. Shelhamer, T. Darrell, Fully convolutional networks for semantic segmentation, 2014 (CVPR 2015).
<https://arxiv.org/abs/1411.4038>

An image classifier becomes a pixel classifier: its head is a convolution with an output at every position of the map,
and the outputs are interpolated to the size of the image:

    y = U(h(b(x)))        b backbone, h head, U bilinear, to the size of x

    image ── backbone ── 3×3, BN, ReLU, dropout ── 1×1 ──▶ logits at h × w ──▶ bilinear ──▶ logits at H × W
                │
                └ last stage but one ── 3×3, BN, ReLU, dropout ── 1×1 ── bilinear: auxiliary head, in training

To keep spatial resolution, the last two stages of the backbone are dilated and have no stride, so that the map has an
eighth of the image's height and width, not a 32nd.

Shapes, fcn-resnet50, from (N, 3, 520, 520): backbone (N, 2048, 65, 65), head (N, 512, 65, 65), logits
(N, classes, 65, 65), drawn at (N, classes, 520, 520). Images of any size and number of channels are accepted.

In training an auxiliary head uses the output of the last stage but one; its loss has the weight `auxiliary_weight`. It
is not run in eval mode, and `auxiliary=False` removes it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import ImageSpec, Mask
from . import resnet
from .base import BaseModel
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    layers: tuple[int, ...] = positive((3, 4, 6, 3))  # residual blocks in each stage of the backbone
    block: str = choice("bottleneck", ("basic", "bottleneck"))  # basic: two 3×3 convolutions; bottleneck: 1×1, 3×3, 1×1
    width: int = positive(64)  # channels of the first stage; each further stage has twice as many
    stem: str = choice("imagenet", ("imagenet", "cifar"))  # 7×7 stride 2, max-pool; cifar: 3×3 only, for small images
    dropout: float = fraction(0.1)  # dropout rate before the last convolution of each head
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


class Head(nn.Sequential):
    """3×3 convolution to a quarter of the channels, normalization, ReLU, dropout, 1×1: (N, C, h, w) to
    (N, classes, h, w)."""

    def __init__(self, in_channels: int, num_classes: int, dropout: float) -> None:
        between = in_channels // 4
        super().__init__(
            resnet.conv(in_channels, between, 3),
            nn.BatchNorm2d(between),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv2d(between, num_classes, 1),
        )


def upsample_to(logits: Tensor, x: Tensor) -> Tensor:
    """Interpolate logits (N, classes, h, w) to the size of the images x (N, C, H, W): (N, classes, H, W)."""
    return F.interpolate(logits, x.shape[2:], mode="bilinear", align_corners=False)


class FCN(BaseModel):
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
        channels = self.backbone.channels
        if config.auxiliary:
            self.aux_classifier = Head(channels // 2, config.num_classes, config.dropout)
        self.classifier = Head(channels, config.num_classes, config.dropout)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head, (N, channels, h, w)."""
        features: Tensor = self.backbone(x)[1]
        return features

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the logits, shape (N, classes, H, W); in training, with an auxiliary head, its logits after them."""
        before, features = self.backbone(x)  # (N, channels / 2, h, w), (N, channels, h, w)
        logits = upsample_to(self.classifier(features), x)
        if not (self.training and self.config.auxiliary):
            return logits
        return logits, upsample_to(self.aux_classifier(before), x)


Model = FCN

PRESETS = {
    "fcn-resnet18": Config(layers=(2, 2, 2, 2), block="basic"),
    "fcn-resnet50": Config(),
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
    title="Fully convolutional networks for semantic segmentation",
    authors="J. Long, E. Shelhamer, T. Darrell",
    year=2014,
    link="https://arxiv.org/abs/1411.4038",
    family="cnn",
    equation="y = U(h(b(x)))",
    oracle="torchvision's FCN; fcn-resnet18: the same head on torchvision's ResNet, its basic blocks dilated",
    published={
        "fcn-resnet18": Published(
            11_918_250,
            9_676_843_008,
            (3, 224, 224),
            "computed from torchvision's ResNet-18, dilated, under its heads; multiply-adds without the auxiliary one",
        ),
        "fcn-resnet50": Published(
            35_322_218,
            142_725_772_800,
            (3, 520, 520),
            "torchvision's weight metadata, which counts the auxiliary head: 152.717 billion multiply-adds with it",
        ),
    },
    divergences=(
        Divergence(
            "backbone",
            paper="AlexNet, VGG-16 and GoogLeNet, their fully connected layers made convolutions",
            here="a dilated residual network with the names and shapes of torchvision, whose weights can be loaded",
            common="as here (torchvision)",
        ),
        Divergence(
            "skips",
            paper="FCN-16s and FCN-8s add predictions of earlier, finer maps",
            here="none: dilation keeps the resolution of the last map",
            common="none (torchvision)",
        ),
        Divergence(
            "upsampling",
            paper="a transposed convolution, initialized as bilinear interpolation and trained",
            here="bilinear interpolation, corners not aligned",
            common="as here (torchvision)",
        ),
        Divergence(
            "auxiliary head",
            paper="none",
            here="on the second to last stage, with half the loss weight",
            common="as here (torchvision)",
        ),
    ),
    results={
        "fcn-resnet50": (
            Result(
                "COCO 2017, classes of VOC",
                {"mIoU": 60.5, "pixel accuracy": 91.4},
                "validation set",
                "torchvision, FCN_ResNet50_Weights.COCO_WITH_VOC_LABELS_V1",
            ),
        ),
    },
    settings=dict.fromkeys(PRESETS, _ON_PHOTOGRAPHS),
)
