"""NASNet-A: two cells that reinforcement learning found on CIFAR-10, stacked for images of any size.

B. Zoph, V. Vasudevan, J. Shlens, Q. V. Le, Learning transferable architectures for scalable image recognition, 2017
(CVPR 2018). <https://arxiv.org/abs/1707.07012>

A cell takes the last two maps, so that each map is used twice. h is the last map and p the one before it, both brought
to C channels by ReLU, 1×1 convolution and BN. Each y is a sum of two operations (figure 4):

    normal cell: (N, C, H, W) each             reduction cell: operations on h and p have stride 2
    y₁ = s₅(h) + s₃(p)                         y₁ = s₅(h) + s₇(p)
    y₂ = s₅(p) + s₃(p)                         y₂ = max(h) + s₇(p)
    y₃ = mean(h) + p                           y₃ = mean(h) + s₅(p)
    y₄ = mean(p) + mean(p)                     y₄ = mean(y₁) + y₂
    y₅ = s₃(h) + h                             y₅ = s₃(y₁) + max(h)
    [ p, y₁, y₂, y₃, y₄, y₅ ], 6C channels     [ y₂, y₃, y₄, y₅ ], 4C channels

s_k is a separable convolution applied twice, with D_k a depthwise convolution and W a 1×1 convolution:

    s_k(x) = BN(W₂ (D_k ⊛ ReLU(BN(W₁ (D_k ⊛ ReLU(x))))))

max and mean have windows of 3×3. If p is twice as large as h, factorized reduction halves it: every other pixel goes
through one 1×1 convolution, the pixels diagonally next to them through another, and both results are concatenated.

     ┌───────────────┐ ┌───────────────┐
     │        ┌──────┼─┼──────┐        │
    image ─► stem ─► cell ─► cell ─► cell ─► …      each cell takes the last map and the one before it

Shapes of nasnet-a-mobile (C = 44, N = 4) from (N, 3, 224, 224):

    stem              3×3 /2                    (N,   32, 111, 111)
    2 reductions      11 and 22 filters         (N,   88,  28,  28)
    N normal cells    44 filters                (N,  264,  28,  28)
    reduction         88 filters                (N,  352,  14,  14)
    N normal cells    88 filters                (N,  528,  14,  14)
    reduction         176 filters               (N,  704,   7,   7)
    N normal cells    176 filters               (N, 1056,   7,   7)
    ReLU, mean, linear                          (N, 1056), (N, classes)

For small images (`stem="cifar"`) the stem is a 3×3 convolution without stride, and no reductions follow it. The paper
names a network N @ channels of the last map, here 4 @ 1056.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, fraction, positive
from .convnext import drop_path


class Step(NamedTuple):
    """One cell of the network."""

    reduces: bool  # a reduction cell, otherwise a normal one
    filters: int  # C of the cell
    keeps: bool = False  # the next cell gets the same earlier map, otherwise the last map of this one


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    cells: int = positive(4)  # N, normal cells in each of the three stages
    width: int = positive(44)  # C, filters of the first stage; 2C in the second, 4C in the third; imagenet: times 4
    stem: str = choice("imagenet", ("imagenet", "cifar"))  # imagenet: stride 2 and two reductions; cifar: 3×3 only
    stem_width: int = positive(32)  # channels of the first convolution
    skip_reduction: bool = False  # the cell after a reduction gets the same earlier map as it, as in nasnet-a-large
    dropout: float = fraction(0.5)  # dropout rate before the head
    drop_path_rate: float = fraction(0.0)  # in training: rate of dropped operations in the last cell; linear from 0
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.stem == "cifar" or self.width % 4 == 0
        check_value(fits, "width", self.width, "a multiple of 4 with stem=imagenet")

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec` for images of at least `least_size`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """Smallest height and width of an image: five layers halve it, or two, and one pixel is left."""
        return 32 if self.stem == "imagenet" else 4

    @property
    def eps(self) -> float:
        """ε of the batch normalizations."""
        return 1e-3 if self.stem == "imagenet" else 1e-5

    @property
    def plan(self) -> list[Step]:
        """The cells of the network in their order."""
        c, keeps = self.width, self.skip_reduction
        steps = [Step(True, c // 4), Step(True, c // 2)] if self.stem == "imagenet" else []
        for filters in (c, 2 * c, 4 * c):
            steps += [Step(True, filters, keeps)] * (filters > c) + [Step(False, filters)] * self.cells
        return steps


def relu_conv_bn(in_channels: int, out_channels: int, eps: float) -> nn.Sequential:
    """Return BN(W ReLU(x)), (N, in_channels, H, W) to (N, out_channels, H, W)."""
    return nn.Sequential(
        nn.ReLU(), nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels, eps=eps)
    )


def pad_for_stride_2(x: Tensor, kernel: int) -> Tensor:
    """Pad (N, C, H, W) with zeros for ⌈H/2⌉×⌈W/2⌉ windows: of an even side, the last end has one pixel more."""
    half = kernel // 2
    top, left = (half - 1 + side % 2 for side in x.shape[2:])
    return F.pad(x, (left, half, top, half))


def max_3x3(x: Tensor) -> Tensor:
    """Return the maxima of windows of 3×3, 2 apart, padded as `pad_for_stride_2`: (N, C, ⌈H/2⌉, ⌈W/2⌉)."""
    return F.max_pool2d(x, 3, stride=2, padding=(x.shape[2] % 2, x.shape[3] % 2), ceil_mode=True)


def mean_3x3(x: Tensor, stride: int = 1) -> Tensor:
    """Return the means of the pixels in windows of 3×3, without padding: (N, C, ⌈H/stride⌉, ⌈W/stride⌉)."""
    if stride == 1:
        return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
    padding = (x.shape[2] % 2, x.shape[3] % 2)
    return F.avg_pool2d(x, 3, stride=2, padding=padding, ceil_mode=True, count_include_pad=False)


class SeparableConv(nn.Module):
    """s_k, a separable convolution applied twice: (N, C, H, W) to (N, C', ⌈H/s⌉, ⌈W/s⌉)."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int, eps: float) -> None:
        super().__init__()
        half = kernel // 2
        self.depthwise1 = nn.Conv2d(
            in_channels, in_channels, kernel, stride, half if stride == 1 else 0, groups=in_channels, bias=False
        )
        self.pointwise1 = nn.Conv2d(in_channels, out_channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels, eps=eps)
        self.depthwise2 = nn.Conv2d(out_channels, out_channels, kernel, 1, half, groups=out_channels, bias=False)
        self.pointwise2 = nn.Conv2d(out_channels, out_channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Return the map after both convolutions."""
        x = F.relu(x)
        if self.depthwise1.stride == (2, 2):
            x = pad_for_stride_2(x, self.depthwise1.kernel_size[0])
        x = F.relu(self.bn1(self.pointwise1(self.depthwise1(x))))  # (N, C', H/s, W/s)
        y: Tensor = self.bn2(self.pointwise2(self.depthwise2(x)))
        return y


class FactorizedReduction(nn.Module):
    """Half the side without a loss of pixels to the stride: (N, C, H, W) to (N, C', ⌈H/2⌉, ⌈W/2⌉), C' even."""

    def __init__(self, in_channels: int, out_channels: int, eps: float) -> None:
        super().__init__()
        self.path1 = nn.Conv2d(in_channels, out_channels // 2, 1, bias=False)
        self.path2 = nn.Conv2d(in_channels, out_channels // 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(out_channels, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution of every other pixel, and that of those one pixel below and to the right."""
        x = F.relu(x)
        diagonal = F.pad(x, (-1, 1, -1, 1))  # moved by one pixel, 0 at the last ends
        y: Tensor = self.bn(torch.cat([self.path1(x[..., ::2, ::2]), self.path2(diagonal[..., ::2, ::2])], dim=1))
        return y


class Cell(nn.Module):
    """Base class of both cells: brings the last map to C channels, and the one before it to C and the same size."""

    def __init__(self, in_channels: int, previous: nn.Module, filters: int, drop_path_rate: float, eps: float) -> None:
        super().__init__()
        self.drop_path_rate = drop_path_rate
        self.fit = relu_conv_bn(in_channels, filters, eps)
        self.fit_previous = previous

    def drop(self, y: Tensor) -> Tensor:
        """Drop the result of an operation for some images in training."""
        return drop_path(y, self.drop_path_rate, self.training)


class NormalCell(Cell):
    """Cell that keeps the size of the map: (N, ·, H, W) and the map before it to (N, 6C, H, W)."""

    def __init__(self, in_channels: int, previous: nn.Module, filters: int, drop_path_rate: float, eps: float) -> None:
        super().__init__(in_channels, previous, filters, drop_path_rate, eps)
        self.sep1_h = SeparableConv(filters, filters, 5, 1, eps)
        self.sep1_p = SeparableConv(filters, filters, 3, 1, eps)
        self.sep2_a = SeparableConv(filters, filters, 5, 1, eps)
        self.sep2_b = SeparableConv(filters, filters, 3, 1, eps)
        self.sep5_h = SeparableConv(filters, filters, 3, 1, eps)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        """Return the concatenation of p and the five sums."""
        h, p, drop = self.fit(x), self.fit_previous(before), self.drop  # (N, C, H, W)
        y1 = drop(self.sep1_h(h)) + drop(self.sep1_p(p))
        y2 = drop(self.sep2_a(p)) + drop(self.sep2_b(p))
        y3 = drop(mean_3x3(h)) + p
        y4 = drop(mean_3x3(p)) + drop(mean_3x3(p))
        y5 = drop(self.sep5_h(h)) + h
        return torch.cat([p, y1, y2, y3, y4, y5], dim=1)  # (N, 6C, H, W)


class ReductionCell(Cell):
    """Cell that halves the side of the map: (N, ·, H, W) and the map before it to (N, 4C, ⌈H/2⌉, ⌈W/2⌉).

    The first cell of the stem takes its own input as p too, with `channels_p` channels; in all others they are C.
    """

    def __init__(
        self,
        in_channels: int,
        previous: nn.Module,
        filters: int,
        drop_path_rate: float,
        eps: float,
        channels_p: int | None = None,
    ) -> None:
        super().__init__(in_channels, previous, filters, drop_path_rate, eps)
        c = channels_p or filters
        self.sep1_h = SeparableConv(filters, filters, 5, 2, eps)
        self.sep1_p = SeparableConv(c, filters, 7, 2, eps)
        self.sep2_p = SeparableConv(c, filters, 7, 2, eps)
        self.sep3_p = SeparableConv(c, filters, 5, 2, eps)
        self.sep5_y1 = SeparableConv(filters, filters, 3, 1, eps)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        """Return the concatenation of the four sums that no other sum uses up."""
        h, p, drop = self.fit(x), self.fit_previous(before), self.drop  # (N, C, H, W)
        y1 = drop(self.sep1_h(h)) + drop(self.sep1_p(p))  # (N, C, H/2, W/2)
        y2 = drop(max_3x3(h)) + drop(self.sep2_p(p))
        y3 = drop(mean_3x3(h, stride=2)) + drop(self.sep3_p(p))
        y4 = drop(mean_3x3(y1)) + y2
        y5 = drop(self.sep5_y1(y1)) + drop(max_3x3(h))
        return torch.cat([y2, y3, y4, y5], dim=1)  # (N, 4C, H/2, W/2)


class NASNet(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        whole, eps = config.stem == "imagenet", config.eps
        stem = nn.Conv2d(
            config.in_channels, config.stem_width, 3, 2 if whole else 1, padding=0 if whole else 1, bias=False
        )
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(config.stem_width, eps=eps))
        self.cells = nn.ModuleList()
        last = before = (config.stem_width, 0)  # channels of the last map and of the one before it; times it was halved
        for i, step in enumerate(config.plan):
            rate = config.drop_path_rate * (i + 1) / len(config.plan)
            if whole and i == 0:
                cell: Cell = ReductionCell(last[0], nn.Identity(), step.filters, rate, eps, channels_p=last[0])
            else:
                halve = before[1] < last[1]
                fit = (FactorizedReduction if halve else relu_conv_bn)(before[0], step.filters, eps)
                cell = (ReductionCell if step.reduces else NormalCell)(last[0], fit, step.filters, rate, eps)
            self.cells.append(cell)
            before = before if step.keeps else last
            last = ((4 if step.reduces else 6) * step.filters, last[1] + step.reduces)
        self.head = nn.Linear(last[0], config.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.weight[:, 0].numel() // module.groups  # k²·C', or k² if depthwise
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the means of the last map after ReLU, (N, 24C)."""
        validate_image_size(x, self.config.least_size, "nasnet")
        x = before = self.stem(x)  # (N, stem_width, H/2, W/2)
        for step, cell in zip(self.config.plan, self.cells):
            y = cell(x, before)
            before = before if step.keeps else x
            x = y
        x = F.relu(x).mean((2, 3))  # (N, 24C)
        return F.dropout(x, self.config.dropout, self.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


Model = NASNet

PRESETS = {
    "nasnet-a-mobile": Config(),
    "nasnet-a-large": Config(cells=6, width=168, stem_width=96, skip_reduction=True, drop_path_rate=0.3),
    "nasnet-a-cifar": Config(
        cells=6, width=32, stem="cifar", stem_width=96, dropout=0.0, drop_path_rate=0.4, num_classes=10
    ),
    "nasnet-a-small": Config(cells=1, width=8, stem="cifar", stem_width=24, dropout=0.0, num_classes=10),
}

_CROP = "single crop of {0}×{0} pixels"
_PAPER = "the paper, {}; the authors' release says the same"

# The authors' code: momentum in batches of 32, a cosine from 0.025, 600 epochs, gradients of norm 5 at most.
_CIFAR = {"optimizer": "momentum", "lr": 0.025, "batch_size": 32, "weight_decay": 5e-4, "schedule": "cosine"}
_ON_PHOTOGRAPHS = {"optimizer": "adamw", "lr": 1e-3, "batch_size": 64, "schedule": "warmup-cosine", "epochs": 30} | {
    "flip": True
}

CARD = Card(
    title="Learning transferable architectures for scalable image recognition",
    authors="B. Zoph, V. Vasudevan, J. Shlens, Q. V. Le",
    year=2017,
    link="https://arxiv.org/abs/1707.07012",
    family="cnn",
    equation="y₁ = s₅(h) + s₃(p), y₂ = s₅(p) + s₃(p), y₃ = mean(h) + p, y₄ = mean(p) + mean(p), y₅ = s₃(h) + h; "
    "reduction, stride 2: y₁ = s₅(h) + s₇(p), y₂ = max(h) + s₇(p), y₃ = mean(h) + s₅(p), y₄ = mean(y₁) + y₂, "
    "y₅ = s₃(y₁) + max(h)",
    oracle="an independent implementation that reads the cells from a table of the paper's figure 4",
    published={
        "nasnet-a-mobile": Published(
            5_289_978,
            563_638_816,
            (3, 224, 224),
            "parameters: pretrainedmodels' nasnetamobile; the paper's table 3: 5.3M and 564M multiply-adds",
        ),
        "nasnet-a-large": Published(
            88_753_150,
            23_783_414_658,
            (3, 331, 331),
            "parameters: timm's nasnetalarge; the paper's table 2: 88.9M and 23.8B multiply-adds",
            paper="88.9M parameters, which is the count with the 196 668 running means and variances",
        ),
        "nasnet-a-cifar": Published(
            3_328_234,
            525_786_624,
            (3, 32, 32),
            "computed from the definition above; the paper's table 1: 3.3M parameters",
        ),
        "nasnet-a-small": Published(70_674, 11_880_320, (3, 32, 32), "computed from the definition above"),
    },
    divergences=(
        Divergence(
            "sizes",
            paper="4 @ 1056, 6 @ 4032 and others on ImageNet; 6 @ 768 and others on CIFAR-10 (tables 1 to 3)",
            here="4 @ 1056, 6 @ 4032 and 6 @ 768; nasnet-a-small, 1 @ 192, is not published. For others set "
            "model.cells and model.width, a 24th of the channels",
            common="4 @ 1056 and 6 @ 4032 (Keras), 6 @ 4032 (timm)",
        ),
        Divergence(
            "auxiliary head",
            paper="one, two thirds of the way up the network, in training",
            here="none",
            common="none (timm, Keras)",
        ),
        Divergence(
            "drop path",
            paper="ScheduledDropPath: the rate grows linearly over the training (section 3)",
            here="the rate is the same from the beginning; as in the authors' code it grows with the index of the "
            "cell, and results of operations are dropped for each image, but not identities",
            common="none (timm, Keras)",
        ),
        Divergence(
            "map before the first cell",
            paper="not specified; the authors' code: in the stem of ImageNet and in the first cell on CIFAR-10 the "
            "input of the cell itself, which each operation brings to C channels",
            here="the same in the stem of ImageNet; on small images the first cell brings it to C channels like all "
            "other cells, by a 1×1 convolution",
        ),
        Divergence(
            "cell after a reduction",
            paper="not specified; the authors' code: the large network skips the reduction's input",
            here="as the authors' code: model.skip_reduction",
        ),
        Divergence(
            "padding of stride 2",
            paper="not specified; the authors' code (TensorFlow): of an even side, one pixel more at the last end, and "
            "means of the pixels without padding",
            here="as the authors' code",
            common="as here; in timm strided means count the padding as zeros, which changes the outputs",
        ),
        Divergence(
            "batch normalization",
            paper="not specified; the authors' code: ε = 1e-3, momentum 0.9997 on ImageNet; ε = 1e-5, 0.9 on CIFAR-10",
            here="the same ε; momentum 0.1 in PyTorch's sense",
            common="ε = 1e-3, momentum 0.1 (timm)",
        ),
        Divergence(
            "initialization",
            paper="not specified; the authors' code: normal with variance 2/(k²C'), 2/k² if depthwise, truncated; the "
            "head with 2/classes",
            here="as the authors' code, not truncated; the head has PyTorch's default",
        ),
        Divergence(
            "optimizer on ImageNet",
            paper="RMSProp; the authors' code: rate times 0.97 every 2.4 epochs, label smoothing 0.1, gradients of "
            "norm 10 at most, auxiliary loss times 0.4",
            here="AdamW, with warm-up and cosine",
        ),
    ),
    results={
        "nasnet-a-mobile": (
            Result(
                "ImageNet",
                {"top-1 accuracy": 74.0, "top-5 accuracy": 91.6},
                _CROP.format(224),
                _PAPER.format("table 3"),
            ),
        ),
        "nasnet-a-large": (
            Result(
                "ImageNet",
                {"top-1 accuracy": 82.7, "top-5 accuracy": 96.2},
                _CROP.format(331),
                _PAPER.format("table 2"),
            ),
        ),
        "nasnet-a-cifar": (
            Result("CIFAR-10", {"error": 3.41}, "flips and crops in training", "the paper, table 1"),
            Result("CIFAR-10", {"error": 2.65}, "flips, crops and cutout in training", "the paper, table 1"),
        ),
    },
    settings={
        "nasnet-a-mobile": _ON_PHOTOGRAPHS,
        "nasnet-a-large": _ON_PHOTOGRAPHS,
        "nasnet-a-cifar": _CIFAR | {"epochs": 600, "grad_clip": 5.0, "flip": True, "crop": 4},
        "nasnet-a-small": {"optimizer": "adamw", "lr": 5e-3, "epochs": 15, "batch_size": 32},
    },
)
