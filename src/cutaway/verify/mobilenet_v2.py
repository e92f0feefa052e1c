"""Oracle of MobileNetV2: torchvision's network."""

from __future__ import annotations

from torch import nn

from ..checkpoints.torchvision import torchvision_key
from ..models.mobilenet_v2 import PRESETS, Config, MobileNetV2
from . import Oracle, changed, images, torchvision_models


def torchvision_mobilenet(config: Config) -> Oracle:
    """Build torchvision's network with our channels, and our strides for small images."""
    usual = PRESETS["mobilenet-v2"]
    module = torchvision_models("mobilenetv2").MobileNetV2(
        config.num_classes, **changed(config, usual, width_mult="width_mult", dropout="dropout")
    )
    stem = module.features[0][0]
    if config.in_channels != 3:
        module.features[0][0] = stem = nn.Conv2d(config.in_channels, stem.out_channels, 3, 2, 1, bias=False)
    if config.stem == "cifar":
        stem.stride = module.features[2].conv[1][0].stride = (1, 1)
    key_map = {key: torchvision_key("mobilenet-v2", key) for key in MobileNetV2(config).state_dict()}
    size = (config.least_size + 5, 2 * config.least_size)
    return Oracle(module, images(2, config.in_channels, *size), key_map)


ORACLES = dict.fromkeys(PRESETS, torchvision_mobilenet)
