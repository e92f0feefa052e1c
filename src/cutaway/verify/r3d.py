"""Oracle of R3D: torchvision's network, one video at a time if lengths differ."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.torchvision import torchvision_key
from ..models.r3d import PRESETS, R3D, Config
from . import Oracle, torchvision_models


class FramesFirst(nn.Module):
    """Network of torchvision, which has channels before frames, with our stem and channels."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        library: Any = torchvision_models("video.resnet")
        self.net: Any = library.VideoResNet(
            library.BasicBlock, [library.Conv3DSimple] * 4, list(config.layers), library.BasicStem, config.num_classes
        )
        narrow = config.width / 64
        for module in self.net.modules():  # its widths are fixed
            for name, child in module.named_children():
                if isinstance(child, nn.Conv3d):
                    module._modules[name] = _narrow(child, narrow)
                elif isinstance(child, nn.BatchNorm3d):
                    module._modules[name] = nn.BatchNorm3d(round(child.num_features * narrow))
        side, width = {"r3d": 7, "small": 3}[config.stem], config.width
        self.net.stem[0] = nn.Conv3d(
            config.in_channels, width, (3, side, side), (1, 2, 2), (1, side // 2, side // 2), bias=False
        )
        self.net.fc = nn.Linear(8 * width, config.num_classes)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the logits (N, classes) of videos (N, T, C, H, W) without padding."""
        logits: Tensor = self.net(x.transpose(1, 2))
        return logits


def _narrow(conv: nn.Conv3d, times: float) -> nn.Conv3d:
    """Return the same convolution with a fraction of the channels."""
    settings: Any = {"kernel_size": conv.kernel_size, "stride": conv.stride, "padding": conv.padding, "bias": False}
    return nn.Conv3d(max(1, round(conv.in_channels * times)), round(conv.out_channels * times), **settings)


def torchvision_r3d(config: Config) -> Oracle:
    """Build torchvision's network with four stages."""

    def videos(generator: torch.Generator) -> tuple[Tensor, ...]:
        x = torch.randn(3, 5, config.in_channels, 24, 19, generator=generator, dtype=torch.float64)
        return x, torch.ones(3, 5, dtype=torch.bool)

    with torch.device("meta"):
        key_map = {key: f"net.{torchvision_key('r3d-18', key)}" for key in R3D(config).state_dict()}
    return Oracle(FramesFirst(config), videos, key_map)


ORACLES = dict.fromkeys(PRESETS, torchvision_r3d)
REDUCED = {"r3d-18": dataclasses.replace(PRESETS["r3d-18"], width=16, num_classes=10)}
