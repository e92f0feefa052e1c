"""The network that reaches 94 % on CIFAR-10 within seconds of training: whitening, eight further layers, one maximum.

After K. Jordan, 94% on CIFAR-10 in 3.29 seconds on a single GPU, 2024.
<https://arxiv.org/abs/2404.00498>

The first layer is not learned. It whitens patches of 2×2 pixels: its outputs are uncorrelated with variance one. Each
is present with both signs, so that the activation after it loses no information:

    W = (v_1/√(λ_1 + ε), …, v_d/√(λ_d + ε)),   E[p pᵀ] v_i = λ_i v_i,   p a patch of d = 4C values;   x ↦ GELU(±Wp + b)

E is the mean over the patches of training images (`initialize_from`); λ_i and v_i are eigenvalues and eigenvectors.
Before that, W is a random orthogonal basis, which whitens white noise.

      group (C to w channels)

      3×3, w              a 3×3 convolution begins as the identity on as many channels as it takes:
      max over 2×2        its first filters have a one in the middle, the others are random
      BN, GELU
      3×3, w              BN: z ↦ (z − μ)/σ + β, with a trainable β and no trainable scale
      BN, GELU

Shapes, from (N, 3, 32, 32): whitening 2×2 without padding (N, 24, 31, 31), groups with w = 64, 256, 256 on maps of 15,
7 and 3, maximum over the map (N, 256), logits (N, classes) as a ninth of a linear map without bias. Images of any size
from 9×9 on and of any number of channels will do: maps are halved with the remainder dropped.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError
from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, positive

PATCH = 2  # height and width of the patches of the first layer
EPSILON = 5e-4  # added to every variance, so that directions of little variance are not amplified
MAX_PATCHES = 5_000_000  # patches for E: those of 5 200 images of 32×32, as in the author's code
PATCH_CHUNK = 250_000  # patches in memory at once
HEAD_SCALE = 1 / 9  # scale of the logits, for a softer softmax at the start of training


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    widths: tuple[int, ...] = positive((64, 256, 256))  # channels of each group
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(10)  # logits

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """The smallest height and width: one pixel is left after the first layer and a halving by every group."""
        return (1 << len(self.widths)) + PATCH - 1


class Whitening(nn.Module):
    """The first layer: (N, C, H, W) to (N, 8C, H − 1, W − 1). The kernel is computed from data, the bias is trained."""

    weight: Tensor

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        size = in_channels * PATCH**2
        basis = nn.init.orthogonal_(torch.empty(size, size)).view(size, in_channels, PATCH, PATCH)
        self.register_buffer("weight", torch.cat([basis, -basis]))  # (8C, C, 2, 2)
        self.bias = nn.Parameter(torch.zeros(2 * size))

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Compute the kernel from the patches of images (n, C, H, W); from the first images if there are very many."""
        in_each = (images.shape[2] - 1) * (images.shape[3] - 1)
        images = images[: math.ceil(MAX_PATCHES / in_each)].cpu()  # not every device has float64
        size = len(self.bias) // 2
        moments = torch.zeros(size, size, dtype=torch.float64)
        for some in images.split(max(1, PATCH_CHUNK // in_each)):  # type: ignore[no-untyped-call]
            patches = F.unfold(some.double(), PATCH).transpose(1, 2).flatten(0, 1)  # (patches, 4C)
            moments += patches.T @ patches
        variances, directions = torch.linalg.eigh(moments / (len(images) * in_each))  # in columns, the least first
        kernel = (directions / (variances + EPSILON).sqrt()).T.flip(0).unflatten(1, self.weight.shape[1:])
        self.weight.copy_(torch.cat([kernel, -kernel]))

    def dense_kernel(self) -> Tensor:
        """Return ±W, (8C, C, 2, 2)."""
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        """Return ±Wp + b for every patch p."""
        return F.conv2d(x, self.weight, self.bias)


class BatchNorm(nn.BatchNorm2d):
    """Batch normalization with a fixed scale of one and a momentum of 0.4 for the running statistics."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-12, momentum=0.4)
        scale = self.weight.detach()
        del self.weight
        self.register_buffer("weight", scale)  # the fused kernels need one; it is not trained


class Group(nn.Module):
    """Convolution, maximum, normalization, convolution, normalization: (N, C, H, W) to (N, w, ⌊H/2⌋, ⌊W/2⌋)."""

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.norm1 = BatchNorm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = BatchNorm(width)
        for conv in (self.conv1, self.conv2):
            nn.init.dirac_(conv.weight.detach()[: conv.in_channels])

    def forward(self, x: Tensor) -> Tensor:
        """Apply the group. The maximum follows the first convolution directly, so that the rest costs a quarter."""
        x = F.max_pool2d(self.conv1(x), 2)
        x = F.gelu(self.norm1(x))
        return F.gelu(self.norm2(self.conv2(x)))


class Airbench(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.whiten = Whitening(config.in_channels)
        channels = len(self.whiten.bias)
        groups = []
        for width in config.widths:
            groups.append(Group(channels, width))
            channels = width
        self.groups = nn.Sequential(*groups)
        self.head = nn.Linear(channels, config.num_classes, bias=False)

    def initialize_from(self, images: Tensor) -> None:
        """Compute the first layer from training images (n, C, H, W), preprocessed as in training.

        Raises ModelError if the images have other channels or are too small.
        """
        if images.ndim != 4 or images.shape[1] != self.config.in_channels:
            raise InputShapeError(
                f"This network was built for images (N, {self.config.in_channels}, H, W), and these are "
                f"{tuple(images.shape)}: build it with their in_channels."
            )
        validate_image_size(images, self.config.least_size, "airbench")
        self.whiten.fit(images)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the maximum of every channel over the last map, (N, channels)."""
        validate_image_size(x, self.config.least_size, "airbench")
        x = F.gelu(self.whiten(x))  # (N, 8C, H − 1, W − 1)
        x = self.groups(x)  # (N, channels, H/8, W/8)
        return F.adaptive_max_pool2d(x, 1).flatten(1)  # (N, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits * HEAD_SCALE


Model = Airbench

PRESETS = {"airbench94": Config()}

CARD = Card(
    title="94% on CIFAR-10 in 3.29 seconds on a single GPU",
    authors="K. Jordan",
    year=2024,
    link="https://arxiv.org/abs/2404.00498",
    family="cnn",
    equation="x ↦ GELU(±Wp + b), W = (v_i/√(λ_i + ε)), E[p pᵀ] v_i = λ_i v_i",
    oracle="the same network by its definitions, on lists of arrays: unfolded patches and explicit statistics",
    published={
        "airbench94": Published(
            1_971_352,
            118_147_360,
            (3, 32, 32),
            "computed from airbench94.py; the paper says 1.97 million parameters, and 3.6e14 floating-point "
            "operations for a whole training, which these multiply-adds give",
        )
    },
    divergences=(
        Divergence(
            "frozen parameters",
            paper="the first kernel and the scales of the normalization are parameters without gradients, and counted",
            here="they are buffers, and are not counted",
        ),
        Divergence(
            "maximum at the end",
            paper="over 3×3",
            here="over the whole map: the same for images of 32×32",
        ),
        Divergence(
            "head",
            paper="times 1/9",
            here="as published",
            common="weights of standard deviation 1, times 1/256 (airbench94_muon.py, a faster script of the author)",
        ),
        Divergence(
            "bias of the first layer",
            paper="initialized with zero; trained only in the first three epochs",
            here="initialized with zero; trained throughout",
            common="random initialization (airbench94_muon.py)",
        ),
        Divergence(
            "training",
            paper="SGD with Nesterov momentum at a rate of 11.5 for 1 024 images, biases at 64 times that; every image "
            "flipped in every second epoch, crops padded by reflection, Lookahead, six views of each test image",
            here="the settings of the card: Muon for the kernels but the first, AdamW for the rest, twice the epochs, "
            "random flips, two views",
            common="Muon for the kernels, in batches of 2 000 for 8 epochs (airbench94_muon.py)",
        ),
    ),
    results={
        "airbench94": (Result("CIFAR-10", {"accuracy": 94.01}, "mean of many trainings", "the author's release"),),
    },
    settings={
        "airbench94": {
            "optimizer": "muon",
            "lr": 0.01,
            "momentum": 0.6,
            "batch_size": 500,
            "epochs": 20,
            "label_smoothing": 0.2,
            "crop": 2,
            "flip": True,
            "tta": True,
        }
    },
)
