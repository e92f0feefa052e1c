"""Oracle of FCOS: torchvision's detector, whose anchors are our locations."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.torchvision import torchvision_key
from ..models.fcos import FCOS, PRESETS, Config
from . import Oracle, images, torchvision_models


class Anchored(nn.Module):
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


def torchvision_detector(config: Config) -> Any:
    """Build torchvision's detector for a config: ResNet, pyramid, head and anchors."""
    fcos, utils = torchvision_models("detection.fcos"), torchvision_models("detection.backbone_utils")
    resnet, anchors = torchvision_models("resnet"), torchvision_models("detection.anchor_utils")
    frozen = utils.misc_nn_ops.FrozenBatchNorm2d
    block = resnet.BasicBlock if config.block == "basic" else resnet.Bottleneck
    layers = [*config.layers, *[1] * (4 - len(config.layers))]
    norm = frozen if config.norm == "frozen" else nn.BatchNorm2d
    body = torchvision_body(resnet, block, layers, norm, config)
    stages = list(range(config.first_stage, len(config.layers) + 1))
    channels = [config.width * block.expansion * 2 ** (stage - 1) for stage in stages]
    extra = fcos.LastLevelP6P7(config.dim, config.dim) if config.extra_levels else nothing_above()
    backbone = utils.BackboneWithFPN(
        body, {f"layer{s}": str(i) for i, s in enumerate(stages)}, channels, config.dim, extra
    )
    generator = anchors.AnchorGenerator(tuple((s,) for s in config.strides), ((1.0,),) * len(config.strides))
    head = fcos.FCOSHead(32, 1, 1, num_convs=1)  # both parts are replaced, with our number of groups
    groups = partial(nn.GroupNorm, config.groups)
    head.classification_head = fcos.FCOSClassificationHead(
        config.dim, 1, config.num_classes, config.head_layers, norm_layer=groups
    )
    head.regression_head = fcos.FCOSRegressionHead(config.dim, 1, config.head_layers, norm_layer=groups)
    return fcos.FCOS(backbone, config.num_classes, anchor_generator=generator, head=head)


def torchvision_body(resnet: Any, block: Any, layers: list[int], norm: Any, config: Config) -> Any:
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


def nothing_above() -> Any:
    """Build a top block for torchvision's pyramid that adds no level."""
    utils = torchvision_models("detection.backbone_utils")

    class Nothing(utils.ExtraFPNBlock):  # type: ignore[misc, name-defined]  # torchvision has no types
        def forward(self, results: Any, x: Any, names: Any) -> Any:
            return results, names

    return Nothing()


def torchvision_fcos(config: Config) -> Oracle:
    """Build the oracle.

    All strides divide the sides of images, because torchvision's strides are otherwise not exact.
    """
    detector = torchvision_detector(config)
    with torch.device("meta"):
        key_map = {key: torchvision_key("fcos-resnet50", key) for key in FCOS(config).state_dict()}
    side = config.strides[-1]
    module = Anchored(detector, 0.5 if config.centred else 0.0)
    return Oracle(module, images(2, config.in_channels, side, 2 * side), key_map)


ORACLES = dict.fromkeys(PRESETS, torchvision_fcos)

# The small preset is compared completely; the other has more blocks of the same kind, and wider ones.
REDUCED = {
    "fcos-resnet50": dataclasses.replace(PRESETS["fcos-resnet50"], layers=(1, 2, 2, 1), width=8, dim=32, groups=8)
}
