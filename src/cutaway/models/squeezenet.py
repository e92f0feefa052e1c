"""SqueezeNet: the accuracy of AlexNet with 50 times fewer parameters, by Fire modules and no dense layers.

F. N. Iandola, S. Han, M. W. Moskewicz, K. Ashraf, W. J. Dally, K. Keutzer, SqueezeNet: AlexNet-level accuracy with 50x
fewer parameters and <0.5MB model size, 2016. <https://arxiv.org/abs/1602.07360>

    s = r(W_s x)                     squeeze: W_s, a convolution of 1×1 from C to S channels; r = ReLU
    y = [r(W_1 s), r(W_3 ⊛ s)]       expand: W_1 of 1×1 and W_3 of 3×3, with zero padding, from S to E/2 channels each

A 3×3 convolution from C to E channels has 9·C·E weights. A Fire module has C·S + 10·S·E/2, and S is E/8 (the squeeze
ratio): for C = E = 512, that is 0.2 instead of 2.4 million. The number of expanded channels of Fire module i, counted
from 0, is E_i = width · (1 + ⌊i/2⌋). The last convolution gives a map for each class, and its mean is the logit.

    image (N, 3, 224, 224)
      │ conv1: 7×7, 96, stride 2         squeezenet-1.1: 3×3, 64, stride 2
      │ max-pool 3×3, stride 2           1.0: before fire2, fire5 and fire9; 1.1: before fire2, fire4 and fire6
      │ fire2, fire3: E = 128
      │ fire4, fire5: E = 256
      │ fire6, fire7: E = 384
      │ fire8, fire9: E = 512
      ▼ (N, 512, 13, 13)
      │ dropout; head, 1×1: one map for each class, ReLU
      ▼ mean of each map: logits (N, classes)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, Result, torchvision_accuracy
from .config import ValidatedConfig, choice, fraction, min_value, positive

FIRES = range(2, 10)  # the Fire modules, numbered as in the paper
POOLED = {"1.0": (2, 5, 9), "1.1": (2, 4, 6)}  # max pooling comes before these Fire modules
KERNEL = {"1.0": 7, "1.1": 3}  # of conv1


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    version: str = choice("1.1", ("1.0", "1.1"))  # 1.0 as in the paper; 1.1: smaller kernel in conv1, earlier pooling
    width: int = positive(128)  # channels of the first two Fire modules; the last two have four times as many
    squeeze_ratio: float = min_value(0.001, 0.125)  # squeezed channels, as a fraction of the expanded ones
    stem: str = choice("imagenet", ("imagenet", "cifar"))  # cifar: stride 1 in conv1
    dropout: float = fraction(0.5)  # dropout rate before the head
    head_activation: str = choice("relu", ("relu", "identity"))  # relu as published; identity if classes stay unlearned
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec` for images of at least `least_size`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def stride(self) -> int:
        """Stride of conv1."""
        return 2 if self.stem == "imagenet" else 1

    @property
    def stem_channels(self) -> int:
        """Channels of conv1: 96 in version 1.0 and 64 in version 1.1 for the usual width of 128."""
        return max(1, self.width * (3 if self.version == "1.0" else 2) // 4)

    @property
    def least_size(self) -> int:
        """Smallest height and width of an image: conv1 gives 8 pixels, of which three poolings leave one."""
        return 7 * self.stride + KERNEL[self.version]

    def expanded(self, fire: int) -> int:
        """Return the number of channels of a Fire module."""
        return self.width * (fire // 2)

    def squeezed(self, fire: int) -> int:
        """Return the number of channels within a Fire module."""
        return max(1, int(self.squeeze_ratio * self.expanded(fire)))


class Fire(nn.Module):
    """A Fire module: (N, C, H, W) to (N, E, H, W), through S channels."""

    def __init__(self, in_channels: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(in_channels, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded - expanded // 2, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded // 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the channels of both convolutions, those of 1×1 first."""
        s = F.relu(self.squeeze(x))  # (N, S, H, W)
        return torch.cat((F.relu(self.expand1x1(s)), F.relu(self.expand3x3(s))), 1)  # (N, E, H, W)


class SqueezeNet(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        channels = config.stem_channels
        self.conv1 = nn.Conv2d(config.in_channels, channels, KERNEL[config.version], config.stride)
        for i in FIRES:
            self.add_module(f"fire{i}", Fire(channels, config.squeezed(i), config.expanded(i)))
            channels = config.expanded(i)
        self.head = nn.Conv2d(channels, config.num_classes, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight)  # for ReLU
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]  # each convolution here has one
        nn.init.normal_(self.head.weight, std=0.01)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the last map, (N, 512, h, w)."""
        validate_image_size(x, self.config.least_size, "squeezenet")
        x = F.relu(self.conv1(x))
        for i in FIRES:
            if i in POOLED[self.config.version]:
                x = F.max_pool2d(x, 3, 2, ceil_mode=True)
            x = self.get_submodule(f"fire{i}")(x)
        return F.dropout(x, self.config.dropout, self.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes); with the published ReLU none is negative."""
        maps: Tensor = self.head(self.features(x))  # (N, classes, h, w)
        return (F.relu(maps) if self.config.head_activation == "relu" else maps).mean((2, 3))


Model = SqueezeNet

PRESETS = {"squeezenet-1.0": Config(version="1.0"), "squeezenet-1.1": Config()}

_TORCHVISION = "torchvision's weight metadata; in full counted on its network"

_ON_PHOTOGRAPHS = {"optimizer": "adamw", "lr": 5e-4, "batch_size": 64, "epochs": 30, "flip": True}

CARD = Card(
    title="SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size",
    authors="F. N. Iandola, S. Han, M. W. Moskewicz, K. Ashraf, W. J. Dally, K. Keutzer",
    year=2016,
    link="https://arxiv.org/abs/1602.07360",
    family="cnn",
    equation="s = r(W_s x), y = [r(W_1 s), r(W_3 ⊛ s)], W_s: C → S and W_1: S → E/2 of 1×1, W_3: S → E/2 of 3×3",
    oracle="torchvision's SqueezeNet",
    published={
        "squeezenet-1.0": Published(1_248_424, 818_924_576, (3, 224, 224), f"{_TORCHVISION}; the paper's table 1"),
        "squeezenet-1.1": Published(1_235_496, 349_151_936, (3, 224, 224), _TORCHVISION),
    },
    divergences=(
        Divergence(
            "first map of 224×224 pixels",
            paper="111×111 (table 1), which a 7×7 convolution with stride 2 gives for 227×227",
            here="109×109, no padding",
            common="109×109 (torchvision)",
        ),
        Divergence(
            "max pooling with incomplete windows",
            paper="not specified; Caffe rounds the size up",
            here="the size is rounded up",
            common="as here (torchvision)",
        ),
        Divergence(
            "ReLU after the last convolution",
            paper="not specified",
            here="yes: a class whose map is 0 everywhere stops learning, which happens with few classes; "
            "head_activation=identity omits the ReLU",
            common="yes (torchvision)",
        ),
        Divergence(
            "initialization",
            paper="not specified",
            here="uniform with variance 2/fan-in; the head normal with standard deviation 0.01; biases 0",
            common="as here (torchvision)",
        ),
        Divergence(
            "optimizer",
            paper="SGD at 0.04, lowered during training",
            here="AdamW, with warm-up and cosine",
        ),
    ),
    results={
        "squeezenet-1.0": (
            Result(
                "ImageNet",
                {"top-1 accuracy": 57.5, "top-5 accuracy": 80.3},
                "protocol not stated",
                "the paper, table 2",
            ),
            torchvision_accuracy("SqueezeNet1_0_Weights.IMAGENET1K_V1", 58.092, 80.42),
        ),
        "squeezenet-1.1": (torchvision_accuracy("SqueezeNet1_1_Weights.IMAGENET1K_V1", 58.178, 80.624),),
    },
    settings=dict.fromkeys(PRESETS, _ON_PHOTOGRAPHS),
)
