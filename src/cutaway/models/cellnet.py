"""The networks of NAS-Bench-201: one small cell, found by a search, stacked fifteen times.

X. Dong, Y. Yang, NAS-Bench-201: extending the scope of reproducible neural architecture search, ICLR 2020, sections 2.1
and 2.2. <https://arxiv.org/abs/2001.00326>

    xⱼ = Σ_{i<j} o⁽ⁱʲ⁾(xᵢ),   j = 1, 2, 3;   x₀ is what comes into the cell, x₃ what leaves it

Each of the six edges i → j of a cell has one operation o⁽ⁱʲ⁾ of five, which gives 5⁶ = 15 625 cells. The notation is
the paper's, node after node, OPERATION~FROM:

    |nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|

    none          0, as if there were no edge
    skip_connect  x
    nor_conv_1x1  BN(W ∗ ReLU(x)), kernels of 1×1
    nor_conv_3x3  BN(W ∗ ReLU(x)), kernels of 3×3
    avg_pool_3x3  the mean over 3×3, of the pixels that there are

Shapes, from an image (N, C, H, W), H and W multiples of 4, with c channels and n cells a stage:
    stem: conv 3×3, BN                             (N, c, H, W)
    n cells                                        (N, c, H, W)
    residual block of stride 2, n cells            (N, 2c, H/2, W/2)
    residual block of stride 2, n cells            (N, 4c, H/4, W/4)
    BN, ReLU, mean over the map; linear            (N, 4c), (N, classes)
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import ConfigError, InputShapeError, closest_names, shorten
from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published
from .config import ValidatedConfig, positive

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))  # from, to: in the order of the notation
LARGEST = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|"


def format_cell(operations: Sequence[str]) -> str:
    """Return the cell with these six operations, in the order of EDGES, in the paper's notation."""
    nodes = (
        "|".join(f"{op}~{source}" for op, (source, node) in zip(operations, EDGES) if node == j) for j in (1, 2, 3)
    )
    return "+".join(f"|{inside}|" for inside in nodes)


def parse_cell(arch: str) -> tuple[str, ...]:
    """Return the six operations of a cell, in the order of EDGES. Raises ModelError for an invalid cell."""
    pairs = re.findall(r"([\w]+)~(\d)", arch)
    found = tuple(op for op, _ in pairs)
    for op in found:
        if op not in OPERATIONS:
            close = closest_names(op, OPERATIONS, 1)
            raise ConfigError(
                f"arch has no operation {shorten(op)!r}: {f'similar is {close[0]}; ' if close else ''}"
                f"there are {', '.join(OPERATIONS)}."
            )
    if len(found) != len(EDGES) or format_cell(found) != arch:
        raise ConfigError(f"Invalid arch={shorten(arch)}: must be a cell as in {LARGEST}.")
    return found


def all_cells() -> Iterator[str]:
    """Return an iterator over the 15 625 cells."""
    return map(format_cell, itertools.product(OPERATIONS, repeat=len(EDGES)))


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    arch: str = LARGEST  # the cell, in the paper's notation
    cells: int = positive(5)  # cells in each of the three stages
    channels: int = positive(16)  # of the first stage; twice as many in the second, four times in the third
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(10)  # size of the output: number of classes, or 1 for a number

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_cell(self.arch)

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """The smallest height and width, which are halved twice."""
        return 4

    @property
    def size_step(self) -> int:
        """Height and width are multiples of this, so that both branches of a residual block have the same size."""
        return 4


class Zero(nn.Module):
    """No edge: zeros of the shape of the input."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to zeros of the same shape."""
        return torch.zeros_like(x)


def relu_conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, affine: bool = True) -> nn.Sequential:
    """Return BN(W ∗ ReLU(x)), (N, inputs, H, W) to (N, outputs, H/stride, W/stride)."""
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs, affine=affine),
    )


def build_operation(name: str, channels: int, affine: bool = True) -> nn.Module:
    """Return one of OPERATIONS on maps (N, channels, H, W), whose shape it keeps.

    Without `affine` the normalization has no scale and shift, as in DARTS, where they would rescale the learned weights
    of operations.
    """
    if name == "none":
        return Zero()
    if name == "skip_connect":
        return nn.Identity()
    if name == "avg_pool_3x3":
        return nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
    return relu_conv_bn(channels, channels, kernel=int(name[-1]), affine=affine)


class Cell(nn.Module):
    """Four nodes and the operations on the six edges between them."""

    def __init__(self, operations: Sequence[str], channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.edges = nn.ModuleList(build_operation(name, channels) for name in operations)  # in the order of EDGES

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C, H, W)."""
        nodes = [x]
        for edge, (source, node) in zip(self.edges, EDGES):
            y = edge(nodes[source])
            if source == 0:  # the first edge into its node
                nodes.append(y)
            else:
                nodes[node] = nodes[node] + y
        return nodes[-1]


class Reduction(nn.Module):
    """A residual block that halves the maps: two convolutions, plus a mean over 2×2 with a 1×1 convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv_a = relu_conv_bn(inputs, outputs, kernel=3, stride=2)
        self.conv_b = relu_conv_bn(outputs, outputs, kernel=3)
        self.shortcut = nn.Conv2d(inputs, outputs, kernel_size=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, 2C, H/2, W/2)."""
        y: Tensor = self.conv_b(self.conv_a(x)) + self.shortcut(F.avg_pool2d(x, 2))
        return y


class CellNet(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        operations, c = parse_cell(config.arch), config.channels
        self.stem = nn.Sequential(
            nn.Conv2d(config.in_channels, c, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(c)
        )
        blocks: list[nn.Module] = [Cell(operations, c) for _ in range(config.cells)]
        for width in (2 * c, 4 * c):
            blocks += [Reduction(width // 2, width), *(Cell(operations, width) for _ in range(config.cells))]
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(4 * c)
        self.head = nn.Linear(4 * c, config.num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the means of the last maps, (N, 4c)."""
        validate_image_size(x, self.config.least_size, "cellnet")
        height, width = x.shape[2:]
        if height % 4 or width % 4:
            raise InputShapeError(
                f"cellnet halves images twice, and these are {height}×{width}: bring them to multiples of 4 pixels, "
                f"as by image_size={4 * -(-max(height, width) // 4)}."
            )
        x = self.blocks(self.stem(x))  # (N, 4c, H/4, W/4)
        return F.relu(self.bn(x)).mean((2, 3))  # (N, 4c)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


Model = CellNet

PRESETS = {"cellnet": Config(), "cellnet-small": Config(cells=1, channels=8)}

CARD = Card(
    title="NAS-Bench-201: extending the scope of reproducible neural architecture search",
    authors="X. Dong, Y. Yang",
    year=2020,
    link="https://arxiv.org/abs/2001.00326",
    family="cnn",
    equation="xⱼ = Σ_{i<j} o⁽ⁱʲ⁾(xᵢ), o of none, x, BN(W ∗ ReLU(x)) with 1×1 or 3×3, mean over 3×3; x₃ leaves the cell",
    oracle="PyTorch's functions, edge by edge, built by hand from the cell's notation",
    published={
        "cellnet": Published(
            1_531_546,
            220_119_680,
            (3, 32, 32),
            "the largest of the benchmark's networks for CIFAR-10",
            paper="1.531546 M parameters and 220.11969 M multiply-adds, which count the head's 10 biases",
        ),
        "cellnet-small": Published(91_986, 12_673_344, (3, 32, 32), "computed from the definition above"),
    },
    divergences=(
        Divergence("stacks", paper="N = 5 cells a stage", here="`cells`; cellnet-small has 1, and 8 channels"),
        Divergence("multiply-adds", paper="the head's biases count as 10", here="biases count nothing"),
    ),
    settings={
        "cellnet": {"optimizer": "nesterov", "lr": 0.1, "weight_decay": 5e-4, "schedule": "cosine", "epochs": 200}
        | {"batch_size": 256, "flip": True, "crop": 4},
        "cellnet-small": {"optimizer": "adamw", "lr": 5e-3, "epochs": 20, "batch_size": 64},
    },
)
