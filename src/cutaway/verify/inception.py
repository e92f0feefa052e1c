"""Oracles of GoogLeNet and Inception-v3: torchvision's networks, and a plain one for GoogLeNet as published."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import googlenet, inception_v3
from . import Oracle, OracleMissing, changed, images
from .libraries import torchvision_key_map, torchvision_models


class GoogLeNetOutputs(nn.Module):
    """Network of torchvision with outputs in our order.

    Logits are followed by those of the auxiliary heads, the shallowest first.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the logits (N, classes) of images (N, C, H, W); in training also those of auxiliary heads."""
        answers = self.network(x)
        if isinstance(answers, Tensor):
            return answers
        return answers.logits, answers.aux_logits1, answers.aux_logits2


def _scaled_conv(library: Any, config: googlenet.Config | inception_v3.Config) -> Callable[..., nn.Module]:
    """Return a function that builds torchvision's convolution with channels in the widths of `config`."""

    def conv(in_channels: int, out_channels: int, **settings: Any) -> nn.Module:
        inputs = config.in_channels if in_channels == 3 else config.scaled(in_channels)
        block: nn.Module = library.BasicConv2d(inputs, config.scaled(out_channels), **settings)
        return block

    return conv


def torchvision_googlenet(config: googlenet.Config) -> Oracle:
    """Build torchvision's network with the widths and windows of `config`."""
    library = torchvision_models("googlenet")
    conv = _scaled_conv(library, config)
    module = library.GoogLeNet(
        num_classes=config.num_classes,
        aux_logits=config.auxiliary,
        init_weights=False,
        blocks=[
            conv,
            functools.partial(library.Inception, conv_block=conv),
            functools.partial(library.InceptionAux, conv_block=conv),
        ],
        **changed(config, googlenet.PRESETS["googlenet"], dropout="dropout"),
    )
    module.fc = nn.Linear(config.scaled(1024), config.num_classes)
    if config.auxiliary:
        for head in (module.aux1, module.aux2):
            head.fc1 = nn.Linear(config.scaled(2048), config.scaled(1024))
            head.fc2 = nn.Linear(config.scaled(1024), config.num_classes)
    if config.stem == "small":
        module.conv1 = conv(3, 64, kernel_size=3, padding=1)
        module.maxpool1 = nn.Identity()
    if config.large_kernel == 5:
        for part in module.modules():
            if isinstance(part, library.Inception):
                small = part.branch3[1].conv
                part.branch3[1] = library.BasicConv2d(small.in_channels, small.out_channels, kernel_size=5, padding=2)
    key_map = torchvision_key_map("googlenet", googlenet.GoogLeNet, config, "network.")
    # The last map of such images is 2×3. With one pixel, normalization would see only two values of each channel.
    size = (50, 66) if config.stem == "imagenet" else (12, 18)
    return Oracle(GoogLeNetOutputs(module), images(2, config.in_channels, *size), key_map)


# The paper's table 1: 1×1, 3×3 reduce, 3×3, 5×5 reduce, 5×5, pool proj. A star: an auxiliary head follows.
PAPER_TABLE = """
    3a    64   96  128  16   32   32
    3b   128  128  192  32   96   64
    max    3
    4a*  192   96  208  16   48   64
    4b   160  112  224  24   64   64
    4c   128  128  256  24   64   64
    4d*  112  144  288  32   64   64
    4e   256  160  320  32  128  128
    max    2
    5a   256  160  320  32  128  128
    5b   384  192  384  48  128  128
"""
ROWS = [line.split() for line in PAPER_TABLE.split("\n") if line.strip()]


class PlainGoogLeNet(nn.Module):
    """Published network row by row, with one list of weights. A convolution is a product with every window."""

    def __init__(self, config: googlenet.Config) -> None:
        super().__init__()
        self.config = config
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        c, second = config.scaled(64), config.scaled(192)
        stem = 7 if config.stem == "imagenet" else 3
        self._add((c, config.in_channels, stem, stem), (c, c, 1, 1), (second, c, 3, 3))
        c, seen = second, []  # channels, and those of the auxiliary heads
        for name, *widths in ROWS:
            if name != "max":
                n1, r3, n3, r5, n5, pool = (config.scaled(int(n)) for n in widths)
                k = config.large_kernel
                self._add((n1, c, 1, 1), (r3, c, 1, 1), (n3, r3, 3, 3), (r5, c, 1, 1), (n5, r5, k, k), (pool, c, 1, 1))
                c = n1 + n3 + n5 + pool
                seen += [c] if name.endswith("*") else []
        self.heads = len(self.weights)  # index of the first layer of the first head
        reduced, units = config.scaled(128), config.scaled(1024)
        for channels in seen if config.auxiliary else []:
            self._add((reduced, channels, 1, 1), (units, 16 * reduced), (config.num_classes, units))
        self._add((config.num_classes, c))

    def _add(self, *shapes: tuple[int, ...]) -> None:
        for shape in shapes:
            self.weights.append(nn.Parameter(torch.zeros(shape)))
            self.biases.append(nn.Parameter(torch.zeros(shape[0])))

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the logits (N, classes) of images (N, C, H, W); in training also those of auxiliary heads."""
        layers = iter(range(self.heads))

        def rectified(x: Tensor, stride: int = 1) -> Tensor:
            """Apply the next convolution and ReLU."""
            return torch.clamp(self._windows(next(layers), x, stride), min=0)

        if self.config.stem == "imagenet":
            x = _max_pool(rectified(x, stride=2), 3, 2)
        else:
            x = rectified(x)
        x = rectified(rectified(_lrn(x)))
        x = _max_pool(_lrn(x), 3, 2)
        auxiliary: list[Tensor] = []
        for name, *numbers in ROWS:
            if name == "max":
                x = _max_pool(x, int(numbers[0]), 2)
                continue
            ones, threes, fives = rectified(x), rectified(rectified(x)), rectified(rectified(x))
            around = F.pad(x, (1, 1, 1, 1), value=-torch.inf)
            x = torch.cat([ones, threes, fives, rectified(_max_pool(around, 3, 1))], dim=1)
            if name.endswith("*") and self.config.auxiliary and self.training:
                auxiliary.append(self._head(self.heads + 3 * len(auxiliary), x))
        x = F.dropout(x.mean((2, 3)), self.config.dropout, self.training)
        logits = self._full(len(self.weights) - 1, x)
        return (logits, *auxiliary) if auxiliary else logits

    def _windows(self, i: int, x: Tensor, stride: int = 1) -> Tensor:
        """Apply layer i to every window of a map that keeps its size at stride 1."""
        weight, k = self.weights[i], self.weights[i].shape[-1]
        windows = F.pad(x, [k // 2] * 4).unfold(2, k, stride).unfold(3, k, stride)  # (N, C, H', W', k, k)
        result: Tensor = torch.einsum("nchwij,ocij->nohw", windows, weight) + self.biases[i][:, None, None]
        return result

    def _full(self, i: int, x: Tensor) -> Tensor:
        result: Tensor = torch.einsum("nc,oc->no", x, self.weights[i]) + self.biases[i]
        return result

    def _head(self, i: int, x: Tensor) -> Tensor:
        """Apply the auxiliary head of layers i, i + 1 and i + 2."""
        height, width = x.shape[2:]
        published = self.config.auxiliary_pool == "5x5" and {height, width} <= {14, 15, 16}
        windows = [(3 * i, 3 * i + 5) for i in range(4)]
        rows, columns = (_shares(windows if published else _equal_parts(n, 4), n) for n in (height, width))
        x = torch.einsum("nchw,ih,jw->ncij", x, rows.to(x), columns.to(x))  # (N, C, 4, 4)
        x = torch.clamp(self._windows(i, x), min=0).reshape(len(x), -1)
        x = F.dropout(torch.clamp(self._full(i + 1, x), min=0), 0.7, self.training)
        return self._full(i + 2, x)


def _equal_parts(n: int, count: int) -> list[tuple[int, int]]:
    """Return the first pixel and the one after the last of `count` equal parts of n pixels."""
    return [(math.floor(i * n / count), math.ceil((i + 1) * n / count)) for i in range(count)]


def _shares(windows: list[tuple[int, int]], n: int) -> Tensor:
    """Return the share of each of n pixels in the mean over each window, shape (windows, n)."""
    weights = torch.zeros(len(windows), n, dtype=torch.float64)
    for row, (first, after) in zip(weights, windows):
        row[first:after] = 1 / (after - first)
    return weights


def _max_pool(x: Tensor, side: int, step: int) -> Tensor:
    """Apply max pooling with windows of side×side. The last window of a row or column may extend beyond the map."""
    height, width = (math.ceil((n - side) / step) * step + side - n for n in x.shape[2:])
    x = F.pad(x, (0, width, 0, height), value=-torch.inf)
    return x.unfold(2, side, step).unfold(3, side, step).amax((4, 5))


def _lrn(x: Tensor) -> Tensor:
    """Apply local response normalization: the sum over five channels is a product with a band matrix of ones."""
    channel = torch.arange(x.shape[1])
    band = (channel[:, None] - channel).abs() <= 2
    total = torch.einsum("nchw,cd->ndhw", x**2, band.to(x))
    return x * (1 + 1e-4 / 5 * total) ** -0.75


def plain_googlenet(config: googlenet.Config) -> Oracle:
    """Build the plain implementation. Its weights are in our order."""
    keys = _googlenet_keys(config)
    key_map = {key: f"weights.{i}" for i, key in enumerate(k for k in keys if k.endswith("weight"))}
    key_map |= {key: f"biases.{i}" for i, key in enumerate(k for k in keys if k.endswith("bias"))}
    # From 223 pixels on the maps of the auxiliary heads have 14 to 16 pixels, for which the paper's windows give 4×4.
    size = (223, 240) if config.stem == "imagenet" else (30, 36)
    return Oracle(PlainGoogLeNet(config), images(2, config.in_channels, *size), key_map)


def _googlenet_keys(config: googlenet.Config) -> list[str]:
    with torch.device("meta"):
        return list(googlenet.GoogLeNet(config).state_dict())


def googlenet_oracle(config: googlenet.Config) -> Oracle:
    """Build torchvision's network for batch normalization, otherwise the plain one."""
    if config.norm == "response":
        return plain_googlenet(config)
    if config.auxiliary_pool == "equal":
        return torchvision_googlenet(config)
    raise OracleMissing("torchvision's auxiliary heads of GoogLeNet look at equal parts, not at windows of 5×5.")


class EqualPartsHead(nn.Module):
    """Auxiliary head of torchvision for a map that is smaller than its windows, with means over 5×5 equal parts."""

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.conv0, self.conv1, self.fc = head.conv0, head.conv1, head.fc

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of a map (N, C, H, W)."""
        rows, columns = (_shares(_equal_parts(n, 5), n).to(x) for n in x.shape[2:])
        x = torch.einsum("nchw,ih,jw->ncij", x, rows, columns)  # (N, C, 5, 5)
        logits: Tensor = self.fc(self.conv1(self.conv0(x)).mean((2, 3)))
        return logits


def torchvision_inception(config: inception_v3.Config) -> Oracle:
    """Build torchvision's network with the widths and stem of `config`.

    A narrow network is compared on images of the published size. A wide one is compared on smaller images to save time,
    and torchvision's auxiliary head then gets equal parts instead of windows.
    """
    library = torchvision_models("inception")
    conv = _scaled_conv(library, config)
    modules = [getattr(library, f"Inception{name}") for name in ("A", "B", "C", "D", "E", "Aux")]
    network = library.Inception3(
        num_classes=config.num_classes,
        aux_logits=config.auxiliary,
        inception_blocks=[conv, *(functools.partial(module, conv_block=conv) for module in modules)],
        init_weights=False,
        **changed(config, inception_v3.PRESETS["inception-v3"], dropout="dropout"),
    )
    network.fc = nn.Linear(config.scaled(2048), config.num_classes)
    if config.auxiliary:
        network.AuxLogits.fc = nn.Linear(config.scaled(768), config.num_classes)
    if config.stem == "small":
        network.Conv2d_1a_3x3 = conv(3, 32, kernel_size=3, padding=1)
        network.Conv2d_2a_3x3 = conv(32, 32, kernel_size=3, padding=1)
        network.maxpool1 = nn.Identity()
        network.Conv2d_4a_3x3 = conv(80, 192, kernel_size=3, padding=1)
        size = (32, 41)
    else:
        size = (299, 299) if config.width <= 4 else (123, 139)
    if config.auxiliary and size[0] < 299:
        network.AuxLogits = EqualPartsHead(network.AuxLogits)
    key_map = torchvision_key_map("inception-v3", inception_v3.InceptionV3, config)
    return Oracle(network, images(2, config.in_channels, *size), key_map)


ORACLES = {
    **dict.fromkeys(googlenet.PRESETS, googlenet_oracle),
    **dict.fromkeys(inception_v3.PRESETS, torchvision_inception),
}

REDUCED = {
    # googlenet is compared completely; the published one needs large images and has an eighth of the channels.
    "googlenet-2014": dataclasses.replace(googlenet.PRESETS["googlenet-2014"], width=8),
}
