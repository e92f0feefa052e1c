"""Oracle of the convolutional network for series: the sums of its equation, one window at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..models.cnn1d import Config
from . import Oracle, images


class SummedCNN1d(nn.Module):
    """Network whose convolutions are dot products with every second window of the zero-padded signal."""

    def __init__(self, steps: int, variables: int, channels: int, classes: int) -> None:
        super().__init__()
        self.kernels, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, width in ((variables, 5), (channels, 3), (channels, 3)):
            self.kernels.append(nn.Parameter(torch.zeros(channels, inputs, width)))
            self.biases.append(nn.Parameter(torch.zeros(channels)))
            steps = len(_windows(steps + 2, width))
        self.head = nn.Parameter(torch.zeros(classes, channels * steps))
        self.head_bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of series (N, T, F)."""
        h = x
        for kernel, bias in zip(self.kernels, self.biases):
            zero = torch.zeros_like(h[:, :1])
            h, width = torch.cat([zero, h, zero], 1), kernel.shape[2]  # (N, T + 2, C)
            sums = [torch.einsum("nkc,dck->nd", h[:, t : t + width], kernel) for t in _windows(h.shape[1], width)]
            h = torch.clamp(torch.stack(sums, 1) + bias, min=0)
        by_channel = self.head.view(len(self.head), -1, h.shape[1])  # (classes, C, T)
        return torch.einsum("ntc,kct->nk", h, by_channel) + self.head_bias


def _windows(steps: int, width: int) -> range:
    """Return the starts of every second window of that width."""
    return range(0, steps - width + 1, 2)


def summed_cnn1d(config: Config) -> Oracle:
    """Build the network of sums and the key map from our weights."""
    module = SummedCNN1d(config.steps, config.in_features, config.channels, config.num_classes)
    key_map = {"linear.weight": "head", "linear.bias": "head_bias"}
    for i in range(3):
        key_map |= {f"conv{i + 1}.weight": f"kernels.{i}", f"conv{i + 1}.bias": f"biases.{i}"}
    return Oracle(module, images(4, config.steps, config.in_features), key_map)


ORACLES = {"cnn1d": summed_cnn1d}
