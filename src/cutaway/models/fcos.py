"""FCOS: an anchor-free object detector, which predicts a box at every location of a feature pyramid.

After Z. Tian, C. Shen, H. Chen, T. He, FCOS: Fully convolutional one-stage object detection, 2019 (ICCV 2019).
<https://arxiv.org/abs/1904.01355>

At the location (x, y) of a map of stride s the network predicts a logit for each class, the distances to the four sides
of the box around it, in strides, and a logit for its centerness (section 3.1, equation 1; 3.3):

    l* = (x − x₁) / s    t* = (y − y₁) / s    r* = (x₂ − x) / s    b* = (y₂ − y) / s
    centerness* = √( min(l*, r*)/max(l*, r*) · min(t*, b*)/max(t*, b*) )
    score of class k = √( σ(p_k) · σ(centerness) )

      image ─► stage 1 ─► stage 2 ─► stage 3 ─► stage 4          ResNet; strides 4, 8, 16, 32
                             │1×1       │1×1       │1×1
                             + ◄─ ×2 ── + ◄─ ×2 ───┤                   pyramid (T.-Y. Lin et al., 2017), dim channels
                             │3×3       │3×3       │3×3
                             ▼          ▼          ▼
                             P3         P4         P5 ─ 3×3 /2 ─► P6 ─ ReLU, 3×3 /2 ─► P7   strides 8, 16, …, 128
      one head for all:
             ┌─ 4 × (3×3, group norm, ReLU) ─► 3×3 ─► p, one logit for each class
        P ───┤                              ┌► 3×3, ReLU ─► l, t, r, b
             └─ 4 × (3×3, group norm, ReLU) ┴► 3×3 ─► centerness

Shapes: (N, C, H, W) to (N, L, K + 8), with L the locations of all levels, ⌈H/s⌉ · ⌈W/s⌉ of each: K class logits, l, t,
r, b, the logit of centerness, and the location (x, y, s) in pixels. `nn/boxes` converts them to boxes. 800×800 pixels
have 10 000 + 2 500 + 625 + 169 + 49 locations.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import Boxes, ImageSpec
from ..nn.boxes import locations
from . import resnet
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, min_value, positive

PRIOR = 0.01  # the probability of each class at first (Lin 2017, focal loss, section 4.1)


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    layers: tuple[int, ...] = positive((3, 4, 6, 3))  # residual blocks in each stage of the ResNet
    block: str = choice("bottleneck", ("basic", "bottleneck"))  # of the ResNet, whose first map has stride 4
    width: int = positive(64)  # channels of the first stage; each further stage has twice as many
    norm: str = choice("frozen", ("batch", "frozen"))  # of the ResNet: batch learns, frozen is as it was loaded
    first_stage: int = positive(2)  # lowest stage of the pyramid, counted from 1: 2 has stride 8
    extra_levels: int = min_value(0, 2)  # of the pyramid above the last stage, each of half the size
    dim: int = positive(256)  # channels of the pyramid and of the head
    head_layers: int = positive(4)  # convolutions before each answer
    groups: int = positive(32)  # of channels in the head's group normalization
    centred: bool = False  # locations are the middles of their cells, as published, not the corners, as in torchvision
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(91)  # logits of each location

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.dim % self.groups == 0, "dim", self.dim, f"a multiple of groups={self.groups}")
        allowed = f"at most {len(self.layers)}, the number of stages"
        check_value(self.first_stage <= len(self.layers), "first_stage", self.first_stage, allowed)

    @property
    def body(self) -> resnet.Config:
        """The ResNet."""
        return resnet.Config(layers=self.layers, block=self.block, width=self.width, in_channels=self.in_channels)

    @property
    def strides(self) -> tuple[int, ...]:
        """The stride of each level of the pyramid, in pixels."""
        return tuple(2 ** (stage + 1) for stage in range(self.first_stage, len(self.layers) + self.extra_levels + 1))

    @property
    def least_size(self) -> int:
        """The smallest side, in pixels: one location of the last stage."""
        return int(2 ** (len(self.layers) + 1))

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`; images of any size are accepted."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)


class FrozenBatchNorm2d(nn.Module):
    """Batch normalization with fixed statistics, scale and shift, as loaded."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        mean, var = self.get_buffer("running_mean"), self.get_buffer("running_var")
        return F.batch_norm(x, mean, var, self.get_buffer("weight"), self.get_buffer("bias"))


def freeze_norms(module: nn.Module) -> None:
    """Replace every batch normalization with a frozen one."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, FrozenBatchNorm2d(child.num_features))
        else:
            freeze_norms(child)


class Body(nn.Module):
    """The ResNet without its head. It returns the maps of each stage from `first_stage` on."""

    conv1: nn.Conv2d
    bn1: nn.Module
    maxpool: nn.Module

    def __init__(self, config: resnet.Config, norm: str, first_stage: int) -> None:
        super().__init__()
        self.config, self.first_stage = config, first_stage
        resnet.add_stages(self, config)
        resnet.initialize(self)
        if norm == "frozen":
            freeze_norms(self)

    @property
    def channels(self) -> list[int]:
        """The number of channels of each returned map."""
        expansion, stages = resnet.BLOCKS[self.config.block].expansion, len(self.config.layers)
        return [self.config.width * 2**stage * expansion for stage in range(self.first_stage - 1, stages)]

    def forward(self, x: Tensor) -> list[Tensor]:
        """Map (N, C, H, W) to maps (N, C_i, H/s_i, W/s_i), largest first."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))  # (N, w, H/4, W/4)
        maps = []
        for stage in range(1, len(self.config.layers) + 1):
            x = getattr(self, f"layer{stage}")(x)
            if stage >= self.first_stage:
                maps.append(x)
        return maps


class FeaturePyramid(nn.Module):
    """A feature pyramid: maps with the same number of channels at every scale, each with the coarser ones added."""

    def __init__(self, channels: list[int], config: Config) -> None:
        super().__init__()
        dim = config.dim
        self.lateral = nn.ModuleList([nn.Conv2d(c, dim, 1) for c in channels])
        self.smooth = nn.ModuleList([nn.Conv2d(dim, dim, 3, padding=1) for _ in channels])
        self.extra = nn.ModuleList([nn.Conv2d(dim, dim, 3, stride=2, padding=1) for _ in range(config.extra_levels)])
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]  # each has one

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        """Map the maps (N, C_i, H_i, W_i), largest first, to levels (N, dim, H_i, W_i), then the extra levels."""
        summed = self.lateral[-1](maps[-1])
        levels = [self.smooth[-1](summed)]
        for i in range(len(maps) - 2, -1, -1):
            finer = self.lateral[i](maps[i])
            summed = finer + F.interpolate(summed, size=finer.shape[2:], mode="nearest")
            levels.insert(0, self.smooth[i](summed))
        for i, halve in enumerate(self.extra):
            levels.append(halve(levels[-1] if i == 0 else F.relu(levels[-1])))
        return levels


def conv_tower(config: Config) -> nn.Sequential:
    """Return the convolutions before an output: 3×3, each with group normalization and ReLU."""
    parts: list[nn.Module] = []
    for _ in range(config.head_layers):
        parts += [nn.Conv2d(config.dim, config.dim, 3, padding=1), nn.GroupNorm(config.groups, config.dim), nn.ReLU()]
    return nn.Sequential(*parts)


class FCOS(BaseModel):
    """A network that maps images (N, C, H, W) to the predictions of each location, (N, L, K + 8)."""

    takes = (ImageSpec,)
    targets = (Boxes,)
    built_on = ("body", resnet.ResNet)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.body = Body(config.body, config.norm, config.first_stage)
        self.pyramid = FeaturePyramid(self.body.channels, config)
        self.class_tower = conv_tower(config)
        self.head = nn.Conv2d(config.dim, config.num_classes, 3, padding=1)  # the class logits
        self.box_tower = conv_tower(config)
        self.distances = nn.Conv2d(config.dim, 4, 3, padding=1)
        self.centerness = nn.Conv2d(config.dim, 1, 3, padding=1)
        for part in (self.class_tower, self.head, self.box_tower, self.distances, self.centerness):
            for module in part.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.normal_(module.weight, std=0.01)
                    nn.init.zeros_(module.bias)  # type: ignore[arg-type]  # each has one
        nn.init.constant_(self.head.bias, -math.log((1 - PRIOR) / PRIOR))  # type: ignore[arg-type]

    def levels(self, x: Tensor) -> list[Tensor]:
        """Return the maps of the pyramid, (N, dim, ⌈H/s⌉, ⌈W/s⌉) for each of the strides s."""
        validate_image_size(x, self.config.least_size, "FCOS")
        levels: list[Tensor] = self.pyramid(self.body(x))
        return levels

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head at each location, (N, L, dim)."""
        return torch.cat([_flatten_locations(level) for level in self.levels(x)], 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the predictions of each location, (N, L, K + 8).

        These are class logits, l, t, r, b ≥ 0 in strides, the logit of centerness, and the location x, y, s in pixels.
        """
        levels = self.levels(x)
        predictions = []
        for level in levels:
            by_class, by_box = self.class_tower(level), self.box_tower(level)
            answers = [self.head(by_class), F.relu(self.distances(by_box)), self.centerness(by_box)]
            predictions.append(_flatten_locations(torch.cat(answers, 1)))  # (N, h · w, K + 5)
        whole = torch.cat(predictions, 1)  # (N, L, K + 5)
        if whole.dtype in (torch.bfloat16, torch.float16):  # these cannot represent both pixel 800 and pixel 801
            whole = whole.float()
        sizes = [(level.shape[2], level.shape[3]) for level in levels]
        places = locations(sizes, self.config.strides, 0.5 if self.config.centred else 0.0).to(whole)  # (L, 3)
        return torch.cat([whole, places.expand(x.shape[0], -1, -1)], 2)

    def explained(self, outputs: Tensor) -> Tensor:
        """Return the largest logit of each class over all locations, (N, K)."""
        return outputs[:, :, : self.config.num_classes].amax(1)


def _flatten_locations(maps: Tensor) -> Tensor:
    """Map (N, C, h, w) to (N, h · w, C), row by row."""
    return maps.flatten(2).transpose(1, 2)


Model = FCOS

PRESETS = {
    "fcos-resnet50": Config(),
    "fcos-resnet18-small": Config(
        layers=(2, 2, 2),
        block="basic",
        norm="batch",
        first_stage=1,
        extra_levels=0,
        width=32,
        dim=48,
        head_layers=2,
        groups=8,
        centred=True,
        num_classes=10,
    ),
}

_ON_PHOTOGRAPHS = {
    "optimizer": "momentum",
    "lr": 0.0025,
    "batch_size": 4,
    "weight_decay": 1e-4,
    "schedule": "step",
    "milestones": (0.67, 0.89),
    "warmup": 0.05,
    "epochs": 12,
    "flip": True,
    "grad_clip": 10.0,
}
_ON_SMALL_IMAGES = {
    "optimizer": "adamw",
    "lr": 1e-3,
    "batch_size": 16,
    "weight_decay": 1e-2,
    "schedule": "warmup-cosine",
    "epochs": 12,
    "grad_clip": 10.0,
}

CARD = Card(
    title="FCOS: Fully convolutional one-stage object detection",
    authors="Z. Tian, C. Shen, H. Chen, T. He",
    year=2019,
    link="https://arxiv.org/abs/1904.01355",
    family="cnn",
    equation="l* = (x − x₁)/s, t* = (y − y₁)/s, r* = (x₂ − x)/s, b* = (y₂ − y)/s; "
    "centerness* = √(min(l*, r*)/max(l*, r*) · min(t*, b*)/max(t*, b*))",
    oracle="torchvision's fcos_resnet50_fpn: outputs, boxes and the three losses",
    published={
        "fcos-resnet50": Published(
            32_269_600,
            128_207_052_800,
            (3, 800, 800),
            "torchvision's weight metadata, which has the multiply-adds to three decimals; in full counted on its "
            "network",
        ),
        "fcos-resnet18-small": Published(862_431, 154_649_664, (3, 96, 96), "computed from the definition above"),
    },
    divergences=(
        Divergence(
            "locations",
            paper="the centre of a cell, ⌊s/2⌋ + x·s (section 3.1)",
            here="as in torchvision, for its weights: the corner, x·s; in the small preset the centre, (x + ½)·s",
            common="the corner (torchvision), the centre (the authors' code); torchvision's s is the size of the "
            "image divided by that of the map, rounded down, which differs for sizes that are not multiples of 128",
        ),
        Divergence(
            "distances",
            paper="exp(s_i · x) with a learned factor for each level, in pixels (section 3.2)",
            here="ReLU, in strides, no factor",
            common="as here (torchvision); as the paper, or, in the authors' improved settings (fcos_imprv), ReLU with "
            "a factor, in strides",
        ),
        Divergence(
            "centerness",
            paper="from the tower of the classes (figure 2); the score is the product of both probabilities",
            here="from the tower of the distances; the score is the root of the product",
            common="as here (torchvision, the authors' improved settings); the root in all of the authors' code",
        ),
        Divergence(
            "assignment of locations to boxes",
            paper="all inside the box whose distances are in the range of their level (section 3.2)",
            here="of those, only locations within 1.5 strides of its centre on both axes",
            common="as here (torchvision, the authors' improved settings)",
        ),
        Divergence(
            "box loss",
            paper="IoU loss (equation 2)",
            here="1 − GIoU",
            common="as here (torchvision); in the authors' improved settings also 1 − GIoU, weighted by the centerness",
        ),
        Divergence(
            "normalization of the ResNet",
            paper="frozen, from ImageNet",
            here="frozen in fcos-resnet50, which is meant for pretrained weights; trained in the small preset "
            "(norm=batch)",
            common="frozen with pretrained weights, otherwise trained (torchvision)",
        ),
        Divergence(
            "sizes",
            paper="ResNet-50 and larger, images of 800 pixels",
            here="ResNet-50; fcos-resnet18-small is not published: three narrow stages, strides 4, 8 and 16, for "
            "images of about 64 pixels",
            common="ResNet-50 (torchvision)",
        ),
        Divergence(
            "classes",
            paper="80 of COCO",
            here="91 logits in fcos-resnet50, of which COCO uses 80; otherwise the number of classes of the data",
            common="91 (torchvision)",
        ),
    ),
    results={
        "fcos-resnet50": (
            Result("COCO 2017", {"box AP": 37.1}, "validation set", "the authors' release, FCOS_R_50_FPN_1x"),
            Result("COCO 2017", {"box AP": 39.2}, "validation set", "torchvision, FCOS_ResNet50_FPN_Weights.COCO_V1"),
        ),
    },
    settings={"fcos-resnet50": _ON_PHOTOGRAPHS, "fcos-resnet18-small": _ON_SMALL_IMAGES},
)
