"""Oracles of small convolutional networks: LeNet-5 by the sums of its paper, the others as `torch.nn.Sequential`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import conv4, lenet5, lenet5_modern, simplecnn
from . import Oracle, images


class PaperLeNet5(nn.Module):
    """LeNet-5 one map at a time, as in section II.B of the paper. Slow and plain."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        shapes = {
            "c1_kernel": (6, in_channels, 5, 5),
            "c1_bias": (6,),
            "s2_coefficient": (6, 1, 1),
            "s2_bias": (6, 1, 1),
            "c3_kernel": (60, 5, 5),
            "c3_bias": (16,),
            "s4_coefficient": (16, 1, 1),
            "s4_bias": (16, 1, 1),
            "c5_kernel": (120, 16, 5, 5),
            "c5_bias": (120,),
            "f6_weight": (84, 120),
            "f6_bias": (84,),
        }
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        self.register_buffer("codes", torch.zeros(num_classes, 84))

    @staticmethod
    def table() -> list[list[int]]:
        """Return the maps of S2 that each map of C3 takes.

        The first six take every contiguous three (6 wraps around to 0), the next six every contiguous four, the next
        three some discontinuous four, and the last one all.
        """
        threes = [sorted((first + k) % 6 for k in range(3)) for first in range(6)]
        fours = [sorted((first + k) % 6 for k in range(4)) for first in range(6)]
        return [*threes, *fours, [0, 1, 3, 4], [1, 2, 4, 5], [0, 2, 3, 5], [0, 1, 2, 3, 4, 5]]

    def forward(self, x: Tensor) -> Tensor:
        """Return minus the distances, shape (N, classes), of images (N, C, 32, 32)."""
        p = dict(self.named_parameters())
        c1 = []  # six maps (N, 28, 28)
        for kernel, bias in zip(p["c1_kernel"], p["c1_bias"]):
            c1.append(_squash(F.conv2d(x, kernel[None])[:, 0] + bias))
        s2 = _subsample(c1, p["s2_coefficient"], p["s2_bias"])  # six maps (N, 14, 14)
        c3 = []  # sixteen maps (N, 10, 10)
        connection = 0
        for sources, bias in zip(self.table(), p["c3_bias"]):
            total = bias
            for source in sources:
                kernel = p["c3_kernel"][connection]
                total = total + F.conv2d(s2[source][:, None], kernel[None, None])[:, 0]
                connection += 1
            c3.append(_squash(total))
        s4 = _subsample(c3, p["s4_coefficient"], p["s4_bias"])  # sixteen maps (N, 5, 5)
        c5 = _squash(torch.einsum("nchw,ochw->no", torch.stack(s4, dim=1), p["c5_kernel"]) + p["c5_bias"])
        f6 = _squash(c5 @ p["f6_weight"].T + p["f6_bias"])  # (N, 84)
        distances = [((f6 - code) ** 2).sum(dim=1) for code in self.get_buffer("codes")]
        return -torch.stack(distances, dim=1)


def _squash(a: Tensor) -> Tensor:
    return 1.7159 * torch.tanh(a * 2 / 3)


def _subsample(maps: list[Tensor], coefficients: Tensor, biases: Tensor) -> list[Tensor]:
    """Halve each map: the sum of four neighbours times the map's coefficient, plus its bias, squashed."""
    halved = []
    for x, coefficient, bias in zip(maps, coefficients, biases):
        total = x[:, 0::2, 0::2] + x[:, 0::2, 1::2] + x[:, 1::2, 0::2] + x[:, 1::2, 1::2]
        halved.append(_squash(coefficient * total + bias))
    return halved


def paper_lenet5(config: lenet5.Config) -> Oracle:
    """Build LeNet-5 by the sums of the paper."""
    key_map = {
        "c1.weight": "c1_kernel",
        "c1.bias": "c1_bias",
        "s2.coefficient": "s2_coefficient",
        "s2.bias": "s2_bias",
        "c3.weight": "c3_kernel",
        "c3.bias": "c3_bias",
        "s4.coefficient": "s4_coefficient",
        "s4.bias": "s4_bias",
        "c5.weight": "c5_kernel",
        "c5.bias": "c5_bias",
        "f6.weight": "f6_weight",
        "f6.bias": "f6_bias",
        "output.codes": "codes",
    }
    module = PaperLeNet5(config.in_channels, config.num_classes)
    return Oracle(module, images(3, config.in_channels, 32, 32), key_map)


def sequential_lenet5(config: lenet5_modern.Config) -> Oracle:
    """Build a sequence of PyTorch's layers."""
    side = ((config.image_size - 4) // 2 - 4) // 2
    module = nn.Sequential(
        nn.Conv2d(config.in_channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * side**2, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, config.num_classes),
    )
    key_map = _keys(module, {"c1": 0, "c3": 3, "c5": 7, "f6": 9, "head": 11})
    return Oracle(module, images(3, config.in_channels, config.image_size, config.image_size), key_map)


def sequential_cnn(config: simplecnn.Config) -> Oracle:
    """Build a sequence of PyTorch's layers."""
    first, second = config.widths
    module = nn.Sequential(
        nn.Conv2d(config.in_channels, first, 3, padding="same", bias=False),
        nn.BatchNorm2d(first),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 3, padding="same", bias=False),
        nn.BatchNorm2d(second),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * second, config.num_classes),
    )
    key_map = _keys(module, {"conv1": 0, "bn1": 1, "conv2": 4, "bn2": 5, "head": 9})
    return Oracle(module, images(3, config.in_channels, 19, 12), key_map)


def sequential_conv4(config: conv4.Config) -> Oracle:
    """Build a sequence of PyTorch's layers for 28×28 pixels."""
    layers: list[nn.Module] = []
    strided = config.downsampling == "stride"
    for inputs in (config.in_channels, *3 * (config.width,)):
        layers += [nn.Conv2d(inputs, config.width, 3, 2 if strided else 1, 1), nn.BatchNorm2d(config.width), nn.ReLU()]
        layers.append(nn.Identity() if strided else nn.MaxPool2d(2))
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(config.width, config.num_classes))
    places = {f"convs.{i}": 4 * i for i in range(4)} | {f"norms.{i}": 4 * i + 1 for i in range(4)} | {"head": 18}
    return Oracle(module, images(3, config.in_channels, 28, 28), _keys(module, places))


def _keys(module: nn.Sequential, places: dict[str, int]) -> dict[str, str]:
    """Return the map from our state-dict keys to those of the sequence.

    `places` has the index in the sequence of each of our layers.
    """
    return {f"{name}.{key}": f"{i}.{key}" for name, i in places.items() for key in module[i].state_dict()}


ORACLES = {"lenet5": paper_lenet5, "lenet5-modern": sequential_lenet5, "simplecnn": sequential_cnn} | dict.fromkeys(
    conv4.PRESETS, sequential_conv4
)
