"""Oracle of the fast CIFAR-10 network, written from its definitions with a flat list of kernels.

A convolution is a matrix product with unfolded patches, pooling takes the maximum of blocks, and normalization and GELU
are written out.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.airbench import PRESETS, Config
from . import Oracle, images


class FlatAirbench(nn.Module):
    """Network as a flat list of kernels with their normalization parameters.

    The whitening kernel is followed by two kernels for each group.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        patch = 4 * config.in_channels
        self.register_buffer("whitening", torch.zeros(2 * patch, config.in_channels, 2, 2))
        self.first_bias = nn.Parameter(torch.zeros(2 * patch))
        self.kernels, self.shifts = nn.ParameterList(), nn.ParameterList()
        channels = 2 * patch
        for width in (width for width in config.widths for _ in range(2)):
            i = len(self.kernels)
            self.kernels.append(nn.Parameter(torch.zeros(width, channels, 3, 3)))
            self.shifts.append(nn.Parameter(torch.zeros(width)))
            for name, value in (("scale", 1.0), ("mean", 0.0), ("variance", 1.0)):
                self.register_buffer(f"{name}{i}", torch.full((width,), value))
            self.register_buffer(f"batches{i}", torch.tensor(0))
            channels = width
        self.head = nn.Parameter(torch.zeros(config.num_classes, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        x = _gelu(_correlate(x, self.get_buffer("whitening")) + self.first_bias[:, None, None])
        for i, kernel in enumerate(self.kernels):
            x = _correlate(F.pad(x, (1, 1, 1, 1)), kernel)
            if i % 2 == 0:
                height, width = x.shape[2] // 2, x.shape[3] // 2
                blocks = x[:, :, : 2 * height, : 2 * width].reshape(*x.shape[:2], height, 2, width, 2)
                x = blocks.permute(0, 1, 2, 4, 3, 5).flatten(4).max(4).values
            x = _gelu(self._normalized(x, i) + self.shifts[i][:, None, None])
        return x.flatten(2).max(2).values @ self.head.T / 9

    def _normalized(self, x: Tensor, i: int) -> Tensor:
        mean, variance = self.get_buffer(f"mean{i}"), self.get_buffer(f"variance{i}")
        if self.training:
            values = x.transpose(0, 1).flatten(1)  # (C, N·H·W)
            mean.mul_(0.6).add_(values.mean(1).detach(), alpha=0.4)
            variance.mul_(0.6).add_(values.var(1).detach(), alpha=0.4)
            mean, variance = values.mean(1), values.var(1, correction=0)
        return (x - mean[:, None, None]) / torch.sqrt(variance[:, None, None] + 1e-12)


def _correlate(x: Tensor, kernel: Tensor) -> Tensor:
    height, width = x.shape[2] - kernel.shape[2] + 1, x.shape[3] - kernel.shape[3] + 1
    products = kernel.flatten(1) @ F.unfold(x, kernel.shape[2:])
    return products.view(len(x), len(kernel), height, width)


def _gelu(z: Tensor) -> Tensor:
    return z * (1 + torch.erf(z / math.sqrt(2))) / 2


def flat_airbench(config: Config) -> Oracle:
    """Build the plain implementation and the key map from our weights."""
    key_map = {"whiten.weight": "whitening", "whiten.bias": "first_bias", "head.weight": "head"}
    parts = {"weight": "scale", "bias": "shifts.", "running_mean": "mean", "running_var": "variance"}
    parts |= {"num_batches_tracked": "batches"}
    for i in range(2 * len(config.widths)):
        group, place = f"groups.{i // 2}", i % 2 + 1
        key_map[f"{group}.conv{place}.weight"] = f"kernels.{i}"
        key_map |= {f"{group}.norm{place}.{ours}": f"{theirs}{i}" for ours, theirs in parts.items()}
    return Oracle(FlatAirbench(config), images(3, config.in_channels, 18, 16), key_map)


ORACLES = dict.fromkeys(PRESETS, flat_airbench)
