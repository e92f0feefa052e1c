"""Oracles of AlexNet: torchvision's network, and a plain implementation, tower by tower, of features that it lacks."""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoints.torchvision import torchvision_key
from ..models.alexnet import PRESETS, Config
from . import Oracle, changed, images, torchvision_models

LAYERS = ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "fc8")


def torchvision_alexnet(config: Config) -> Oracle:
    """Build torchvision's network. Images are small and not square, so the last map of 2×3 is spread over the grid."""
    alexnet = torchvision_models("alexnet").alexnet
    with torch.device("meta"):
        module: nn.Module = alexnet(
            num_classes=config.num_classes, **changed(config, PRESETS["alexnet"], dropout="dropout")
        )
    keys = (f"{layer}.{part}" for layer in LAYERS for part in ("weight", "bias"))
    key_map = {key: torchvision_key("alexnet", key) for key in keys}
    return Oracle(module.to_empty(device="cpu"), images(2, 3, 100, 140), key_map)


class PlainAlexNet(nn.Module):
    """Network as two lists of weights and biases, in the order of the papers."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        first, second, third, fourth, fifth = config.widths
        towers, side = (2, 6) if config.form == "2012" else (1, 6)
        shapes: list[tuple[int, ...]] = [
            (first, config.in_channels, 11, 11),
            (second, first // towers, 5, 5),
            (third, second, 3, 3),
            (fourth, third // towers, 3, 3),
            (fifth, fourth // towers, 3, 3),
        ]
        if config.stem == "small":
            shapes[0], side = (first, config.in_channels, 3, 3), 3
        shapes += [
            (config.hidden_dim, fifth * side**2),
            (config.hidden_dim,) * 2,
            (config.num_classes, config.hidden_dim),
        ]
        self.side = side
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(shape[0])) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        two = self.config.form == "2012"
        if self.config.stem == "small":
            x = self._convolution(0, [x], padding=1)
        else:
            x = self._convolution(0, [x], stride=4, padding=0 if two else 2)
        x = torch.clamp(x, min=0)
        x = _overlapping_max(_lrn(x) if two else x)
        x = torch.clamp(self._convolution(1, _towers(x, two), padding=2), min=0)
        x = _overlapping_max(_lrn(x) if two else x)
        x = torch.clamp(self._convolution(2, [x], padding=1), min=0)
        x = torch.clamp(self._convolution(3, _towers(x, two), padding=1), min=0)
        x = _overlapping_max(torch.clamp(self._convolution(4, _towers(x, two), padding=1), min=0))
        x = _grid_of_means(x, self.side)  # (N, C, side, side)
        x = x.reshape(len(x), -1)
        p = self.config.dropout
        if two:
            for i in (5, 6):
                x = F.dropout(torch.clamp(self._full(i, x), min=0), p, self.training)
        else:
            for i in (5, 6):
                x = torch.clamp(self._full(i, F.dropout(x, p, self.training)), min=0)
        return self._full(7, x)

    def _convolution(self, i: int, towers: list[Tensor], stride: int = 1, padding: int = 0) -> Tensor:
        """Apply convolution i, each tower with its own kernels, and concatenate the towers."""
        kernels, biases = self.weights[i].chunk(len(towers)), self.biases[i].chunk(len(towers))
        parts = [F.conv2d(x, k, b, stride, padding) for x, k, b in zip(towers, kernels, biases)]
        return torch.cat(parts, dim=1)

    def _full(self, i: int, x: Tensor) -> Tensor:
        y: Tensor = torch.einsum("ni,oi->no", x, self.weights[i]) + self.biases[i]
        return y


def _towers(x: Tensor, two: bool) -> list[Tensor]:
    half = x.shape[1] // 2
    return [x[:, :half], x[:, half:]] if two else [x]


def _lrn(a: Tensor) -> Tensor:
    """Apply local response normalization, section 3.3 of the paper, to one map after another."""
    count, n = a.shape[1], 5
    maps = []
    for i in range(count):
        first, last = max(0, i - n // 2), min(count - 1, i + n // 2)
        total = (a[:, first : last + 1] ** 2).sum(dim=1)
        maps.append(a[:, i] / (2 + 1e-4 * total) ** 0.75)
    return torch.stack(maps, dim=1)


def _overlapping_max(x: Tensor) -> Tensor:
    """Apply max pooling with 3×3 windows and stride 2."""
    return x.unfold(2, 3, 2).unfold(3, 3, 2).amax((4, 5))


def _grid_of_means(x: Tensor, side: int) -> Tensor:
    """Average over a grid. Cell i covers ⌊i n / side⌋ to ⌈(i + 1) n / side⌉ of n pixels."""

    def cells(n: int) -> list[slice]:
        return [slice(i * n // side, math.ceil((i + 1) * n / side)) for i in range(side)]

    rows = [[x[:, :, r, c].mean((2, 3)) for c in cells(x.shape[3])] for r in cells(x.shape[2])]
    return torch.stack([torch.stack(row, dim=2) for row in rows], dim=2)


def plain_alexnet(config: Config) -> Oracle:
    """Build the plain implementation and the key map from our weights."""
    key_map = {f"{layer}.weight": f"weights.{i}" for i, layer in enumerate(LAYERS)}
    key_map |= {f"{layer}.bias": f"biases.{i}" for i, layer in enumerate(LAYERS)}
    size = (2 * config.least_size - 3, 2 * config.least_size + 21)
    return Oracle(PlainAlexNet(config), images(2, config.in_channels, *size), key_map)


def _build(config: Config) -> Oracle:
    """Build torchvision's network if it has this one, otherwise the plain one."""
    if config == dataclasses.replace(PRESETS["alexnet"], num_classes=config.num_classes, dropout=config.dropout):
        return torchvision_alexnet(config)
    return plain_alexnet(config)


ORACLES = dict.fromkeys(PRESETS, _build)

# alexnet is compared completely; the original with fewer maps and units of the same kinds.
REDUCED = {
    "alexnet-2012": dataclasses.replace(
        PRESETS["alexnet-2012"], widths=(12, 16, 24, 24, 16), hidden_dim=32, num_classes=10
    )
}
