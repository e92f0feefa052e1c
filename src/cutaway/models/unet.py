"""U-Net: semantic segmentation with a contracting and an expanding path, and skip connections between them.

After O. Ronneberger, P. Fischer, T. Brox, U-Net: convolutional networks for biomedical image segmentation, 2015.
<https://arxiv.org/abs/1505.04597>

The contracting path halves the feature map and doubles the channels at each level, for context. The expanding path
reverses this, and concatenates the feature map of the same level of the contracting path, for localization:

    x_l = f_l(max x_{l−1})          y_l = g_l([x_l, u_l y_{l+1}])          f, g: twice 3×3, ReLU; u: 2×2, stride 2

    image ── f₀ ──────────── x₀ ───────────── [ , ] ── g₀ ── 1×1 ──▶ logits        w channels, H × W
              └ max ── f₁ ── x₁ ── [ , ] ── g₁ ── u₀ ┘                             2w, H/2 × W/2
                        └ max ── f₂ ── u₁ ┘                                        4w, H/4 × W/4

Shapes, unet (4 levels below the first), from (N, 1, 512, 512): x₀ (N, 64, 512, 512), x₁ (N, 128, 256, 256),
x₂ (N, 256, 128, 128), x₃ (N, 512, 64, 64), the bottom (N, 1024, 32, 32), and back to y₀ (N, 64, 512, 512), logits
(N, classes, 512, 512). Height and width are multiples of 2^levels.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError
from ..core.spec import ImageSpec, Mask
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    width: int = positive(64)  # channels of the first level; each further level has twice as many
    levels: int = positive(4)  # number of times the feature map is halved
    norm: str = choice("none", ("none", "batch"))  # after each 3×3 convolution: none as published, batch
    dropout: float = fraction(0.5)  # dropout rate after the two deepest levels
    in_channels: int = positive(1)  # 1 for grey, 3 for RGB
    num_classes: int = positive(2)  # logits at each pixel, the background's first

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def size_step(self) -> int:
        """Height and width are multiples of this, so that halved maps return to their original size."""
        return 1 << self.levels

    @property
    def least_size(self) -> int:
        """The smallest height and width: the deepest map has 2×2 pixels, so that batch normalization has a variance."""
        return 2 * self.size_step


class DoubleConv(nn.Module):
    """Two 3×3 convolutions, each with optional normalization and ReLU: (N, C, H, W) to (N, C', H, W)."""

    def __init__(self, in_channels: int, out_channels: int, config: Config) -> None:
        super().__init__()
        batch = config.norm == "batch"  # which has a bias itself
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=not batch)
        self.norm1 = nn.BatchNorm2d(out_channels) if batch else nn.Identity()
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=not batch)
        self.norm2 = nn.BatchNorm2d(out_channels) if batch else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Apply f or g. In-place operations overwrite only values not needed for the gradient."""
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(x)), inplace=True)


class UNet(BaseModel):
    """(N, C, H, W) images to logits (N, classes, H, W)."""

    takes = (ImageSpec,)
    targets = (Mask,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths = [config.width * 2**level for level in range(config.levels + 1)]
        inputs = [config.in_channels, *widths]
        self.down = nn.ModuleList(DoubleConv(c, width, config) for c, width in zip(inputs, widths))
        self.grow = nn.ModuleList(  # u, from the first level down
            nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in widths[:-1]
        )
        self.up = nn.ModuleList(DoubleConv(2 * width, width, config) for width in widths[:-1])
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Conv2d(config.width, config.num_classes, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                incoming = module.in_channels * (module.kernel_size[0] ** 2 if isinstance(module, nn.Conv2d) else 1)
                nn.init.normal_(module.weight, std=(2 / incoming) ** 0.5)  # section 3
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes, H, W)."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head, y₀: (N, w, H, W).

        Raises ModelError for a size that is no multiple of 2^levels.
        """
        self._validate_size(x)
        skips: list[Tensor] = []
        for level, convolve in enumerate(self.down):  # x_l: (N, 2^l·w, H/2^l, W/2^l)
            x = convolve(F.max_pool2d(x, 2) if level > 0 else x)
            x = self.dropout(x) if level >= self.config.levels - 1 else x
            skips.append(x)
        y = skips.pop()
        for grow, convolve in zip(reversed(self.grow), reversed(self.up)):  # y_l: (N, 2^l·w, H/2^l, W/2^l)
            y = convolve(torch.cat([skips.pop(), grow(y)], dim=1))
        return y

    def _validate_size(self, x: Tensor) -> None:
        validate_image_size(x, self.config.least_size, "unet")
        step = self.config.size_step
        if x.shape[2] % step or x.shape[3] % step:
            raise InputShapeError(
                f"unet halves images {self.config.levels} times, and these are {x.shape[2]}×{x.shape[3]}: height and "
                f"width must be multiples of {step}."
            )


Model = UNet

PRESETS = {
    "unet": Config(),
    "unet-small": Config(width=16, levels=3, norm="batch", dropout=0.0),
}

_USUAL = {"optimizer": "adamw", "schedule": "warmup-cosine", "weight_decay": 1e-4}

CARD = Card(
    title="U-Net: convolutional networks for biomedical image segmentation",
    authors="O. Ronneberger, P. Fischer, T. Brox",
    year=2015,
    link="https://arxiv.org/abs/1505.04597",
    family="cnn",
    equation="y_l = g_l([x_l, u_l y_{l+1}])",
    oracle="the paper's figure 1 in plain PyTorch layers, with padded convolutions",
    published={
        "unet": Published(
            31_030_658, 192_384_335_872, (1, 512, 512), "computed from the paper's figure 1, convolutions padded"
        ),
        "unet-small": Published(
            482_466, 143_851_520, (1, 64, 64), "computed from the paper's figure 1 at that width and depth"
        ),
    },
    divergences=(
        Divergence(
            "padding",
            paper="none: 572×572 pixels become 388×388, large images are read in overlapping tiles, and the maps "
            "of the skip connections are cropped",
            here="one pixel at each 3×3 convolution: logits have the size of the image, and nothing is cropped",
            common="padded",
        ),
        Divergence(
            "normalization",
            paper="none; batch normalization was published in the same year",
            here="none in unet; batch normalization in unet-small",
            common="batch normalization",
        ),
        Divergence(
            "dropout",
            paper="at the end of the contracting path; the rate is not specified",
            here="unet: rate 0.5 after the two deepest levels; unet-small: none",
            common="none",
        ),
        Divergence(
            "loss",
            paper="cross-entropy, pixels weighted by class frequency and distance to borders",
            here="cross-entropy with equal weights of pixels, or Dice (loss=dice)",
            common="cross-entropy, Dice or their sum",
        ),
        Divergence(
            "training",
            paper="SGD, momentum 0.99, one large tile a step, elastic deformations",
            here="AdamW, with warm-up and cosine; optional flips and crops",
        ),
    ),
    results={
        "unet": (
            Result("PhC-U373", {"IoU": 92.03}, "ISBI cell tracking challenge 2015", "the paper, table 2"),
            Result("DIC-HeLa", {"IoU": 77.56}, "ISBI cell tracking challenge 2015", "the paper, table 2"),
        ),
    },
    settings={
        "unet": {**_USUAL, "lr": 1e-4, "batch_size": 4, "epochs": 50},
        "unet-small": {**_USUAL, "lr": 3e-3, "batch_size": 16, "epochs": 20},
    },
)
