"""Oracle of ConvNeXt: torchvision's network."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoints.torchvision import torchvision_key
from ..models.convnext import PRESETS, Config, ConvNeXt
from . import Oracle, images, torchvision_models


def torchvision_convnext(config: Config) -> Oracle:
    """Build torchvision's network with our channels and patches."""
    convnext = torchvision_models("convnext")
    widths: list[Any] = [config.width * 2**stage for stage in range(len(config.layers))]
    module = convnext.ConvNeXt(
        [convnext.CNBlockConfig(*stage) for stage in zip(widths, [*widths[1:], None], config.layers)],
        stochastic_depth_prob=config.drop_path_rate,
        layer_scale=config.layer_scale,
        num_classes=config.num_classes,
    )
    patch = config.patch_size
    module.features[0][0] = nn.Conv2d(config.in_channels, config.width, patch, stride=patch)
    for block in module.modules():
        if isinstance(block, convnext.CNBlock):
            block.stochastic_depth = StochasticDepth(block.stochastic_depth.p)
    with torch.device("meta"):
        key_map = {key: torchvision_key("convnext-tiny", key) for key in ConvNeXt(config).state_dict()}
    return Oracle(module, images(3, config.in_channels, config.least_size + 5, 2 * config.least_size), key_map)


class StochasticDepth(nn.Module):
    """Stochastic depth of torchvision for each image, drawn by PyTorch's dropout.

    `fixed_dropout` therefore controls it.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return the branch times 0 or 1 / (1 − p)."""
        return x * F.dropout(torch.ones(len(x), 1, 1, 1, dtype=x.dtype), self.p, self.training)


ORACLES = dict.fromkeys(PRESETS, torchvision_convnext)

# convnext-micro is compared completely; the others have more and wider blocks of the same kind.
REDUCED = {
    name: dataclasses.replace(config, layers=tuple(min(n, 4) for n in config.layers), width=config.width // 8)
    for name, config in PRESETS.items()
    if name != "convnext-micro"
}
