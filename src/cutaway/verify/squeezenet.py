"""Oracle of SqueezeNet: torchvision's network."""

from __future__ import annotations

from torch import nn

from ..checkpoints.torchvision import torchvision_key
from ..models.squeezenet import FIRES, KERNEL, PRESETS, Config, SqueezeNet
from . import Oracle, changed, images, torchvision_models


def torchvision_squeezenet(config: Config) -> Oracle:
    """Build torchvision's network with our channels, and our stride for small images."""
    name = f"squeezenet-{config.version}"
    library = torchvision_models("squeezenet")
    module = library.SqueezeNet(
        config.version.replace(".", "_"), config.num_classes, **changed(config, PRESETS[name], dropout="dropout")
    )
    key_map = {key: torchvision_key(name, key) for key in SqueezeNet(config).state_dict()}
    if (config.width, config.squeeze_ratio) != (128, 0.125):
        channels = config.stem_channels
        for i in FIRES:
            half, index = config.expanded(i) // 2, int(key_map[f"fire{i}.squeeze.weight"].split(".")[1])
            module.features[index] = library.Fire(channels, config.squeezed(i), config.expanded(i) - half, half)
            channels = config.expanded(i)
        module.classifier[1] = nn.Conv2d(channels, config.num_classes, 1)
    if (config.width, config.in_channels, config.stem) != (128, 3, "imagenet"):
        module.features[0] = nn.Conv2d(config.in_channels, config.stem_channels, KERNEL[config.version], config.stride)
    if config.head_activation == "identity":
        module.classifier[2] = nn.Identity()
    size = (config.least_size + 5, 2 * config.least_size)
    return Oracle(module, images(2, config.in_channels, *size), key_map)


ORACLES = dict.fromkeys(PRESETS, torchvision_squeezenet)
