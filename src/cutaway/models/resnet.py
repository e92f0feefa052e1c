"""Residual networks: the ImageNet family with 18 to 200 layers, and the CIFAR family with 20 to 164.

After K. He, X. Zhang, S. Ren, J. Sun, Deep residual learning for image recognition, 2015 (CVPR 2016)
<https://arxiv.org/abs/1512.03385>, and, for the presets -v2, Identity mappings in deep residual networks, 2016 (ECCV
2016) <https://arxiv.org/abs/1603.05027>.

A block learns the difference between its output and its input; the shortcut adds the input (equations 1 and 2):

    y = F(x, {W_i}) + W_s x        W_s = I wherever x and y have the same shape;  ReLU follows the sum

      basic (18, 34, CIFAR)                 bottleneck (50, 101, 152)

      x ────────────┐                       x ────────────┐
      │ 3×3, w, /s  │                       │ 1×1, w      │        w   width of the stage
      │ BN, ReLU    │ W_s, /s               │ BN, ReLU    │        /s  stride: 2 in the first block of a stage
      │ 3×3, w      │                       │ 3×3, w, /s  │ W_s, /s    (but of the first stage), 1 elsewhere
      │ BN          │                       │ BN, ReLU    │
      ▼             │                       │ 1×1, 4w     │
      + ◄───────────┘                       │ BN          │
      ReLU                                  ▼             │
      │                                     + ◄───────────┘
      y                                     ReLU ── y

Shapes, ImageNet family, from (N, C, 224, 224): stem 7×7 /2 (N, 64, 112, 112), max-pool 3×3 /2 (N, 64, 56, 56), four
stages with w = 64, 128, 256, 512 on maps of 56, 28, 14 and 7, mean over the map (N, 512 or 2048), logits (N, classes).
CIFAR family, from (N, C, 32, 32): stem 3×3 (N, 16, 32, 32), three stages of n blocks with w = 16, 32, 64 on maps of 32,
16 and 8, mean (N, 64), logits; 6n + 2 layers. Images of any size and number of channels are accepted: maps are halved,
rounding up, and the mean is over the remaining map.

Where the shape changes, shortcut A takes every second pixel of the input and pads channels of zeros; in B, W_s is a 1×1
convolution with normalization.

With order=pre (v2), normalization and ReLU come before each convolution, and nothing comes after the sum (equation 4 of
the second paper). While the shape stays the same, the output of a block is the input of an earlier one plus the
sum of all F in between, and the gradient of the loss L has the same form (equation 5):

    x_L = x_l + Σ F(x_i, W_i)         ∂L/∂x_l = ∂L/∂x_L (1 + ∂/∂x_l Σ F(x_i, W_i))         sums over i = l, …, L − 1

The first block of the network gets its input activated, after the normalization and ReLU of the stem. In the first
block of each further stage, both paths begin with the activated input, and W_s has no normalization. One more
normalization and ReLU follow the last block.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import ImageSpec
from .base import BaseModel
from .card import Card, Divergence, Published, Result, imagenet_error, torchvision_accuracy
from .config import ValidatedConfig, choice, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    layers: tuple[int, ...] = positive((2, 2, 2, 2))  # residual blocks in each stage
    block: str = choice("basic", ("basic", "bottleneck"))  # basic: two 3×3 convolutions; bottleneck: 1×1, 3×3, 1×1
    width: int = positive(64)  # channels of the first stage; each further stage has twice as many
    stem: str = choice("imagenet", ("imagenet", "cifar"))  # 7×7 stride 2, max-pool; cifar: 3×3 only, for small images
    shortcut: str = choice("B", ("A", "B", "none"))  # A pads channels of zeros where the shape changes, B is a 1×1
    # convolution there; none leaves all of them out, which makes the paper's plain networks
    stride_on: str = choice("3x3", ("1x1", "3x3"))  # where a bottleneck strides: 3x3 as torchvision, 1x1 as published
    order: str = choice("post", ("post", "pre"))  # pre (v2): normalization and ReLU before each convolution, not after
    zero_init: bool = False  # start each block as its shortcut: the last normalization (pre: convolution) is 0
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(
            not (self.zero_init and self.shortcut == "none"),
            "zero_init",
            self.zero_init,
            "False with shortcut=none, where each block would return 0",
        )
        check_value(
            self.stride_on == "3x3" or self.block == "bottleneck",
            "stride_on",
            self.stride_on,
            "3x3 in a basic block, which has no 1×1 convolution to put it on",
        )

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`; images of any size are accepted."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)


def conv(in_channels: int, out_channels: int, kernel: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    """Return a convolution that keeps the size at stride 1. It has no bias: the normalization after it has one."""
    padding = dilation * (kernel // 2)
    return nn.Conv2d(in_channels, out_channels, kernel, stride, padding, dilation, bias=False)


class ZeroPadShortcut(nn.Module):
    """Shortcut A: every `stride`-th pixel, between channels of zeros. It has no parameters."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        missing = out_channels - in_channels
        self.before, self.after = missing // 2, missing - missing // 2

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C', ⌈H/s⌉, ⌈W/s⌉)."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class NoShortcut(nn.Module):
    """No shortcut, as in the plain networks that the paper compares with: y = ReLU(F(x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar zero, to be added."""
        return x.new_zeros(())


def shortcut(kind: str, in_channels: int, out_channels: int, stride: int, order: str = "post") -> nn.Module:
    """Return W_s: the identity if shapes match, else the shortcut of that `kind` (A or B), or no shortcut for none.

    The convolution of B is normalized in blocks of `order` post only.
    """
    if kind == "none":
        return NoShortcut()
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    if kind == "A":
        return ZeroPadShortcut(in_channels, out_channels, stride)
    if order == "pre":
        return conv(in_channels, out_channels, 1, stride)
    return nn.Sequential(conv(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut: (N, C, H, W) to (N, w, ⌈H/s⌉, ⌈W/s⌉)."""

    expansion = 1  # output channels, in units of w

    def __init__(self, in_channels: int, width: int, stride: int, config: Config, dilation: int = 1) -> None:
        super().__init__()
        self.conv1 = conv(in_channels, width, 3, stride, dilation)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, dilation=dilation)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(config.shortcut, in_channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return y = ReLU(F(x) + W_s x). In-place operations overwrite only values not needed for the gradient."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.downsample(x)
        return F.relu(y, inplace=True)


class Bottleneck(nn.Module):
    """1×1 to w channels, 3×3, 1×1 to 4w, with a shortcut: (N, C, H, W) to (N, 4w, ⌈H/s⌉, ⌈W/s⌉)."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int, config: Config, dilation: int = 1) -> None:
        super().__init__()
        stride_1x1, stride_3x3 = (stride, 1) if config.stride_on == "1x1" else (1, stride)
        out_channels = width * self.expansion
        self.conv1 = conv(in_channels, width, 1, stride_1x1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride_3x3, dilation)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, out_channels, 1)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample = shortcut(config.shortcut, in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return y = ReLU(F(x) + W_s x)."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += self.downsample(x)
        return F.relu(y, inplace=True)


class PreActivationBlock(nn.Module):
    """Base class of blocks with `order` pre: y = F(x) + x, or F(a) + W_s a with a = ReLU(BN(x)) where shapes change."""

    relu_after_sum = False
    bn1: nn.BatchNorm2d | None  # None in the first block of a network, whose input is activated already
    downsample: nn.Module

    def activate(self, x: Tensor) -> Tensor:
        """Return a = ReLU(BN(x)), with which F begins."""
        return x if self.bn1 is None else F.relu(self.bn1(x), inplace=True)

    def shortcut_path(self, x: Tensor, a: Tensor | None = None) -> Tensor:
        """Return the term added to F: x, or W_s a where shapes change. `a` is computed if it is not given."""
        same = isinstance(self.downsample, nn.Identity)
        if not same and a is None:
            a = self.activate(x)
        added: Tensor = self.downsample(x if same else a)
        return added


class PreActivationBasicBlock(PreActivationBlock):
    """BN, ReLU, 3×3, twice, with a shortcut: (N, C, H, W) to (N, w, ⌈H/s⌉, ⌈W/s⌉)."""

    expansion = 1

    def __init__(
        self, in_channels: int, width: int, stride: int, config: Config, dilation: int = 1, activated: bool = False
    ) -> None:
        super().__init__()
        self.bn1 = None if activated else nn.BatchNorm2d(in_channels)
        self.conv1 = conv(in_channels, width, 3, stride, dilation)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, dilation=dilation)
        self.downsample = shortcut(config.shortcut, in_channels, width, stride, config.order)

    def forward(self, x: Tensor) -> Tensor:
        """Return y = F(x) + x."""
        a = self.activate(x)
        y = self.conv1(a)
        y = self.conv2(F.relu(self.bn2(y), inplace=True))
        total: Tensor = y + self.shortcut_path(x, a)
        return total


class PreActivationBottleneck(PreActivationBlock):
    """BN, ReLU and a convolution, three times: 1×1 to w channels, 3×3, 1×1 to 4w, with a shortcut."""

    expansion = 4

    def __init__(
        self, in_channels: int, width: int, stride: int, config: Config, dilation: int = 1, activated: bool = False
    ) -> None:
        super().__init__()
        stride_1x1, stride_3x3 = (stride, 1) if config.stride_on == "1x1" else (1, stride)
        out_channels = width * self.expansion
        self.bn1 = None if activated else nn.BatchNorm2d(in_channels)
        self.conv1 = conv(in_channels, width, 1, stride_1x1)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride_3x3, dilation)
        self.bn3 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, out_channels, 1)
        self.downsample = shortcut(config.shortcut, in_channels, out_channels, stride, config.order)

    def forward(self, x: Tensor) -> Tensor:
        """Return y = F(x) + x."""
        a = self.activate(x)
        y = self.conv1(a)
        y = self.conv2(F.relu(self.bn2(y), inplace=True))
        y = self.conv3(F.relu(self.bn3(y), inplace=True))
        total: Tensor = y + self.shortcut_path(x, a)
        return total


BLOCKS: dict[str, type[BasicBlock] | type[Bottleneck]] = {"basic": BasicBlock, "bottleneck": Bottleneck}
PRE_ACTIVATION_BLOCKS: dict[str, type[PreActivationBasicBlock] | type[PreActivationBottleneck]] = {
    "basic": PreActivationBasicBlock,
    "bottleneck": PreActivationBottleneck,
}


def add_stages(network: nn.Module, config: Config, dilated: int = 0) -> int:
    """Add the stem and the stages to `network`, `conv1` to `layer4`, and return the number of output channels.

    Each of the last `dilated` stages keeps the size of its feature map: its stride is replaced by dilation, which
    doubles with each such stage and applies from its second block on.
    """
    if config.stem == "imagenet":
        network.conv1 = conv(config.in_channels, config.width, 7, stride=2)
        network.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
    else:
        network.conv1 = conv(config.in_channels, config.width, 3)
        network.maxpool = nn.Identity()
    network.bn1 = nn.BatchNorm2d(config.width)

    expansion = BLOCKS[config.block].expansion
    channels, dilation = config.width, 1
    for stage, count in enumerate(config.layers):
        width = config.width * 2**stage
        stride, before = 2 if stage > 0 else 1, dilation
        if stage >= len(config.layers) - dilated:
            stride, dilation = 1, dilation * stride
        blocks = []
        for i in range(count):
            first = i == 0
            how = (channels, width, stride if first else 1, config, before if first else dilation)
            blocks.append(
                BLOCKS[config.block](*how)
                if config.order == "post"
                else PRE_ACTIVATION_BLOCKS[config.block](*how, activated=first and stage == 0)
            )
            channels = width * expansion
        network.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
    return channels


def initialize(network: nn.Module, zero_init: bool = False) -> None:
    """Initialize the convolutions: normal with variance 2/n, with the fan-out n (He initialization).

    With `zero_init`, F is 0 in each block: a block begins as its shortcut. P. Goyal et al., Accurate, large minibatch
    SGD, 2017, section 5.1 <https://arxiv.org/abs/1706.02677>, set the weights γ of its last normalization to 0. In a
    pre-activation block no gradient would pass the ReLU after them, so there the last convolution is 0.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    for block in network.modules() if zero_init else ():
        if isinstance(block, BasicBlock | Bottleneck):
            last: nn.Module = block.bn2 if isinstance(block, BasicBlock) else block.bn3
        elif isinstance(block, PreActivationBasicBlock | PreActivationBottleneck):
            last = block.conv2 if isinstance(block, PreActivationBasicBlock) else block.conv3
        else:
            continue
        nn.init.zeros_(last.get_parameter("weight"))


class Backbone(nn.Module):
    """A dilated residual network without its head, for networks with outputs at every pixel."""

    conv1: nn.Conv2d
    bn1: nn.BatchNorm2d
    maxpool: nn.Module

    def __init__(self, config: Config, dilated: int) -> None:
        super().__init__()
        self.config = config
        self.channels = add_stages(self, config, dilated)  # of the last map; the one before it has half as many
        initialize(self)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of the last stage but one and of the last, (N, channels, h, w), of images (N, C, H, W)."""
        x = before = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        for stage in range(len(self.config.layers)):
            before, x = x, getattr(self, f"layer{stage + 1}")(x)
        return before, x


class ResNet(BaseModel):
    """ResNet: images (N, C, H, W) to logits (N, classes). Module names are those of torchvision."""

    takes = (ImageSpec,)
    conv1: nn.Conv2d
    bn1: nn.BatchNorm2d
    maxpool: nn.Module

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        channels = add_stages(self, config)
        self.norm = nn.BatchNorm2d(channels) if config.order == "pre" else None  # no block normalizes the last sum
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, config.num_classes)
        initialize(self, config.zero_init)

    def residual_blocks(self) -> list[nn.Module]:
        """Return all residual blocks in execution order."""
        kinds = (BasicBlock, Bottleneck, PreActivationBlock)
        return [module for module in self.modules() if isinstance(module, kinds)]

    def reduced(self, fraction: float) -> ResNet:
        """Return a new narrow network with that fraction of each stage's blocks, for small RGB images of ten classes.

        It has shortcuts even if this network has none.
        """
        blocks = tuple(max(1, round(fraction * count)) for count in self.config.layers)
        kind = self.config.shortcut if self.config.shortcut != "none" else "A"
        config = dataclasses.replace(self.config, layers=blocks, width=8, stem="cifar", shortcut=kind)
        return ResNet(dataclasses.replace(config, in_channels=3, num_classes=10))

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the mean over each of the last feature maps, (N, channels)."""
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)  # (N, w, H/2, W/2); H, W with the CIFAR stem
        x = self.maxpool(x)  # (N, w, H/4, W/4)
        for stage in range(len(self.config.layers)):
            x = getattr(self, f"layer{stage + 1}")(x)
        if self.norm is not None:
            x = F.relu(self.norm(x), inplace=True)
        pooled: Tensor = self.avgpool(x)  # (N, channels, 1, 1)
        return pooled.flatten(1)  # (N, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


Model = ResNet


def _bottlenecks(*blocks: int, stride_on: str = "3x3", order: str = "post") -> Config:
    return Config(layers=blocks, block="bottleneck", stride_on=stride_on, order=order)


def _cifar(layers: int, order: str = "post") -> Config:
    """Return the CIFAR family: 6n + 2 layers are three stages of n blocks, the stem and the head."""
    n = (layers - 2) // 6
    return Config(layers=(n, n, n), width=16, stem="cifar", shortcut="A", order=order, num_classes=10)


PRESETS = {
    "resnet18": Config(layers=(2, 2, 2, 2)),
    "resnet34": Config(layers=(3, 4, 6, 3)),
    "resnet50": _bottlenecks(3, 4, 6, 3),
    "resnet101": _bottlenecks(3, 4, 23, 3),
    "resnet152": _bottlenecks(3, 8, 36, 3),
    "resnet50-v1": _bottlenecks(3, 4, 6, 3, stride_on="1x1"),
    "resnet101-v1": _bottlenecks(3, 4, 23, 3, stride_on="1x1"),
    "resnet152-v1": _bottlenecks(3, 8, 36, 3, stride_on="1x1"),
    "resnet20": _cifar(20),
    "resnet32": _cifar(32),
    "resnet44": _cifar(44),
    "resnet56": _cifar(56),
    "resnet110": _cifar(110),
    "resnet18-v2": Config(layers=(2, 2, 2, 2), order="pre"),
    "resnet34-v2": Config(layers=(3, 4, 6, 3), order="pre"),
    "resnet50-v2": _bottlenecks(3, 4, 6, 3, order="pre"),
    "resnet101-v2": _bottlenecks(3, 4, 23, 3, order="pre"),
    "resnet152-v2": _bottlenecks(3, 8, 36, 3, order="pre"),
    "resnet200-v2": _bottlenecks(3, 24, 36, 3, order="pre"),
    "resnet20-v2": _cifar(20, order="pre"),
    "resnet56-v2": _cifar(56, order="pre"),
    "resnet110-v2": _cifar(110, order="pre"),
    "resnet164-v2": Config(
        layers=(18, 18, 18),
        block="bottleneck",
        width=16,
        stem="cifar",
        stride_on="1x1",
        order="pre",
        num_classes=10,
    ),
}

_TORCHVISION = (
    "torchvision's weight metadata, which has the multiply-adds to three decimals; in full counted on its network"
)
_V1 = "parameters as v1.5 (torchvision's weight metadata); multiply-adds computed from the authors' stride placement"
_CIFAR = "computed from akamaster/pytorch_resnet_cifar10, whose depths and widths are the paper's table 6"
_V2 = "timm's resnetv2_18 to resnetv2_152 have exactly these parameters; multiply-adds computed, those of v1.5"
_V2_200 = "computed from the blocks of resnet152-v2 and the depths of fb.resnet.torch's ResNet-200"
_V2_CIFAR = "computed: those of the network of the same depth with order=post"
_V2_164 = "computed from the authors' resnet-pre-act.lua; the paper has 1.7 M parameters"
_IMAGENET_SHAPE, _CIFAR_SHAPE = (3, 224, 224), (3, 32, 32)

# The paper uses a learning rate of 0.1 for batches of 256, and the flip.
_ON_PHOTOGRAPHS = {
    "optimizer": "momentum",
    "lr": 0.025,
    "batch_size": 64,
    "weight_decay": 1e-4,
    "schedule": "warmup-cosine",
    "epochs": 30,
    "flip": True,
}
# Section 4.2: 64 000 steps on 45 000 images are 182 epochs, the rate is divided by 10 at 32 000 and 48 000 steps.
# At 110 layers the paper starts with 400 steps at 0.01, and reports the same result with 0.1 from the start.
_ON_CIFAR = {
    "optimizer": "momentum",
    "lr": 0.1,
    "momentum": 0.9,
    "batch_size": 128,
    "weight_decay": 1e-4,
    "schedule": "step",
    "milestones": (0.5, 0.75),
    "gamma": 0.1,
    "epochs": 182,
    "crop": 4,
    "flip": True,
}


_RELEASE = "the authors' release"


def _cifar_error(error: float) -> Result:
    return Result("CIFAR-10", {"error": error}, "flips and crops in training", "the paper, table 6")


CARD = Card(
    title="Deep residual learning for image recognition",
    authors="K. He, X. Zhang, S. Ren, J. Sun",
    year=2015,
    link="https://arxiv.org/abs/1512.03385",
    family="cnn",
    equation="y = F(x, {W_i}) + W_s x",
    oracle="torchvision's ResNet, with strides moved for v1; the CIFAR family and v2: independent plain "
    "implementations",
    published={
        "resnet18": Published(11_689_512, 1_814_073_344, _IMAGENET_SHAPE, _TORCHVISION),
        "resnet34": Published(21_797_672, 3_663_761_408, _IMAGENET_SHAPE, _TORCHVISION),
        "resnet50": Published(25_557_032, 4_089_184_256, _IMAGENET_SHAPE, _TORCHVISION),
        "resnet101": Published(44_549_160, 7_801_405_440, _IMAGENET_SHAPE, _TORCHVISION),
        "resnet152": Published(60_192_808, 11_513_626_624, _IMAGENET_SHAPE, _TORCHVISION),
        "resnet50-v1": Published(25_557_032, 3_857_973_248, _IMAGENET_SHAPE, _V1),
        "resnet101-v1": Published(44_549_160, 7_570_194_432, _IMAGENET_SHAPE, _V1),
        "resnet152-v1": Published(60_192_808, 11_282_415_616, _IMAGENET_SHAPE, _V1),
        "resnet20": Published(269_722, 40_551_040, _CIFAR_SHAPE, _CIFAR),
        "resnet32": Published(464_154, 68_862_592, _CIFAR_SHAPE, _CIFAR),
        "resnet44": Published(658_586, 97_174_144, _CIFAR_SHAPE, _CIFAR),
        "resnet56": Published(853_018, 125_485_696, _CIFAR_SHAPE, _CIFAR),
        "resnet110": Published(1_727_962, 252_887_680, _CIFAR_SHAPE, _CIFAR),
        "resnet18-v2": Published(11_687_720, 1_814_073_344, _IMAGENET_SHAPE, _V2),
        "resnet34-v2": Published(21_795_880, 3_663_761_408, _IMAGENET_SHAPE, _V2),
        "resnet50-v2": Published(25_549_352, 4_089_184_256, _IMAGENET_SHAPE, _V2),
        "resnet101-v2": Published(44_541_480, 7_801_405_440, _IMAGENET_SHAPE, _V2),
        "resnet152-v2": Published(60_185_128, 11_513_626_624, _IMAGENET_SHAPE, _V2),
        "resnet200-v2": Published(64_666_152, 15_007_481_856, _IMAGENET_SHAPE, _V2_200),
        "resnet20-v2": Published(269_722, 40_551_040, _CIFAR_SHAPE, _V2_CIFAR),
        "resnet56-v2": Published(853_018, 125_485_696, _CIFAR_SHAPE, _V2_CIFAR),
        "resnet110-v2": Published(1_727_962, 252_887_680, _CIFAR_SHAPE, _V2_CIFAR),
        "resnet164-v2": Published(1_703_258, 244_500_992, _CIFAR_SHAPE, _V2_164),
    },
    divergences=(
        Divergence(
            "stride of the bottleneck",
            paper="on the first 1×1 convolution",
            here="on the 3×3 (v1.5); as published in the presets -v1, which load the original weights and cost less; "
            "basic "
            "blocks, at 18 and 34 layers, have only one form",
            common="on the 3×3 in torchvision's and most others; on the 1×1 in the authors' release",
        ),
        Divergence(
            "shortcuts",
            paper="A on CIFAR, A and B at 18 and 34 layers, B from 50; the position of A's zero channels is not "
            "specified",
            here="A on CIFAR, half of its zeros before the channels and half after, as in most implementations; B on "
            "ImageNet",
            common="B on ImageNet (torchvision); on CIFAR A with all zeros after, or B, 2 752 parameters more",
        ),
        Divergence(
            "pre-activation (-v2)",
            paper="110, 164 and 1001 layers on CIFAR, 152 and 200 on ImageNet; the first block gets conv1's output, "
            "normalized and activated",
            here="as in the paper, with the max-pool after that activation (fb.resnet.torch); the other depths follow "
            "the same rule",
            common="the max-pool before it, and in basic blocks the first shortcut before it (timm); biases in some "
            "convolutions (Keras: ResNet50V2 has 25 568 360 trainable parameters)",
        ),
        Divergence(
            "start of the blocks",
            paper="no special one",
            here="no special one; zero_init=true starts each block as its shortcut (Goyal et al., 2017)",
            common="γ = 0 in torchvision's zero_init_residual, off by default, and in timm, on by default",
        ),
        Divergence(
            "initialization",
            paper="normal, variance 2/n, with n from its reference 13: fan-in or fan-out of a layer",
            here="n is the fan-out; the last layer has PyTorch's default",
            common="as here (torchvision)",
        ),
        Divergence(
            "weight decay",
            paper="1e-4 on every parameter",
            here="1e-4 on weights, none on biases and norms",
            common="mostly on every parameter",
        ),
        Divergence(
            "training recipes",
            paper="one",
            here="the settings of the card",
            common="two, and so two sets of weights, for 50, 101 and 152 layers (torchvision)",
        ),
    ),
    results={
        "resnet18": (torchvision_accuracy("ResNet18_Weights.IMAGENET1K_V1", 69.758, 89.078),),
        "resnet34": (
            imagenet_error(24.52, 7.46, "10 crops", "the paper, table 3"),
            torchvision_accuracy("ResNet34_Weights.IMAGENET1K_V1", 73.314, 91.42),
        ),
        "resnet50": (
            torchvision_accuracy("ResNet50_Weights.IMAGENET1K_V1", 76.13, 92.862),
            torchvision_accuracy("ResNet50_Weights.IMAGENET1K_V2", 80.858, 95.434),
        ),
        "resnet101": (
            torchvision_accuracy("ResNet101_Weights.IMAGENET1K_V1", 77.374, 93.546),
            torchvision_accuracy("ResNet101_Weights.IMAGENET1K_V2", 81.886, 95.78),
        ),
        "resnet152": (
            torchvision_accuracy("ResNet152_Weights.IMAGENET1K_V1", 78.312, 94.046),
            torchvision_accuracy("ResNet152_Weights.IMAGENET1K_V2", 82.284, 96.002),
        ),
        "resnet50-v1": (
            imagenet_error(22.85, 6.71, "10 crops", "the paper, table 3"),
            imagenet_error(24.7, 7.8, "single crop", _RELEASE),
        ),
        "resnet101-v1": (
            imagenet_error(21.75, 6.05, "10 crops", "the paper, table 3"),
            imagenet_error(23.6, 7.1, "single crop", _RELEASE),
        ),
        "resnet152-v1": (
            imagenet_error(21.43, 5.71, "10 crops", "the paper, table 3"),
            imagenet_error(19.38, 4.49, "several scales", "the paper, table 4"),
            imagenet_error(23.0, 6.7, "single crop", _RELEASE),
        ),
        "resnet20": (_cifar_error(8.75),),
        "resnet32": (_cifar_error(7.51),),
        "resnet44": (_cifar_error(7.17),),
        "resnet56": (_cifar_error(6.97),),
        "resnet110": (_cifar_error(6.43),),
    },
    settings={n: _ON_CIFAR if c.stem == "cifar" else _ON_PHOTOGRAPHS for n, c in PRESETS.items()},
)
