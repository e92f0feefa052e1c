"""Oracles of segmentation and detection.

FCN, DeepLabV3 and FCOS, whose anchors are our locations, are torchvision's. The U-Net consists of plain layers.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import deeplabv3, fcn, fcos, unet
from . import Oracle, OracleMissing, images
from .libraries import torchvision_key_map, torchvision_models

# --- FCN and DeepLabV3 ------------------------------------------------------------------------------------------


class SegmentationOutputs(nn.Module):
    """Network of torchvision with outputs in our order: the head's logits, in training also the auxiliary head's."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the logits (N, classes, H, W) of images (N, C, H, W)."""
        answers = self.network(x)
        return (answers["out"], answers["aux"]) if self.training and "aux" in answers else answers["out"]


def _backbone(config: fcn.Config | deeplabv3.Config) -> Any:
    """Build torchvision's ResNet with dilation in the last two stages.

    Its basic blocks do not support dilation. They are built with strides, and their convolutions are changed.
    """
    resnet = torchvision_models("resnet")
    if (config.stem, config.width, len(config.layers)) != ("imagenet", 64, 4):
        raise OracleMissing("torchvision has no residual network of these settings.")
    neck = config.block == "bottleneck"
    network = resnet.ResNet(
        resnet.Bottleneck if neck else resnet.BasicBlock,
        list(config.layers),
        replace_stride_with_dilation=[False, neck, neck],
    )
    for stage, rate in () if neck else ((network.layer3, 2), (network.layer4, 4)):
        for i, block in enumerate(stage):
            for conv in (block.conv1, block.conv2):
                own = rate if i else rate // 2
                conv.stride, conv.dilation, conv.padding = (1, 1), (own, own), (own, own)
        stage[0].downsample[0].stride = (1, 1)
    network.conv1 = nn.Conv2d(config.in_channels, 64, 7, stride=2, padding=3, bias=False)
    return network


def _assemble(config: Any, network: Any, head: nn.Module, model: type[nn.Module]) -> Oracle:
    """Build torchvision's network from a backbone and a head, with its auxiliary head if there is one."""
    segmentation = torchvision_models("segmentation")
    returned = {"layer4": "out"} | ({"layer3": "aux"} if config.auxiliary else {})
    backbone = torchvision_models("_utils").IntermediateLayerGetter(network, return_layers=returned)
    auxiliary = None
    if config.auxiliary:
        auxiliary = segmentation.fcn.FCNHead(network.fc.in_features // 2, config.num_classes)
    kind = segmentation.fcn.FCN if isinstance(config, fcn.Config) else segmentation.deeplabv3.DeepLabV3
    with torch.device("meta"):
        keys = model(config).state_dict()
    # In a map of 4×5 all windows with the largest dilation see padding, and each channel has several values.
    return Oracle(
        SegmentationOutputs(kind(backbone, head, auxiliary)),
        images(2, config.in_channels, 25, 33),
        {key: f"network.{key}" for key in keys},
    )


def torchvision_fcn(config: fcn.Config) -> Oracle:
    """Build torchvision's FCN with our channels and dropout."""
    network = _backbone(config)
    head = torchvision_models("segmentation").fcn.FCNHead(network.fc.in_features, config.num_classes)
    return _assemble(config, network, head, fcn.FCN)


def torchvision_deeplab(config: deeplabv3.Config) -> Oracle:
    """Build torchvision's DeepLabV3 with our channels and rates."""
    if config.dim != 256:
        raise OracleMissing("torchvision's DeepLabV3 has 256 channels.")
    network = _backbone(config)
    head = torchvision_models("segmentation").deeplabv3.DeepLabHead(
        network.fc.in_features, config.num_classes, config.rates
    )
    return _assemble(config, network, head, deeplabv3.DeepLabV3)


# --- U-Net ------------------------------------------------------------------------------------------------------


class UNetLevel(nn.Module):
    """One level of figure 1 and all levels below it, which are a nested module."""

    def __init__(self, in_channels: int, width: int, below: int, config: unet.Config) -> None:
        super().__init__()
        self.first = self._twice(in_channels, width, config, drops=below <= 1)
        if below:
            self.below = nn.Sequential(
                nn.MaxPool2d(2),
                UNetLevel(width, 2 * width, below - 1, config),
                nn.ConvTranspose2d(2 * width, width, kernel_size=2, stride=2),
            )
            self.second = self._twice(2 * width, width, config)

    def _twice(self, in_channels: int, width: int, config: unet.Config, drops: bool = False) -> nn.Sequential:
        layers: list[nn.Module] = []
        for channels in (in_channels, width):
            layers.append(nn.Conv2d(channels, width, kernel_size=3, padding="same", bias=config.norm == "none"))
            layers += [nn.BatchNorm2d(width)] if config.norm == "batch" else []
            layers.append(nn.ReLU())
        return nn.Sequential(*layers, *([_Dropout(config.dropout)] if drops else []))

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, width, H, W)."""
        x = self.first(x)
        if not hasattr(self, "below"):
            return x
        y: Tensor = self.second(torch.cat([x, self.below(x)], 1))
        return y


class _Dropout(nn.Module):
    """Dropout by its function, so that a rate that is not passed on would be detected."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate, self.training)


def plain_unet(config: unet.Config) -> Oracle:
    """Build the network of plain layers, with nested levels, and the key map from our weights."""
    network = nn.Sequential(
        UNetLevel(config.in_channels, config.width, config.levels, config),
        nn.Conv2d(config.width, config.num_classes, 1),
    )
    batch = config.norm == "batch"
    step = 3 if batch else 2  # layers of each convolution
    places = {"conv1": 0, "norm1": 1, "conv2": step, "norm2": step + 1}
    with torch.device("meta"):
        keys = unet.UNet(config).state_dict()
    key_map = {}
    for key in keys:
        part, *rest = key.split(".")
        if part == "head":
            key_map[key] = f"1.{rest[0]}"
            continue
        level = "0." + "below.1." * int(rest[0])
        if part == "grow":
            key_map[key] = f"{level}below.2.{rest[1]}"
        else:
            side = "first" if part == "down" else "second"
            key_map[key] = f"{level}{side}.{places[rest[1]]}.{rest[2]}"
    least = config.least_size
    return Oracle(network, images(2, config.in_channels, least, least + config.size_step), key_map)


class DetectorOutputs(nn.Module):
    """Outputs of torchvision's detector before boxes are computed, with the center and size of each anchor."""

    def __init__(self, detector: Any, shift: float) -> None:
        super().__init__()
        self.backbone, self.head = detector.backbone, detector.head
        self.anchors, self.shift = detector.anchor_generator, shift

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, L, K + 8)."""
        maps = list(self.backbone(x).values())
        said = self.head(maps)
        lists = torchvision_models("detection.image_list")
        (boxes, *_) = self.anchors(lists.ImageList(x, [tuple(x.shape[2:])] * len(x)), maps)
        side = boxes[:, 2:3] - boxes[:, :1]
        places = torch.cat([(boxes[:, :2] + boxes[:, 2:]) / 2 + self.shift * side, side], 1)  # (L, 3)
        parts = [said["cls_logits"], said["bbox_regression"], said["bbox_ctrness"], places.expand(len(x), -1, -1)]
        return torch.cat(parts, 2)


def torchvision_detector(config: fcos.Config) -> Any:
    """Build torchvision's detector for a config: ResNet, pyramid, head and anchors."""
    library, utils = torchvision_models("detection.fcos"), torchvision_models("detection.backbone_utils")
    resnet, anchors = torchvision_models("resnet"), torchvision_models("detection.anchor_utils")
    frozen = utils.misc_nn_ops.FrozenBatchNorm2d
    block = resnet.BasicBlock if config.block == "basic" else resnet.Bottleneck
    layers = [*config.layers, *[1] * (4 - len(config.layers))]
    norm = frozen if config.norm == "frozen" else nn.BatchNorm2d
    body = torchvision_body(resnet, block, layers, norm, config)
    stages = list(range(config.first_stage, len(config.layers) + 1))
    channels = [config.width * block.expansion * 2 ** (stage - 1) for stage in stages]
    extra = library.LastLevelP6P7(config.dim, config.dim) if config.extra_levels else no_extra_levels()
    backbone = utils.BackboneWithFPN(
        body, {f"layer{s}": str(i) for i, s in enumerate(stages)}, channels, config.dim, extra
    )
    generator = anchors.AnchorGenerator(tuple((s,) for s in config.strides), ((1.0,),) * len(config.strides))
    head = library.FCOSHead(32, 1, 1, num_convs=1)  # both parts are replaced, with our number of groups
    groups = partial(nn.GroupNorm, config.groups)
    head.classification_head = library.FCOSClassificationHead(
        config.dim, 1, config.num_classes, config.head_layers, norm_layer=groups
    )
    head.regression_head = library.FCOSRegressionHead(config.dim, 1, config.head_layers, norm_layer=groups)
    return library.FCOS(backbone, config.num_classes, anchor_generator=generator, head=head)


def torchvision_body(resnet: Any, block: Any, layers: list[int], norm: Any, config: fcos.Config) -> Any:
    """Build torchvision's ResNet in our width. Its builder supports 64 channels only."""

    class OfWidth(resnet.ResNet):  # type: ignore[misc]  # torchvision has no types
        def _make_layer(self, block: Any, planes: int, *args: Any, **kwargs: Any) -> Any:
            if planes == 64:
                self.inplanes = config.width
            return super()._make_layer(block, planes * config.width // 64, *args, **kwargs)

    body = OfWidth(block, layers, norm_layer=norm)
    body.conv1 = nn.Conv2d(config.in_channels, config.width, 7, stride=2, padding=3, bias=False)
    body.bn1 = norm(config.width)
    return body


def no_extra_levels() -> Any:
    """Build a top block for torchvision's pyramid that adds no level."""
    utils = torchvision_models("detection.backbone_utils")

    class Nothing(utils.ExtraFPNBlock):  # type: ignore[misc, name-defined]  # torchvision has no types
        def forward(self, results: Any, x: Any, names: Any) -> Any:
            return results, names

    return Nothing()


def torchvision_fcos(config: fcos.Config) -> Oracle:
    """Build the oracle.

    All strides divide the sides of images, because torchvision's strides are otherwise not exact.
    """
    detector = torchvision_detector(config)
    key_map = torchvision_key_map("fcos-resnet50", fcos.FCOS, config)
    side = config.strides[-1]
    module = DetectorOutputs(detector, 0.5 if config.centred else 0.0)
    return Oracle(module, images(2, config.in_channels, side, 2 * side), key_map)


ORACLES = {
    **dict.fromkeys(fcn.PRESETS, torchvision_fcn),
    **dict.fromkeys(deeplabv3.PRESETS, torchvision_deeplab),
    **dict.fromkeys(unet.PRESETS, plain_unet),
    **dict.fromkeys(fcos.PRESETS, torchvision_fcos),
}

REDUCED = {
    "fcn-resnet50": dataclasses.replace(fcn.PRESETS["fcn-resnet50"], layers=(1, 1, 1, 1)),
    "deeplabv3-resnet50": dataclasses.replace(deeplabv3.PRESETS["deeplabv3-resnet50"], layers=(1, 1, 1, 1)),
    "unet": dataclasses.replace(unet.PRESETS["unet"], width=8),
    # The small preset is compared completely; the other has more blocks of the same kind, and wider ones.
    "fcos-resnet50": dataclasses.replace(fcos.PRESETS["fcos-resnet50"], layers=(1, 2, 2, 1), width=8, dim=32, groups=8),
}
