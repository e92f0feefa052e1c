"""Oracle of the VGG networks: torchvision's."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from ..checkpoints.torchvision import torchvision_key
from ..models.vgg import PRESETS, VGG, Config
from . import Oracle, changed, images, torchvision_models


def torchvision_vgg(config: Config) -> Oracle:
    """Build torchvision's network with stages of our depths and widths, and replace its fixed parts if ours differ."""
    vgg = torchvision_models("vgg")
    plan: list[int | str] = []
    for count, width in zip(config.stages, config.widths):
        plan += [width] * count + ["M"]
    with torch.device("meta"):  # all weights are copied later, so none is allocated
        module = vgg.VGG(
            vgg.make_layers(plan, config.batch_norm),
            config.num_classes,
            **changed(config, PRESETS["vgg11"], dropout="dropout"),
        )
        if config.in_channels != 3:
            module.features[0] = nn.Conv2d(config.in_channels, config.width, 3, padding=1)
        if (config.widths[-1], config.pool_to, config.hidden_dim) != (512, 7, 4096):
            module.avgpool = nn.AdaptiveAvgPool2d(config.pool_to)
            module.classifier[0] = nn.Linear(config.widths[-1] * config.pool_to**2, config.hidden_dim)
            module.classifier[3] = nn.Linear(config.hidden_dim, config.hidden_dim)
            module.classifier[6] = nn.Linear(config.hidden_dim, config.num_classes)
        ours = VGG(config).state_dict()
    key_map = {key: torchvision_key("vgg11", key) for key in ours}  # the names are the same for every depth
    size = (config.least_size + 5, 2 * config.least_size)  # the last map of 1×2 is spread over the grid
    return Oracle(module.to_empty(device="cpu"), images(2, config.in_channels, *size), key_map)


ORACLES = dict.fromkeys(PRESETS, torchvision_vgg)

# The complete smallest network takes 7 GB in float64, because three quarters of its weights are fc6. So vgg11 keeps all
# convolutions and has fewer units after them. The others, with more convolutions, have fewer channels too.
REDUCED = {
    name: dataclasses.replace(config, hidden_dim=32, num_classes=10)
    if name == "vgg11"
    else dataclasses.replace(config, width=4, hidden_dim=32, num_classes=10)
    for name, config in PRESETS.items()
}
