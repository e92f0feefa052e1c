"""LeNet-5 as published in 1998.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-based learning applied to document recognition, Proc.
IEEE 86(11), 1998, section II.B and appendix A. <https://doi.org/10.1109/5.726791>

    x = f(a),  f(a) = 1.7159 tanh(2a/3);  y_i = Σ_j (x_j − w_ij)²

    layer                                  maps      unit sees        parameters   connections
    C1  convolution                        6@28×28   5×5                     156       122 304
    S2  sub-sampling                       6@14×14   2×2                      12         5 880
    C3  convolution by a table            16@10×10   5×5 in 3 to 6 maps    1 516       151 600
    S4  sub-sampling                      16@5×5     2×2                      32         2 000
    C5  convolution                      120@1×1     5×5 in 16 maps       48 120        48 120
    F6  full                              84         120                  10 164        10 164
        radial basis functions            10         84                  (fixed)           840
                                                                          60 000       340 908

Every unit up to F6 applies f to its weighted sum. A sub-sampling unit adds its four inputs, multiplies by its map's
coefficient and adds its map's bias. The output unit of class i is the squared distance of F6 to a fixed code of ±1, an
image of the character of 7 by 12 pixels: the smallest distance is the prediction.

Shapes: images (N, C, 32, 32) to −y (N, classes). `lenet5-modern` is the form in common use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError, ModelError, check_value
from ..core.spec import ImageSpec, Value
from ..nn.activations import scaled_tanh
from ..nn.losses import RUBBISH
from .base import BaseModel
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, min_value, positive

# Table I of the paper: the maps of S2 that each of the 16 maps of C3 takes. They differ between neighbouring maps, so
# that not all of them can learn the same.
C3_TABLE = (
    (0, 1, 2),
    (1, 2, 3),
    (2, 3, 4),
    (3, 4, 5),
    (0, 4, 5),
    (0, 1, 5),
    (0, 1, 2, 3),
    (1, 2, 3, 4),
    (2, 3, 4, 5),
    (0, 3, 4, 5),
    (0, 1, 4, 5),
    (0, 1, 2, 5),
    (0, 1, 3, 4),
    (1, 2, 4, 5),
    (0, 2, 3, 5),
    (0, 1, 2, 3, 4, 5),
)

# The codes of the ten digits, 7 pixels by 12 each, after the paper's figure 3.
DIGITS = """
....... ....... ....... ....... ....... ....... ....... ....... ....... .......
..###.. ...##.. .#####. .#####. ....##. ####### ..####. ####### .#####. .#####.
.##.##. ..###.. ##...## ##...## ...###. ##..... .##.... .....## ##...## ##...##
##...## .####.. .....## .....## ..####. ##..... ##..... .....## ##...## ##...##
##...## ...##.. .....## .....## .##.##. ##..... ##..... ....##. ##...## ##...##
##...## ...##.. ....##. ..####. ##..##. ######. ######. ....##. .#####. .######
##...## ...##.. ...##.. .....## ##..##. .....## ##...## ...##.. ##...## .....##
##...## ...##.. ..##... .....## ####### .....## ##...## ...##.. ##...## .....##
##...## ...##.. .##.... .....## ....##. .....## ##...## ..##... ##...## .....##
.##.##. ...##.. ##..... ##...## ....##. ##...## ##...## ..##... ##...## ....##.
..###.. .###### ####### .#####. ....##. .#####. .#####. ..##... .#####. .####..
....... ....... ....... ....... ....... ....... ....... ....... ....... .......
"""
CODE = 84  # 7 × 12


def class_codes(num_classes: int) -> Tensor:
    """Return the code of each class, (classes, 84), −1 and +1: the digits for ten classes, else random codes.

    The random codes have a fixed seed: the same number of classes always gives the same codes.
    """
    if num_classes != 10:
        generator = torch.Generator().manual_seed(num_classes)
        return torch.randint(2, (num_classes, CODE), generator=generator).float() * 2 - 1
    images = zip(*(line.split() for line in DIGITS.split("\n") if line))
    return torch.tensor([[1.0 if c == "#" else -1.0 for c in "".join(image)] for image in images])


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_channels: int = positive(1)  # 1 for grey, as published; 3 for RGB
    num_classes: int = min_value(2, 10)  # codes of the characters, one for each class
    image_size: int = 32  # height and width, as published; smaller images are padded or enlarged to it

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.image_size == 32, "image_size", self.image_size, "32: C5 sees 5×5, all that is left then")

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`.

        The image size stays: the data is brought to it.
        """
        if isinstance(spec.target, Value):
            raise ModelError(
                f"lenet5 compares images with a code for each class, and {spec.target.column} is a number: "
                "take lenet5-modern or simplecnn, which learn numbers too."
            )
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)


class SubSampling(nn.Module):
    """f(coefficient · Σ over 2×2 + bias), one coefficient and one bias a map: (N, C, H, W) to (N, C, H/2, W/2)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.coefficient = nn.Parameter(torch.empty(channels, 1, 1))
        self.bias = nn.Parameter(torch.empty(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the map at half the size."""
        total = 4 * F.avg_pool2d(x, 2)  # (N, C, H/2, W/2), the sum of four; to ONNX divisor_override is lost
        return scaled_tanh(self.coefficient * total + self.bias)


class TableConv2d(nn.Module):
    """A convolution in which output map i takes only the input maps table[i]; no other weights exist.

    `weight` has one kernel for each connection of two maps, in the table's order. One dense PyTorch convolution, with
    zeros for missing connections, is faster than sixteen small ones. (N, C, H, W) to (N, len(table), ...).
    """

    target: Tensor  # output map of each connection
    source: Tensor  # input map of each connection

    def __init__(self, table: Sequence[Sequence[int]], in_channels: int, kernel_size: int) -> None:
        super().__init__()
        pairs = torch.tensor([(i, j) for i, row in enumerate(table) for j in row])  # (connections, 2)
        self.register_buffer("target", pairs[:, 0], persistent=False)
        self.register_buffer("source", pairs[:, 1], persistent=False)
        self.dense_shape = (len(table), in_channels, kernel_size, kernel_size)
        self.weight = nn.Parameter(torch.empty(len(pairs), kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.empty(len(table)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sums, (N, len(table), H − k + 1, W − k + 1)."""
        return F.conv2d(x, self.dense_kernel(), self.bias)

    def dense_kernel(self) -> Tensor:
        """Return the one kernel with its zeros, (len(table), C, k, k)."""
        return self.weight.new_zeros(self.dense_shape).index_put((self.target, self.source), self.weight)


class RadialBasis(nn.Module):
    """y_i = Σ_j (x_j − w_ij)² with fixed codes w (classes, 84): (N, 84) to (N, classes)."""

    codes: Tensor

    def __init__(self, codes: Tensor) -> None:
        super().__init__()
        self.register_buffer("codes", codes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the squared distances to the codes."""
        return (x[:, None] - self.codes).square().sum(2)  # (N, classes, 84) to (N, classes)


class LeNet5(BaseModel):
    """(N, C, 32, 32) images to (N, classes): minus the squared distance to each class's code."""

    takes = (ImageSpec,)
    loss = "map"  # equation 9 of the paper

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.c1 = nn.Conv2d(config.in_channels, 6, kernel_size=5)
        self.s2 = SubSampling(6)
        self.c3 = TableConv2d(C3_TABLE, in_channels=6, kernel_size=5)
        self.s4 = SubSampling(16)
        self.c5 = nn.Conv2d(16, 120, kernel_size=5)
        self.f6 = nn.Linear(120, CODE)
        self.output = RadialBasis(class_codes(config.num_classes))
        self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Draw every weight and bias from ±2.4 / fan-in, the number of inputs of its unit (appendix A)."""
        fan_in = {
            self.c1: 25 * self.config.in_channels,
            self.s2: 4,
            self.s4: 4,
            self.c5: 25 * 16,
            self.f6: 120,
        }
        for layer, inputs in fan_in.items():
            for parameter in layer.parameters():
                parameter.uniform_(-2.4 / inputs, 2.4 / inputs)
        bound = 2.4 / torch.tensor([25.0 * len(maps) for maps in C3_TABLE])  # (16,), of a unit in each map
        self.c3.weight.uniform_(-1, 1).mul_(bound[self.c3.target, None, None])
        self.c3.bias.uniform_(-1, 1).mul_(bound)

    def features(self, x: Tensor) -> Tensor:
        """Return F6, (N, 84), which the output layer compares with the codes."""
        if x.shape[2:] != (32, 32):
            raise InputShapeError(
                f"lenet5 takes images of 32×32 pixels, and these are {x.shape[2]}×{x.shape[3]}: bring them to "
                "image_size=32."
            )
        x = self.s2(scaled_tanh(self.c1(x)))  # (N, 6, 14, 14)
        x = self.s4(scaled_tanh(self.c3(x)))  # (N, 16, 5, 5)
        x = scaled_tanh(self.c5(x)).flatten(1)  # (N, 120)
        return scaled_tanh(self.f6(x))  # (N, 84)

    def distances(self, x: Tensor) -> Tensor:
        """Return the paper's outputs y, (N, classes): squared distances; the smallest is the prediction."""
        y: Tensor = self.output(self.features(x))
        return y

    def forward(self, x: Tensor) -> Tensor:
        """Return −y, (N, classes): the largest is the prediction, as with every other model."""
        return -self.distances(x)

    def connections(self) -> dict[str, int]:
        """Return the number of connections of each layer, as in the paper: units × (inputs of a unit and its bias)."""
        return {
            "C1": 28 * 28 * 6 * (25 * self.config.in_channels + 1),
            "S2": 14 * 14 * 6 * (4 + 1),
            "C3": 10 * 10 * sum(25 * len(maps) + 1 for maps in C3_TABLE),
            "S4": 5 * 5 * 16 * (4 + 1),
            "C5": 120 * (25 * 16 + 1),
            "F6": CODE * (120 + 1),
            "RBF": self.config.num_classes * CODE,
        }


Model = LeNet5

PRESETS = {"lenet5": Config()}

CARD = Card(
    title="Gradient-based learning applied to document recognition",
    authors="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner",
    year=1998,
    link="https://doi.org/10.1109/5.726791",
    family="cnn",
    equation="x = 1.7159 tanh(2a/3), a = W ∗ x + b; y_i = Σ_j (x_j − w_ij)²",
    oracle="the paper's sums, map by map",
    published={"lenet5": Published(parameters=60_000, source="section II.B, the sum over its layers")},
    divergences=(
        Divergence(
            "output",
            paper="distances y: the smallest is the answer",
            here="−y: the largest is the answer",
            common="84 → 10 linear and softmax",
        ),
        Divergence(
            "codes of the classes",
            paper="printed as figure 3 only",
            here="redrawn from it; for other numbers of classes random ±1 from a fixed seed",
        ),
        Divergence(
            "constant j of the criterion",
            paper="positive, value not specified",
            here=f"{RUBBISH:g}, a squared distance, less than any between the codes of two digits",
        ),
        Divergence(
            "pixels",
            paper="−0.1 background, 1.175 ink: mean about 0, variance about 1",
            here="standardized with the mean and standard deviation of the training split",
        ),
        Divergence(
            "optimizer",
            paper="stochastic diagonal Levenberg–Marquardt, one example a step, 20 passes",
            here="mini-batches with the settings of the card",
        ),
        Divergence(
            "C3",
            paper="a table of connections, 1 516 parameters",
            here="the same",
            common="every map sees all six, 2 416 parameters",
        ),
        Divergence(
            "sub-sampling",
            paper="sum of 2×2, trainable coefficient and bias, squashed",
            here="the same",
            common="average or maximum without parameters",
        ),
    ),
    # Shifts by up to two pixels are among the distortions of the paper's second experiment.
    results={
        "lenet5": (
            Result("MNIST", {"error": 0.95}, "test set", "the paper, section III.B"),
            Result("MNIST", {"error": 0.8}, "test set, trained with distortions", "the paper, section III.B"),
        ),
    },
    settings={"lenet5": {"optimizer": "adamw", "lr": 5e-3, "epochs": 20, "batch_size": 64, "crop": 2}},
)
