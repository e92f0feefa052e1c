"""Oracles of DenseNet: torchvision's networks for ImageNet, and a plain one without concatenation for CIFAR."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoints.torchvision import torchvision_key
from ..models.densenet import PRESETS, Config, DenseNet
from . import Oracle, OracleMissing, images, torchvision_models
from .normalized import batch_normalized


def torchvision_densenet(config: Config) -> Oracle:
    """Build torchvision's network. Images are not square: the last maps have 1×2 pixels."""
    densenet = torchvision_models("densenet")
    module = densenet.DenseNet(
        growth_rate=config.growth_rate,
        block_config=config.layers,
        num_init_features=config.stem_channels,
        num_classes=config.num_classes,
    )
    with torch.device("meta"):
        key_map = {key: torchvision_key("densenet121", key) for key in DenseNet(config).state_dict()}
    return Oracle(module, images(2, 3, 37, 61), key_map)


class SourceBySource(nn.Module):
    """CIFAR network without concatenated maps.

    A convolution is a sum over its channels. A layer adds the contribution of each earlier map, through its slice of
    the kernel, normalized by its slice of the norm. Kernels and norms are two flat lists in the order of use.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.kernels = nn.ParameterList()
        self.scales = nn.ParameterList()
        self.shifts = nn.ParameterList()
        k, channels = config.growth_rate, config.stem_channels
        self._kernel(channels, config.in_channels, 3)
        for block, layers in enumerate(config.layers):
            if block > 0:
                self._norm(channels)
                halved = int(channels * config.compression)
                self._kernel(halved, channels, 1)
                channels = halved
            for _ in range(layers):
                self._norm(channels)
                if config.bottleneck:
                    self._kernel(4 * k, channels, 1)
                    self._norm(4 * k)
                self._kernel(k, 4 * k if config.bottleneck else channels, 3)
                channels += k
        self._norm(channels)
        self.head = nn.Parameter(torch.zeros(config.num_classes, channels))
        self.head_bias = nn.Parameter(torch.zeros(config.num_classes))

    def _kernel(self, out_channels: int, in_channels: int, side: int) -> None:
        self.kernels.append(nn.Parameter(torch.zeros(out_channels, in_channels, side, side)))

    def _norm(self, channels: int) -> None:
        i = len(self.scales)
        self.scales.append(nn.Parameter(torch.ones(channels)))
        self.shifts.append(nn.Parameter(torch.zeros(channels)))
        self.register_buffer(f"mean{i}", torch.zeros(channels))
        self.register_buffer(f"variance{i}", torch.ones(channels))
        self.register_buffer(f"batches{i}", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, classes) of images (N, C, H, W)."""
        kernels, norms = iter(self.kernels), iter(range(len(self.scales)))

        def normalized(sources: list[Tensor]) -> list[Tensor]:
            """Apply the next norm and ReLU to each source with its own channels."""
            norm, first, results = next(norms), 0, []
            for source in sources:
                results.append(torch.clamp(self._normalized(norm, first, source), min=0))
                first += source.shape[1]
            return results

        def convolved(sources: list[Tensor]) -> Tensor:
            """Apply the next convolution: the sum over sources of their input channels' parts."""
            kernel, first, total = next(kernels), 0, torch.zeros(())
            for source in sources:
                part = kernel[:, first : first + source.shape[1]]
                total = total + F.conv2d(source, part, padding=kernel.shape[-1] // 2)
                first += source.shape[1]
            return total

        def dropped(x: Tensor) -> Tensor:
            return F.dropout(x, self.config.dropout) if self.training and self.config.dropout else x

        sources = [convolved([x])]
        for block, layers in enumerate(self.config.layers):
            if block > 0:
                y = dropped(convolved(normalized(sources)))
                sources = [y.unfold(2, 2, 2).unfold(3, 2, 2).mean((-2, -1))]  # the mean of each window of 2×2
            for _ in range(layers):
                y = dropped(convolved(normalized(sources)))
                if self.config.bottleneck:
                    y = dropped(convolved(normalized([y])))
                sources.append(y)
        means = [y.mean((2, 3)) for y in normalized(sources)]
        logits: Tensor = self.head_bias
        for mean, part in zip(means, torch.split(self.head, [mean.shape[1] for mean in means], dim=1)):
            logits = logits + mean @ part.T
        return logits

    def _normalized(self, norm: int, first: int, x: Tensor) -> Tensor:
        """Apply a norm by its definition. `x` is its channels from `first` on."""
        channels = slice(first, first + x.shape[1])
        mean, variance = self.get_buffer(f"mean{norm}")[channels], self.get_buffer(f"variance{norm}")[channels]
        scale, shift = self.scales[norm][channels], self.shifts[norm][channels]
        return batch_normalized(x, mean, variance, scale, shift, self.training)


def source_by_source(config: Config) -> Oracle:
    """Build the plain implementation and the key map from our weights."""
    with torch.device("meta"):
        names = list(DenseNet(config).state_dict())
    key_map = {"classifier.weight": "head", "classifier.bias": "head_bias"}
    key_map |= {name: f"kernels.{i}" for i, name in enumerate(k for k in names if "conv" in k)}
    parts = {"weight": "scales.", "bias": "shifts.", "running_mean": "mean"}
    parts |= {"running_var": "variance", "num_batches_tracked": "batches"}
    for ending, part in parts.items():
        norms = [k for k in names if "norm" in k and k.endswith(ending)]
        key_map |= {name: f"{part}{i}" for i, name in enumerate(norms)}
    return Oracle(SourceBySource(config), images(2, config.in_channels, 18, 21), key_map)


def _build(config: Config) -> Oracle:
    """Build torchvision's network if it has this one, otherwise the plain one.

    Torchvision's has its stem, bottlenecks, halving transitions and no dropout.
    """
    like_torchvision = (config.stem, config.bottleneck, config.compression, config.dropout, config.in_channels)
    if like_torchvision == ("imagenet", True, 0.5, 0.0, 3):
        return torchvision_densenet(config)
    if config.stem == "cifar":
        return source_by_source(config)
    raise OracleMissing(
        "neither torchvision nor the plain CIFAR network has a densely connected network of these settings."
    )


ORACLES = dict.fromkeys(PRESETS, _build)

# densenet121, densenet-40-12 and densenet-bc-100-12 are compared completely; the others have more or wider layers.
REDUCED = {
    name: dataclasses.replace(PRESETS[name], layers=(2, 3, 2, 2))
    for name in ("densenet161", "densenet169", "densenet201")
}
