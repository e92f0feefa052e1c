"""Oracle of Inception-v3: torchvision's network."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.torchvision import torchvision_key
from ..models.inception_v3 import PRESETS, Config, InceptionV3
from . import Oracle, changed, images, torchvision_models


class EqualParts(nn.Module):
    """Auxiliary head of torchvision for a map that is smaller than its windows, with means over 5×5 equal parts."""

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.conv0, self.conv1, self.fc = head.conv0, head.conv1, head.fc

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of a map (N, C, H, W)."""
        rows, columns = (_shares(n).to(x) for n in x.shape[2:])
        x = torch.einsum("nchw,ih,jw->ncij", x, rows, columns)  # (N, C, 5, 5)
        logits: Tensor = self.fc(self.conv1(self.conv0(x)).mean((2, 3)))
        return logits


def _shares(n: int) -> Tensor:
    """Return the share of each of n pixels in each of 5 means, shape (5, n)."""
    weights = torch.zeros(5, n, dtype=torch.float64)
    for i in range(5):
        first, after = math.floor(i * n / 5), math.ceil((i + 1) * n / 5)
        weights[i, first:after] = 1 / (after - first)
    return weights


def torchvision_inception(config: Config) -> Oracle:
    """Build torchvision's network with the widths and stem of `config`.

    A narrow network is compared on images of the published size. A wide one is compared on smaller images to save time,
    and torchvision's auxiliary head then gets equal parts instead of windows.
    """
    inception = torchvision_models("inception")

    def conv(in_channels: int, out_channels: int, **settings: Any) -> nn.Module:
        inputs = config.in_channels if in_channels == 3 else config.scaled(in_channels)
        block: nn.Module = inception.BasicConv2d(inputs, config.scaled(out_channels), **settings)
        return block

    modules = [getattr(inception, f"Inception{name}") for name in ("A", "B", "C", "D", "E", "Aux")]
    network = inception.Inception3(
        num_classes=config.num_classes,
        aux_logits=config.auxiliary,
        inception_blocks=[conv, *(functools.partial(module, conv_block=conv) for module in modules)],
        init_weights=False,
        **changed(config, PRESETS["inception-v3"], dropout="dropout"),
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
        network.AuxLogits = EqualParts(network.AuxLogits)
    with torch.device("meta"):
        key_map = {key: torchvision_key("inception-v3", key) for key in InceptionV3(config).state_dict()}
    return Oracle(network, images(2, config.in_channels, *size), key_map)


ORACLES = dict.fromkeys(PRESETS, torchvision_inception)
