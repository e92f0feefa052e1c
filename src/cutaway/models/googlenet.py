"""GoogLeNet, the first Inception network: torchvision's form and the published one.

After C. Szegedy, W. Liu, Y. Jia, P. Sermanet, S. Reed, D. Anguelov, D. Erhan, V. Vanhoucke, A. Rabinovich, Going deeper
with convolutions, 2014 (CVPR 2015). <https://arxiv.org/abs/1409.4842>

An Inception module applies windows of several sizes in parallel and concatenates the results along channels. 1×1
convolutions reduce the channels before the costly windows, and after the pool (figure 2b):

                x (N, C, H, W)
      ┌─────────┬───┴─────┬─────────┐
      │      1×1, r₃   1×1, r₅   max 3×3        y = [ f₁(x), f₃(g₃(x)), f₅(g₅(x)), f_p(max x) ]
    1×1, n₁  3×3, n₃   5×5, n₅   1×1, p         ReLU follows every convolution
      └─────────┴───┬─────┴─────────┘
                y (N, n₁ + n₃ + n₅ + p, H, W)

Shapes, from (N, C, 224, 224): 7×7 /2 (N, 64, 112, 112), max 3×3 /2, 1×1 and 3×3 (N, 192, 56, 56), max 3×3 /2, modules
3a and 3b (N, 480, 28, 28), max 3×3 /2, 4a to 4e (N, 832, 14, 14), max /2, 5a and 5b (N, 1024, 7, 7), mean (N, 1024),
logits (N, classes). The pools round up. Images of at least 15×15 pixels are accepted, with `stem="small"` of at least
4×4. The small stem is a 3×3 convolution without stride and has no first pool: a CIFAR image of 32×32 is then 16×16 at
3a and 4×4 at 5b.

In training two auxiliary heads use the outputs of 4a and 4d, (N, 512, 14, 14) and (N, 528, 14, 14): mean over a grid of
4×4, 1×1 convolution to 128 channels, 1024 units, dropout, logits. Their losses have the weight `auxiliary_weight`. They
are not run in eval mode, and `auxiliary=False` removes them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import ImageSpec
from ..nn.normalization import local_response_norm
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, imagenet_error, torchvision_accuracy
from .config import ValidatedConfig, choice, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    norm: str = choice("batch", ("batch", "response"))  # batch: in every convolution; response: twice, as published
    large_kernel: int = 3  # window of the branch with 5 in the paper: 3 as in torchvision, or 5
    auxiliary: bool = True  # two more heads in training, on the maps of 4a and 4d
    auxiliary_pool: str = choice("equal", ("equal", "5x5"))  # their 4×4 cells: equal parts; 5x5: windows, as published
    dropout: float = fraction(0.2)  # dropout rate before the head; in the auxiliary heads it is 0.7
    stem: str = choice("imagenet", ("imagenet", "small"))  # 7×7 stride 2, max-pool; small: 3×3 only, for small images
    width: int = positive(64)  # channels of the first convolution, a multiple of 8; all others change with it
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.large_kernel in (3, 5), "large_kernel", self.large_kernel, "3 or 5")
        check_value(self.width % 8 == 0, "width", self.width, "a multiple of 8")

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """The smallest height and width: from the end, the map before the third pool of 3×3 /2 needs 2 pixels."""
        return 15 if self.stem == "imagenet" else 4

    def scaled(self, channels: int) -> int:
        """Return the number of channels at this width for `channels` of the paper's table, which are all divisible by
        8.

        """
        return channels * self.width // 64


class Convolution(nn.Module):
    """Convolution, normalization if it is by the batch, ReLU: (N, C, H, W) to (N, C', ⌈H/s⌉, ⌈W/s⌉)."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, config: Config, stride: int = 1) -> None:
        super().__init__()
        batch = config.norm == "batch"
        self.conv = nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=not batch)
        self.bn = nn.BatchNorm2d(out_channels, eps=1e-3) if batch else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return ReLU(BN(W ∗ x)) or ReLU(W ∗ x + b). No gradient needs the values that are overwritten in place."""
        return F.relu(self.bn(self.conv(x)), inplace=True)


class ResponseNorm(nn.LocalResponseNorm):
    """x / (1 + 10⁻⁴/5 Σ x²)^0.75, the sum over a channel and two on either side: (N, C, H, W) to (N, C, H, W)."""

    def __init__(self) -> None:
        super().__init__(5, alpha=1e-4, beta=0.75, k=1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return each channel, less where its neighbours are large."""
        return local_response_norm(x, self.size, alpha=self.alpha, beta=self.beta, k=self.k)


class Inception(nn.Module):
    """Four branches side by side: (N, C, H, W) to (N, n₁ + n₃ + n₅ + p, H, W)."""

    def __init__(self, in_channels: int, widths: tuple[int, ...], config: Config) -> None:
        """Build the module; `widths` are n₁, r₃, n₃, r₅, n₅, p of the paper's table, and `in_channels` is C."""
        super().__init__()
        c, n1, r3, n3, r5, n5, p = (config.scaled(n) for n in (in_channels, *widths))
        self.branch1 = Convolution(c, n1, 1, config)
        self.branch2 = nn.Sequential(Convolution(c, r3, 1, config), Convolution(r3, n3, 3, config))
        self.branch3 = nn.Sequential(Convolution(c, r5, 1, config), Convolution(r5, n5, config.large_kernel, config))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), Convolution(c, p, 1, config))

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' maps, joined along channels."""
        return torch.cat((self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)), dim=1)


class AuxiliaryHead(nn.Module):
    """Logits from the middle of the network, for training: (N, C, H, W) to (N, classes)."""

    def __init__(self, in_channels: int, config: Config) -> None:
        super().__init__()
        reduced, units = config.scaled(128), config.scaled(1024)
        self.pool = config.auxiliary_pool
        self.conv = Convolution(config.scaled(in_channels), reduced, 1, config)
        self.fc1 = nn.Linear(reduced * 4 * 4, units)
        self.fc2 = nn.Linear(units, config.num_classes)
        self.dropout = nn.Dropout(0.7)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        if self.pool == "5x5" and all((n - 5) // 3 + 1 == 4 for n in x.shape[2:]):
            x = F.avg_pool2d(x, 5, stride=3)  # (N, C, 4, 4)
        else:
            x = F.adaptive_avg_pool2d(x, 4)  # (N, C, 4, 4)
        x = self.conv(x).flatten(1)  # (N, 128·4·4)
        x = self.dropout(F.relu(self.fc1(x), inplace=True))  # (N, 1024)
        logits: Tensor = self.fc2(x)
        return logits


class GoogLeNet(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes).

    The names of its parts are torchvision's, key for key.
    """

    takes = (ImageSpec,)
    auxiliary_weight = 0.3  # of each auxiliary head's loss (section 5)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        first, second = config.scaled(64), config.scaled(192)
        if config.stem == "imagenet":
            self.conv1 = Convolution(config.in_channels, first, 7, config, stride=2)
            self.maxpool1: nn.Module = _halving(3)
        else:
            self.conv1 = Convolution(config.in_channels, first, 3, config)
            self.maxpool1 = nn.Identity()
        self.norm1 = _response(config)
        self.conv2 = Convolution(first, first, 1, config)
        self.conv3 = Convolution(first, second, 3, config)
        self.norm2 = _response(config)
        self.maxpool2 = _halving(3)

        #                                   C    n₁   r₃   n₃   r₅  n₅   p
        self.inception3a = Inception(192, (64, 96, 128, 16, 32, 32), config)
        self.inception3b = Inception(256, (128, 128, 192, 32, 96, 64), config)
        self.maxpool3 = _halving(3)
        self.inception4a = Inception(480, (192, 96, 208, 16, 48, 64), config)
        self.inception4b = Inception(512, (160, 112, 224, 24, 64, 64), config)
        self.inception4c = Inception(512, (128, 128, 256, 24, 64, 64), config)
        self.inception4d = Inception(512, (112, 144, 288, 32, 64, 64), config)
        self.inception4e = Inception(528, (256, 160, 320, 32, 128, 128), config)
        self.maxpool4 = _halving(2)
        self.inception5a = Inception(832, (256, 160, 320, 32, 128, 128), config)
        self.inception5b = Inception(832, (384, 192, 384, 48, 128, 128), config)

        if config.auxiliary:
            self.aux1 = AuxiliaryHead(512, config)
            self.aux2 = AuxiliaryHead(528, config)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(config.dropout)
        self.fc = nn.Linear(config.scaled(1024), config.num_classes)
        self._initialize()

    def _initialize(self) -> None:
        for module in self.modules():
            if self.config.norm == "batch" and isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.01, a=-2, b=2)
            elif isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def _features_and_auxiliary(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the input of the head before dropout, and the logits of the auxiliary heads, which run in training
        only.

        They run in the middle of the forward pass, so that their backward pass comes when much memory is free again.
        """
        validate_image_size(x, self.config.least_size, "googlenet")
        x = self.norm1(self.maxpool1(self.conv1(x)))  # (N, 64, 56, 56), from 224
        x = self.maxpool2(self.norm2(self.conv3(self.conv2(x))))  # (N, 192, 28, 28)
        x = self.inception3b(self.inception3a(x))  # (N, 480, 28, 28)
        training = self.training and self.config.auxiliary
        x = self.inception4a(self.maxpool3(x))  # (N, 512, 14, 14)
        auxiliary = (self.aux1(x),) if training else ()
        x = self.inception4d(self.inception4c(self.inception4b(x)))  # (N, 528, 14, 14)
        auxiliary += (self.aux2(x),) if training else ()
        x = self.maxpool4(self.inception4e(x))  # (N, 832, 7, 7)
        x = self.avgpool(self.inception5b(self.inception5a(x)))  # (N, 1024, 1, 1)
        return x.flatten(1), auxiliary

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head before dropout: the mean over the last map, (N, 1024)."""
        return self._features_and_auxiliary(x)[0]

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the logits, shape (N, classes); in training, with auxiliary heads, three of them: the head's, 4a's,
        4d's.

        """
        features, auxiliary = self._features_and_auxiliary(x)
        logits: Tensor = self.fc(self.dropout(features))
        return (logits, *auxiliary) if auxiliary else logits


def _halving(kernel: int) -> nn.MaxPool2d:
    return nn.MaxPool2d(kernel, stride=2, ceil_mode=True)


def _response(config: Config) -> nn.Module:
    return ResponseNorm() if config.norm == "response" else nn.Identity()


Model = GoogLeNet

PRESETS = {
    "googlenet": Config(),
    "googlenet-2014": Config(norm="response", large_kernel=5, auxiliary_pool="5x5", dropout=0.4),
}

_IMAGE = (3, 224, 224)
_TABLE_1_MACS = 1_582_671_872  # of the widths in the paper's table 1

# torchvision did not train its form but brought weights over: these are the settings of the residual networks.
_BATCH = {
    "optimizer": "momentum",
    "lr": 0.025,
    "batch_size": 64,
    "weight_decay": 1e-4,
    "schedule": "warmup-cosine",
    "epochs": 30,
    "flip": True,
}
# The paper: momentum of 0.9 and a rate that falls by 4 % every 8 epochs. The rest is from Caffe's replication
# (quick_solver.prototxt), whose rate falls as the square root of the steps left, over 60 epochs.
_PUBLISHED = {
    "optimizer": "momentum",
    "lr": 0.01,
    "momentum": 0.9,
    "batch_size": 32,
    "weight_decay": 2e-4,
    "schedule": "warmup-cosine",
    "epochs": 60,
    "flip": True,
}

CARD = Card(
    title="Going deeper with convolutions",
    authors="C. Szegedy, W. Liu, Y. Jia, P. Sermanet, S. Reed, D. Anguelov, D. Erhan, V. Vanhoucke, A. Rabinovich",
    year=2014,
    link="https://arxiv.org/abs/1409.4842",
    family="cnn",
    equation="y = [ f₁(x), f₃(g₃(x)), f₅(g₅(x)), f_p(max x) ]",
    oracle="torchvision's GoogLeNet; googlenet-2014: an independent implementation from the paper's table 1",
    published={
        "googlenet": Published(
            13_004_888,
            1_498_376_192,
            _IMAGE,
            "counted on torchvision's network, parameters with its auxiliary heads, multiply-adds without; its weight "
            "metadata has 6 624 904 parameters without the heads and 1.498 billion multiply-adds",
        ),
        "googlenet-2014": Published(
            6_998_552 + 3_188_840 + 3_190_888,
            _TABLE_1_MACS,
            _IMAGE,
            "computed from the paper's table 1: the network and its two auxiliary heads; multiply-adds without them",
        ),
    },
    divergences=(
        Divergence(
            "normalization",
            paper="local response, twice in the stem; biases in every convolution",
            here="googlenet: batch normalization after every convolution, ε = 10⁻³, no biases; googlenet-2014: as "
            "published",
            common="batch normalization (torchvision, whose weights come from a TensorFlow release); local response "
            "(Caffe)",
        ),
        Divergence(
            "window of the third branch",
            paper="5×5",
            here="googlenet: 3×3, for torchvision's weights; googlenet-2014: 5×5",
            common="3×3 (torchvision, after TensorFlow's: pytorch/vision issue 906); 5×5 (Caffe)",
        ),
        Divergence(
            "grid of the auxiliary heads",
            paper="windows of 5×5, 3 apart: 4×4 of them on a map of 14×14",
            here="googlenet: 4×4 equal parts; googlenet-2014: as published where it comes to 4×4, else equal parts",
            common="equal parts, on a map of 14×14 windows of 4×4 (torchvision)",
        ),
        Divergence(
            "order of the auxiliary outputs",
            paper="not specified",
            here="logits, 4a's, 4d's",
            common="logits, 4d's, 4a's (torchvision; under each other's names until November 2024, pull request 8743)",
        ),
        Divergence(
            "input",
            paper="the mean subtracted",
            here="as the data was prepared",
            common="torchvision's weights expect mean and standard deviation 0.5; transform_input=True converts "
            "images normalized with ImageNet's statistics",
        ),
        Divergence(
            "local response normalization",
            paper="no constants; order of figure 3: pool, norm, 1×1, 3×3, norm, pool",
            here="5 channels, k = 1, α = 10⁻⁴ divided by 5, β = 0.75; order as published",
            common="as here (Caffe's bvlc_googlenet, which the paper's first author helped with)",
        ),
        Divergence(
            "initialization",
            paper="not specified",
            here="googlenet: as torchvision; googlenet-2014: He initialization (fan-in) of convolutions, because the "
            "signal would vanish in its 22 layers otherwise; biases 0; PyTorch's default elsewhere",
            common="normal, standard deviation 0.01, truncated at ±2 (torchvision); Xavier, biases 0.2 (Caffe)",
        ),
        Divergence(
            "dropout before the head",
            paper="0.4",
            here="googlenet: 0.2; googlenet-2014: 0.4",
            common="0.2 (torchvision); 0.4 (Caffe)",
        ),
        Divergence(
            "MACs (multiply-adds)",
            paper="1.5 billion in the text",
            here=f"googlenet-2014: {_TABLE_1_MACS / 1e9:.3f} billion, from the widths of the paper's table 1",
        ),
    ),
    results={
        "googlenet": (torchvision_accuracy("GoogLeNet_Weights.IMAGENET1K_V1", 69.778, 89.53),),
        "googlenet-2014": (
            imagenet_error(None, 10.07, "single crop", "the paper, table 3"),
            imagenet_error(None, 6.67, "7 networks, 144 crops", "the paper, table 3"),
            imagenet_error(31.3, 11.1, "single crop", "Caffe's bvlc_googlenet, another training"),
        ),
    },
    settings={"googlenet": _BATCH, "googlenet-2014": _PUBLISHED},
)
