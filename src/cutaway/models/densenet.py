"""Densely connected networks: the ImageNet family with 121 to 201 layers, and the CIFAR family, plain and BC.

After G. Huang, Z. Liu, L. van der Maaten, K. Q. Weinberger, Densely connected convolutional networks, 2016 (CVPR 2017).
<https://arxiv.org/abs/1608.06993>

Within a block every layer takes the concatenated feature maps of all layers before it, and adds k of its own (equation
2):

    x_l = H_l([x_0, x_1, …, x_{l−1}])        [ ]: joined along the channels;  k: the growth rate

      x_0  k_0 channels
      │
      ├──► H_1 ──► x_1  k more
      │            │
      ├────────────┼──► H_2 ──► x_2  k more
      │            │            │
      ├────────────┼────────────┼──► H_3 ──► x_3  k more
      │            │            │            │
      ▼            ▼            ▼            ▼
     [x_0,         x_1,         x_2,         x_3]  k_0 + 3k channels, to the transition

    H           BN, ReLU, 3×3 to k                                 the plain network
                BN, ReLU, 1×1 to 4k, BN, ReLU, 3×3 to k            B: with a bottleneck
    transition  BN, ReLU, 1×1 from m to ⌊θm⌋, mean over 2×2        C: compression, θ < 1;  BC: both, with θ = ½

Shapes, ImageNet family, from (N, C, 224, 224): stem 7×7 /2 (N, 2k, 112, 112), max-pool 3×3 /2 (N, 2k, 56, 56), four
blocks on maps of 56, 28, 14 and 7 with a transition between each two, BN, ReLU, mean over the map (N, channels), logits
(N, classes). CIFAR family, from (N, C, 32, 32): stem 3×3, without a norm, (N, 16 or 2k, 32, 32), three blocks of n
layers on maps of 32, 16 and 8; 3n + 4 layers, with bottlenecks 6n + 4. The stem rounds sizes up and a transition rounds
them down, so there is a least size of image; larger ones may have any.

Each layer concatenates all earlier maps, and every copy is kept for the backward pass: memory grows with the square of
the depth. `recompute=True` keeps only the maps, and concatenates and normalizes them again in the backward pass (G.
Pleiss and others, Memory-efficient implementation of DenseNets, 2017, <https://arxiv.org/abs/1707.06990>). The results
are bit-identical, for some more time. Under torch.compile it has no effect: the compiler chooses what to keep.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..core.errors import check_value
from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, Result, imagenet_error, torchvision_accuracy
from .config import ValidatedConfig, choice, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    layers: tuple[int, ...] = positive((6, 12, 24, 16))  # layers in each dense block
    growth_rate: int = positive(32)  # k: channels that each layer adds
    bottleneck: bool = True  # a 1×1 convolution reduces the input of each 3×3 convolution to 4k channels
    compression: float = 0.5  # θ: fraction of the channels that a transition keeps; 1 for all
    stem: str = choice("imagenet", ("imagenet", "cifar"))  # 7×7 stride 2, max-pool; cifar: 3×3 only, for small images
    stem_channels: int = positive(64)  # channels into the first block: 2k with bottleneck and compression, 16 without
    dropout: float = fraction(0.0)  # dropout rate after every convolution but the first
    recompute: bool = False  # recompute concatenation and normalization in the backward pass: less memory, more time
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(0 < self.compression <= 1, "compression", self.compression, "above 0 and at most 1")
        check_value(min(self.enters) >= 1, "compression", self.compression, "large enough to leave a channel")

    @property
    def enters(self) -> tuple[int, ...]:
        """The number of input channels of each block."""
        channels = [self.stem_channels]
        for layers in self.layers[:-1]:
            channels.append(int((channels[-1] + layers * self.growth_rate) * self.compression))
        return tuple(channels)

    @property
    def least_size(self) -> int:
        """The smallest height and width of an image, which leave one pixel to the last block.

        Each transition halves the map, rounding down; the ImageNet stem quarters the image, rounding up.
        """
        first_map: int = 2 ** (len(self.layers) - 1)
        return first_map if self.stem == "cifar" else 4 * (first_map - 1) + 1

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`; images of any size from `least_size` on are
        accepted.

        """
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)


def conv(in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution that keeps the size at stride 1. It has no bias: the normalization after it has one."""
    return nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=False)


def concat_maps(maps: Sequence[Tensor]) -> Tensor:
    """Return [x_0, …, x_{l−1}]: maps (N, C_i, H, W) concatenated, (N, ΣC_i, H, W). A single map is not copied."""
    return maps[0] if len(maps) == 1 else torch.cat(tuple(maps), dim=1)


@contextlib.contextmanager
def preserve_running_stats(norm: nn.Module) -> Iterator[None]:
    """Restore the running statistics of a normalization on exit; its outputs are unchanged."""
    kept = dict(norm.named_buffers())
    for name, buffer in kept.items():
        setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for name, buffer in kept.items():
            setattr(norm, name, buffer)


class DenseLayer(nn.Module):
    """H_l: all maps before it, (N, C, H, W), to k new channels, (N, k, H, W)."""

    def __init__(self, in_channels: int, config: Config) -> None:
        super().__init__()
        k = config.growth_rate
        self.bottleneck, self.dropout, self.recompute = config.bottleneck, config.dropout, config.recompute
        self.norm1 = nn.BatchNorm2d(in_channels)
        if config.bottleneck:
            self.conv1 = conv(in_channels, 4 * k, 1)
            self.norm2 = nn.BatchNorm2d(4 * k)
            self.conv2 = conv(4 * k, k, 3)
        else:
            self.conv1 = conv(in_channels, k, 3)

    def forward(self, *maps: Tensor) -> Tensor:
        """Return x_l, given maps (N, C_i, H, W) with C channels together."""
        if self.recompute and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # Recomputation stops at the input of the convolution, the last value that its gradient needs.
            x = checkpoint(
                self.first_convolution,
                *maps,
                use_reentrant=False,
                preserve_rng_state=False,  # nothing in it is random
                context_fn=lambda: (contextlib.nullcontext(), preserve_running_stats(self.norm1)),
            )
        else:
            x = self.first_convolution(*maps)
        x = apply_dropout(x, self)
        if self.bottleneck:
            x = self.conv2(F.relu(self.norm2(x), inplace=True))  # (N, 4k, H, W) to (N, k, H, W)
            x = apply_dropout(x, self)
        return x

    def first_convolution(self, *maps: Tensor) -> Tensor:
        """Concatenate (N, C, H, W), normalize, and convolve to (N, 4k or k, H, W): the part that takes the memory."""
        x: Tensor = self.conv1(F.relu(self.norm1(concat_maps(maps)), inplace=True))
        return x


class DenseBlock(nn.Sequential):
    """A block whose layers each take all maps before them: (N, C, H, W) to (N, C + layers · k, H, W)."""

    def __init__(self, layers: int, in_channels: int, config: Config) -> None:
        super().__init__()
        self.recompute = config.recompute
        for i in range(layers):
            self.add_module(f"denselayer{i + 1}", DenseLayer(in_channels + i * config.growth_rate, config))

    def forward(self, x: Tensor) -> Tensor:
        """Return [x_0, …, x_L], given x_0."""
        maps = [x]
        for layer in self:
            maps.append(layer(*maps))
            if not self.recompute:
                maps = [
                    concat_maps(maps)
                ]  # one wide map costs less to join, and to differentiate, than many narrow ones
        return concat_maps(maps)


class Transition(nn.Module):
    """The layer between two blocks: (N, m, H, W) to (N, ⌊θm⌋, ⌊H/2⌋, ⌊W/2⌋)."""

    def __init__(self, in_channels: int, out_channels: int, config: Config) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.norm = nn.BatchNorm2d(in_channels)
        self.conv = conv(in_channels, out_channels, 1)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Apply BN, ReLU, 1×1 and the mean over 2×2."""
        x = apply_dropout(self.conv(F.relu(self.norm(x), inplace=True)), self)
        y: Tensor = self.pool(x)
        return y


def apply_dropout(x: Tensor, part: DenseLayer | Transition) -> Tensor:
    """Apply dropout with the part's own rate in training. At rate 0 no random number is drawn."""
    return F.dropout(x, part.dropout) if part.training and part.dropout > 0 else x


class DenseNet(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes).

    The names of its parts are torchvision's, without `features.`.
    """

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        if config.stem == "imagenet":
            self.conv0 = conv(config.in_channels, config.stem_channels, 7, stride=2)
            self.norm0 = nn.BatchNorm2d(config.stem_channels)
            self.pool0 = nn.MaxPool2d(3, stride=2, padding=1)
        else:
            self.conv0 = conv(config.in_channels, config.stem_channels, 3)

        channels = config.stem_channels
        for i, (layers, enters) in enumerate(zip(config.layers, config.enters), start=1):
            if i > 1:
                self.add_module(f"transition{i - 1}", Transition(channels, enters, config))
            self.add_module(f"denseblock{i}", DenseBlock(layers, enters, config))
            channels = enters + layers * config.growth_rate

        self.norm5 = nn.BatchNorm2d(channels)  # so named after the fourth block of the ImageNet family
        self.classifier = nn.Linear(channels, config.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(self.classifier.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the mean over each feature map, (N, channels).

        Raises ModelError for images too small.
        """
        validate_image_size(x, self.config.least_size, "densenet")
        x = self.conv0(x)  # (N, stem_channels, H/2, W/2); H, W with the CIFAR stem
        if self.config.stem == "imagenet":
            x = self.pool0(F.relu(self.norm0(x), inplace=True))  # (N, stem_channels, H/4, W/4)
        x = self.get_submodule("denseblock1")(x)
        for i in range(2, len(self.config.layers) + 1):
            x = self.get_submodule(f"transition{i - 1}")(x)
            x = self.get_submodule(f"denseblock{i}")(x)
        x = F.relu(self.norm5(x), inplace=True)
        return F.adaptive_avg_pool2d(x, 1).flatten(1)  # (N, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.classifier(self.features(x))
        return logits


Model = DenseNet


def cifar(layers: int, growth: int, bc: bool = False) -> Config:
    """Return the CIFAR config of that depth: three blocks of n layers, two transitions, stem and head."""
    n = (layers - 4) // (6 if bc else 3)
    return Config(
        layers=(n, n, n),
        growth_rate=growth,
        bottleneck=bc,
        compression=0.5 if bc else 1.0,
        stem="cifar",
        stem_channels=2 * growth if bc else 16,
        num_classes=10,
    )


PRESETS = {
    "densenet121": Config(layers=(6, 12, 24, 16)),
    "densenet161": Config(layers=(6, 12, 36, 24), growth_rate=48, stem_channels=96),
    "densenet169": Config(layers=(6, 12, 32, 32)),
    "densenet201": Config(layers=(6, 12, 48, 32)),
    "densenet-40-12": cifar(40, 12),
    "densenet-bc-100-12": cifar(100, 12, bc=True),
}

_TORCHVISION = (
    "torchvision's weight metadata, which has the multiply-adds to three decimals; in full counted on its network"
)
_CIFAR = "the paper's table 2, which has the parameters in millions; in full computed from its section 3"
_IMAGENET_SHAPE, _CIFAR_SHAPE = (3, 224, 224), (3, 32, 32)

# The paper's rate of 0.1 is for batches of 256; Nesterov's momentum and the flip are the paper's too.
_ON_PHOTOGRAPHS = {
    "optimizer": "nesterov",
    "lr": 0.025,
    "momentum": 0.9,
    "batch_size": 64,
    "weight_decay": 1e-4,
    "schedule": "warmup-cosine",
    "epochs": 30,
    "flip": True,
}
# Section 4.2, with its augmentation, which is why there is no dropout.
_ON_CIFAR = {
    "optimizer": "nesterov",
    "lr": 0.1,
    "momentum": 0.9,
    "batch_size": 64,
    "weight_decay": 1e-4,
    "schedule": "step",
    "milestones": (0.5, 0.75),
    "gamma": 0.1,
    "epochs": 300,
    "crop": 4,
    "flip": True,
}


_RELEASE = "the authors' release"


def _cifar_errors(plain: float, augmented: float, hundred: float) -> tuple[Result, ...]:
    flipped = "flips and crops in training"
    return (
        Result("CIFAR-10", {"error": augmented}, flipped, "the paper, table 2"),
        Result("CIFAR-10", {"error": plain}, "no augmentation", "the paper, table 2"),
        Result("CIFAR-100", {"error": hundred}, flipped, "the paper, table 2"),
    )


CARD = Card(
    title="Densely connected convolutional networks",
    authors="G. Huang, Z. Liu, L. van der Maaten, K. Q. Weinberger",
    year=2016,
    link="https://arxiv.org/abs/1608.06993",
    family="cnn",
    equation="x_l = H_l([x_0, x_1, …, x_{l−1}])",
    oracle="torchvision's DenseNet; the CIFAR family: an independent implementation that sums over sources instead of "
    "concatenating",
    published={
        "densenet121": Published(7_978_856, 2_834_161_664, _IMAGENET_SHAPE, _TORCHVISION),
        "densenet161": Published(28_681_000, 7_727_907_072, _IMAGENET_SHAPE, _TORCHVISION),
        "densenet169": Published(14_149_480, 3_359_843_328, _IMAGENET_SHAPE, _TORCHVISION),
        "densenet201": Published(20_013_928, 4_291_365_888, _IMAGENET_SHAPE, _TORCHVISION),
        "densenet-40-12": Published(1_019_722, 264_812_928, _CIFAR_SHAPE, _CIFAR),
        "densenet-bc-100-12": Published(769_162, 287_929_692, _CIFAR_SHAPE, _CIFAR),
    },
    divergences=(
        Divergence(
            "dropout",
            paper="0.2 after every convolution but the first, only without augmentation",
            here="at the same positions; 0 by default",
            common="torchvision's: after the last convolution of each layer only",
        ),
        Divergence(
            "stem of the CIFAR family",
            paper="16 channels; with BC 2k",
            here="as published",
            common="2k for both in the authors' later release",
        ),
        Divergence(
            "initialization",
            paper="normal, variance 2/n (K. He and others, 2015)",
            here="n is the fan-in; the head has PyTorch's default weights and a bias of 0",
            common="as here (torchvision); n is the fan-out (the authors' release)",
        ),
        Divergence(
            "running statistics with recomputation",
            paper="none; in the authors' release, which restores the old statistics, the batch counts once",
            here="as in the authors' release",
            common="it counts twice (torchvision's memory_efficient)",
        ),
        Divergence(
            "weight decay",
            paper="1e-4 on every parameter",
            here="1e-4 on weights, none on biases and norms",
            common="mostly on every parameter",
        ),
    ),
    results={
        "densenet121": (
            imagenet_error(25.0, None, "single crop", _RELEASE),
            torchvision_accuracy("DenseNet121_Weights.IMAGENET1K_V1", 74.434, 91.972),
        ),
        "densenet161": (
            imagenet_error(22.2, None, "single crop", _RELEASE),
            torchvision_accuracy("DenseNet161_Weights.IMAGENET1K_V1", 77.138, 93.56),
        ),
        "densenet169": (
            imagenet_error(23.6, None, "single crop", _RELEASE),
            torchvision_accuracy("DenseNet169_Weights.IMAGENET1K_V1", 75.6, 92.806),
        ),
        "densenet201": (
            imagenet_error(22.5, None, "single crop", _RELEASE),
            torchvision_accuracy("DenseNet201_Weights.IMAGENET1K_V1", 76.896, 93.37),
        ),
        "densenet-40-12": _cifar_errors(7.0, 5.24, 24.42),
        "densenet-bc-100-12": _cifar_errors(5.92, 4.51, 22.27),
    },
    settings={n: _ON_CIFAR if c.stem == "cifar" else _ON_PHOTOGRAPHS for n, c in PRESETS.items()},
)
