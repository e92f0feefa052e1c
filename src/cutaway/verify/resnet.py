"""Oracles of ResNet: torchvision's networks for ImageNet, and a different plain implementation for CIFAR."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.resnet import PRESETS, Config, ResNet
from . import Oracle, OracleMissing, images, torchvision_models
from .normalized import batch_normalized


def torchvision_resnet(config: Config) -> Oracle:
    """Build torchvision's network.

    Strides of bottlenecks move to the first 1×1 convolution if `config` has them there.
    """
    resnet = torchvision_models("resnet")
    block: Any = resnet.BasicBlock if config.block == "basic" else resnet.Bottleneck
    module = resnet.ResNet(block, list(config.layers), num_classes=config.num_classes)
    if config.stride_on == "1x1":
        for part in module.modules():
            if isinstance(part, resnet.Bottleneck):
                part.conv1.stride, part.conv2.stride = part.conv2.stride, part.conv1.stride
    return Oracle(module, images(2, 3, 48, 48))


class FlatResNet(nn.Module):
    """CIFAR network as two flat lists, of kernels and of normalizations, in the order of use.

    Shortcut A is a convolution with a fixed kernel, the identity between rows of zeros: the product with W_s of
    equation 2, where the model slices and pads. Without shortcuts a block is its two layers.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.kernels = nn.ParameterList()
        self.scales = nn.ParameterList()
        self.shifts = nn.ParameterList()
        self._layer(config.in_channels, config.width, 3)
        channels = config.width
        for stage, count in enumerate(config.layers):
            for block in range(count):
                width = config.width * 2**stage
                self._layer(channels, width, 3)
                self._layer(width, width, 3)
                if config.shortcut == "B" and stage > 0 and block == 0:
                    self._layer(channels, width, 1)
                channels = width
        self.head = nn.Parameter(torch.zeros(config.num_classes, channels))
        self.head_bias = nn.Parameter(torch.zeros(config.num_classes))

    def _layer(self, in_channels: int, out_channels: int, side: int) -> None:
        i = len(self.kernels)
        self.kernels.append(nn.Parameter(torch.zeros(out_channels, in_channels, side, side)))
        self.scales.append(nn.Parameter(torch.ones(out_channels)))
        self.shifts.append(nn.Parameter(torch.zeros(out_channels)))
        self.register_buffer(f"mean{i}", torch.zeros(out_channels))
        self.register_buffer(f"variance{i}", torch.ones(out_channels))
        self.register_buffer(f"batches{i}", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        i = 0

        def layer(x: Tensor, stride: int = 1) -> Tensor:
            """Apply convolution and normalization number i, the latter by its definition."""
            nonlocal i
            kernel = self.kernels[i]
            x = F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
            mean, variance = self.get_buffer(f"mean{i}"), self.get_buffer(f"variance{i}")
            x = batch_normalized(x, mean, variance, self.scales[i], self.shifts[i], self.training)
            i += 1
            return x

        x = torch.clamp(layer(x), min=0)
        for stage, count in enumerate(self.config.layers):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                y = layer(torch.clamp(layer(x, stride), min=0))
                if self.config.shortcut == "none":
                    x = torch.clamp(y, min=0)
                    continue
                if stride == 2:
                    x = layer(x, stride) if self.config.shortcut == "B" else self._shortcut_a(x, y.shape[1])
                x = torch.clamp(x + y, min=0)
        return torch.einsum("nchw,kc->nk", x, self.head) / (x.shape[2] * x.shape[3]) + self.head_bias

    def _shortcut_a(self, x: Tensor, channels: int) -> Tensor:
        """Apply shortcut A."""
        kernel = torch.zeros(channels, x.shape[1], 1, 1, dtype=x.dtype)
        first = (channels - x.shape[1]) // 2
        for c in range(x.shape[1]):
            kernel[first + c, c] = 1
        return F.conv2d(x, kernel, stride=2)


def flat_resnet(config: Config) -> Oracle:
    """Build the plain implementation and the key map from our weights."""
    with torch.device("meta"):
        names = list(ResNet(config).state_dict())
    key_map = {"fc.weight": "head", "fc.bias": "head_bias"}
    kernels = [k for k in names if k.endswith("weight") and ("conv" in k or k.endswith("downsample.0.weight"))]
    key_map |= {name: f"kernels.{i}" for i, name in enumerate(kernels)}
    parts = {"weight": "scales.", "bias": "shifts.", "running_mean": "mean"}
    parts |= {"running_var": "variance", "num_batches_tracked": "batches"}
    for ending, part in parts.items():
        normalizations = [
            k for k in names if k.endswith(ending) and (".bn" in k or k[:2] == "bn" or "downsample.1" in k)
        ]
        key_map |= {name: f"{part}{i}" for i, name in enumerate(normalizations)}
    return Oracle(FlatResNet(config), images(2, config.in_channels, 16, 16), key_map)


def _build(config: Config) -> Oracle:
    """Build torchvision's network if it has this stem, width and shortcut, otherwise the plain one."""
    like_torchvision = (config.stem, config.width, config.shortcut, config.in_channels, len(config.layers))
    if like_torchvision == ("imagenet", 64, "B", 3, 4):
        return torchvision_resnet(config)
    if config.stem == "cifar" and config.block == "basic":
        return flat_resnet(config)
    raise OracleMissing("neither torchvision nor the plain CIFAR network has a residual network of these settings.")


ORACLES = dict.fromkeys(PRESETS, _build)

# resnet18 and resnet20 are compared completely; the others have more blocks of the same kinds.
REDUCED = {
    name: dataclasses.replace(config, layers=(2, 2, 1, 1) if config.stem == "imagenet" else (2, 2, 2))
    for name, config in PRESETS.items()
    if name not in ("resnet18", "resnet20")
}
