"""Inception-v3: Inception modules with large windows factorized into small and one-dimensional ones.

After C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens, Z. Wojna, Rethinking the Inception architecture for computer
vision, 2015 (CVPR 2016). <https://arxiv.org/abs/1512.00567>

A window of n×n is replaced by one of 1×n followed by one of n×1: two layers with the same receptive field at 2/n of the
cost (section 3.2). Maps are reduced by convolutions with stride 2 and a pool in parallel, which costs less than
widening before pooling, and loses less than pooling first (section 5):

         A, map of 35×35                  B, 35×35 to 17×17          C, map of 17×17
      ┌──────┬──┴───┬──────┐          ┌───────┬───┴───┐           ┌──────┬──┴───┬──────┐
      │     1×1    1×1     │          │      1×1      │           │     1×1    1×1     │
      │      │      │      │          │       │       │           │     1×7    7×1     │
      │      │     3×3   mean         │      3×3      │           │      │     1×7   mean
      │      │      │      │          │       │       │           │      │     7×1     │
     1×1    5×5    3×3    1×1       3×3/2   3×3/2   max/2        1×1    7×1    1×7    1×1
      └──────┴──┬───┴──────┘          └───────┴───┬───┘           └──────┴──┬───┴──────┘

            D, 17×17 to 8×8                E, map of 8×8
       ┌───────┬───┴───┐             ┌──────┬────┴───┬──────┐
      1×1     1×1      │             │     1×1      1×1     │
       │      1×7      │             │      │       3×3   mean        mean, max: over 3×3
       │      7×1      │             │    ┌─┴─┐    ┌─┴─┐    │         /2: stride 2, no padding
     3×3/2   3×3/2   max/2          1×1  1×3 3×1  1×3 3×1  1×1
       └───────┴───┬───┘             └────┴───┴──┬─┴───┴────┘

Every convolution is followed by batch normalization and ReLU: a = ReLU(BN(W ∗ x)), ε = 10⁻³. Shapes, from (N, C, 299,
299): 3×3 /2 (N, 32, 149, 149), 3×3 (N, 32, 147, 147), 3×3 padded (N, 64, 147, 147), max 3×3 /2, 1×1 (N, 80, 73, 73),
3×3 (N, 192, 71, 71), max 3×3 /2 (N, 192, 35, 35), three of A (N, 288, 35, 35), B, four of C (N, 768, 17, 17), D, two of
E (N, 2048, 8, 8), mean (N, 2048), logits (N, classes). Images of at least 75×75 pixels are accepted, with
`stem="small"` of at least 15×15. The small stem is padded, has no stride and keeps only the second pool, so that a
CIFAR image of 32×32 is 15×15 at A and 3×3 at E.

In training an auxiliary head uses the last map of C: means of 5×5 windows, 3 apart, (N, 768, 5, 5), 1×1 to 128
channels, 5×5 without padding to 768, mean, logits. Its loss has the weight `auxiliary_weight`. It is not run in eval
mode, and `auxiliary=False` removes it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import ImageSpec
from .base import BaseModel, validate_image_size
from .card import Card, Divergence, Published, imagenet_error, torchvision_accuracy
from .config import ValidatedConfig, choice, fraction, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    auxiliary: bool = True  # one more head in training, on the last map of 17×17
    dropout: float = fraction(0.5)  # dropout rate before the head
    stem: str = choice("imagenet", ("imagenet", "small"))  # stride 2 and two pools; small: one pool, for few pixels
    width: int = positive(32)  # channels of the first convolution, a multiple of 2; all others change with it
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(self.width % 2 == 0, "width", self.width, "a multiple of 2")

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def least_size(self) -> int:
        """The smallest height and width: from the end, D needs a map of 3×3, B of 7×7, the second pool of 15×15."""
        return 75 if self.stem == "imagenet" else 15

    def scaled(self, channels: int) -> int:
        """Return the number of channels at this width for `channels` of the published network, which are all divisible
        by 16.

        """
        return channels * self.width // 32


class Convolution(nn.Module):
    """ReLU(BN(W ∗ x)): (N, C, H, W) to (N, C', H', W')."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int | tuple[int, int], stride: int = 1, padded: bool = True
    ) -> None:
        """Build the layer; `padded` keeps the size of the map at stride 1."""
        super().__init__()
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding = (height // 2, width // 2) if padded else 0
        self.conv = nn.Conv2d(in_channels, out_channels, (height, width), stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(out_channels, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        """Return ReLU(BN(W ∗ x)). No gradient needs the values that are overwritten in place."""
        return F.relu(self.bn(self.conv(x)), inplace=True)


class MeanConvolution(Convolution):
    """ReLU(BN(W ∗ mean x)), the mean over 3×3, the padding counted: (N, C, H, W) to (N, C', H, W).

    A 1×1 convolution and a mean can change places, for both are linear and act on other axes. The convolution comes
    first: fewer channels leave it than enter, and the mean is taken of those.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return ReLU(BN(mean(W ∗ x)))."""
        x = F.avg_pool2d(self.conv(x), 3, stride=1, padding=1)
        return F.relu(self.bn(x), inplace=True)


class InceptionA(nn.Module):
    """Windows of 1×1, 5×5 and twice 3×3: (N, C, H, W) to (N, 224 + pool, H, W)."""

    def __init__(self, in_channels: int, pool_channels: int, config: Config) -> None:
        super().__init__()
        c = config.scaled
        self.branch1x1 = Convolution(c(in_channels), c(64), 1)
        self.branch5x5_1 = Convolution(c(in_channels), c(48), 1)
        self.branch5x5_2 = Convolution(c(48), c(64), 5)
        self.branch3x3dbl_1 = Convolution(c(in_channels), c(64), 1)
        self.branch3x3dbl_2 = Convolution(c(64), c(96), 3)
        self.branch3x3dbl_3 = Convolution(c(96), c(96), 3)
        self.branch_pool = MeanConvolution(c(in_channels), c(pool_channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' maps, joined along channels."""
        branch1x1 = self.branch1x1(x)
        branch5x5 = self.branch5x5_2(self.branch5x5_1(x))
        branch3x3dbl = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat((branch1x1, branch5x5, branch3x3dbl, self.branch_pool(x)), dim=1)


class InceptionB(nn.Module):
    """To half the size: (N, C, H, W) to (N, C + 480, ⌊(H − 1)/2⌋, ⌊(W − 1)/2⌋)."""

    def __init__(self, in_channels: int, config: Config) -> None:
        super().__init__()
        c = config.scaled
        self.branch3x3 = Convolution(c(in_channels), c(384), 3, stride=2, padded=False)
        self.branch3x3dbl_1 = Convolution(c(in_channels), c(64), 1)
        self.branch3x3dbl_2 = Convolution(c(64), c(96), 3)
        self.branch3x3dbl_3 = Convolution(c(96), c(96), 3, stride=2, padded=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' maps and the largest of 3×3 of each channel, joined along channels."""
        branch3x3 = self.branch3x3(x)
        branch3x3dbl = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat((branch3x3, branch3x3dbl, F.max_pool2d(x, 3, stride=2)), dim=1)


class InceptionC(nn.Module):
    """Windows of 1×1, 7×7 and twice 7×7, those of one dimension each: (N, 768, H, W) to (N, 768, H, W)."""

    def __init__(self, in_channels: int, inner_channels: int, config: Config) -> None:
        super().__init__()
        c = config.scaled
        inner = c(inner_channels)
        self.branch1x1 = Convolution(c(in_channels), c(192), 1)
        self.branch7x7_1 = Convolution(c(in_channels), inner, 1)
        self.branch7x7_2 = Convolution(inner, inner, (1, 7))
        self.branch7x7_3 = Convolution(inner, c(192), (7, 1))
        self.branch7x7dbl_1 = Convolution(c(in_channels), inner, 1)
        self.branch7x7dbl_2 = Convolution(inner, inner, (7, 1))
        self.branch7x7dbl_3 = Convolution(inner, inner, (1, 7))
        self.branch7x7dbl_4 = Convolution(inner, inner, (7, 1))
        self.branch7x7dbl_5 = Convolution(inner, c(192), (1, 7))
        self.branch_pool = MeanConvolution(c(in_channels), c(192))

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' maps, joined along channels."""
        branch1x1 = self.branch1x1(x)
        branch7x7 = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        branch7x7dbl = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        branch7x7dbl = self.branch7x7dbl_5(self.branch7x7dbl_4(branch7x7dbl))
        return torch.cat((branch1x1, branch7x7, branch7x7dbl, self.branch_pool(x)), dim=1)


class InceptionD(nn.Module):
    """To half the size: (N, C, H, W) to (N, C + 512, ⌊(H − 1)/2⌋, ⌊(W − 1)/2⌋)."""

    def __init__(self, in_channels: int, config: Config) -> None:
        super().__init__()
        c = config.scaled
        self.branch3x3_1 = Convolution(c(in_channels), c(192), 1)
        self.branch3x3_2 = Convolution(c(192), c(320), 3, stride=2, padded=False)
        self.branch7x7x3_1 = Convolution(c(in_channels), c(192), 1)
        self.branch7x7x3_2 = Convolution(c(192), c(192), (1, 7))
        self.branch7x7x3_3 = Convolution(c(192), c(192), (7, 1))
        self.branch7x7x3_4 = Convolution(c(192), c(192), 3, stride=2, padded=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' maps and the largest of 3×3 of each channel, joined along channels."""
        branch3x3 = self.branch3x3_2(self.branch3x3_1(x))
        branch7x7x3 = self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x)))
        branch7x7x3 = self.branch7x7x3_4(branch7x7x3)
        return torch.cat((branch3x3, branch7x7x3, F.max_pool2d(x, 3, stride=2)), dim=1)


class InceptionE(nn.Module):
    """Windows of one dimension side by side: (N, C, H, W) to (N, 2048, H, W)."""

    def __init__(self, in_channels: int, config: Config) -> None:
        super().__init__()
        c = config.scaled
        self.branch1x1 = Convolution(c(in_channels), c(320), 1)
        self.branch3x3_1 = Convolution(c(in_channels), c(384), 1)
        self.branch3x3_2a = Convolution(c(384), c(384), (1, 3))
        self.branch3x3_2b = Convolution(c(384), c(384), (3, 1))
        self.branch3x3dbl_1 = Convolution(c(in_channels), c(448), 1)
        self.branch3x3dbl_2 = Convolution(c(448), c(384), 3)
        self.branch3x3dbl_3a = Convolution(c(384), c(384), (1, 3))
        self.branch3x3dbl_3b = Convolution(c(384), c(384), (3, 1))
        self.branch_pool = MeanConvolution(c(in_channels), c(192))

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' maps, joined along channels."""
        branch3x3 = self.branch3x3_1(x)
        branch3x3dbl = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        branches = (
            self.branch1x1(x),
            self.branch3x3_2a(branch3x3),
            self.branch3x3_2b(branch3x3),
            self.branch3x3dbl_3a(branch3x3dbl),
            self.branch3x3dbl_3b(branch3x3dbl),
            self.branch_pool(x),
        )
        return torch.cat(branches, dim=1)


class AuxiliaryHead(nn.Module):
    """Logits from the middle of the network, for training: (N, C, H, W) to (N, classes)."""

    def __init__(self, in_channels: int, config: Config) -> None:
        super().__init__()
        c = config.scaled
        self.conv0 = Convolution(c(in_channels), c(128), 1)
        self.conv1 = Convolution(c(128), c(768), 5, padded=False)
        self.fc = nn.Linear(c(768), config.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        if min(x.shape[2:]) >= 17:  # five windows of 5, 3 apart
            x = F.avg_pool2d(x, 5, stride=3)  # (N, C, 5, 5) or larger
        else:
            x = F.adaptive_avg_pool2d(x, 5)  # (N, C, 5, 5)
        x = self.conv1(self.conv0(x))  # (N, 768, 1, 1) or larger
        logits: Tensor = self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return logits


class InceptionV3(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes).

    The names of its parts are torchvision's, key for key.
    """

    takes = (ImageSpec,)
    auxiliary_weight = 0.4  # of the auxiliary head's loss

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        c = config.scaled
        small = config.stem == "small"
        self.Conv2d_1a_3x3 = Convolution(config.in_channels, c(32), 3, stride=1 if small else 2, padded=small)
        self.Conv2d_2a_3x3 = Convolution(c(32), c(32), 3, padded=small)
        self.Conv2d_2b_3x3 = Convolution(c(32), c(64), 3)
        self.maxpool1 = nn.Identity() if small else nn.MaxPool2d(3, stride=2)
        self.Conv2d_3b_1x1 = Convolution(c(64), c(80), 1)
        self.Conv2d_4a_3x3 = Convolution(c(80), c(192), 3, padded=small)
        self.maxpool2 = nn.MaxPool2d(3, stride=2)

        self.Mixed_5b = InceptionA(192, 32, config)
        self.Mixed_5c = InceptionA(256, 64, config)
        self.Mixed_5d = InceptionA(288, 64, config)
        self.Mixed_6a = InceptionB(288, config)
        self.Mixed_6b = InceptionC(768, 128, config)
        self.Mixed_6c = InceptionC(768, 160, config)
        self.Mixed_6d = InceptionC(768, 160, config)
        self.Mixed_6e = InceptionC(768, 192, config)
        if config.auxiliary:
            self.AuxLogits = AuxiliaryHead(768, config)
        self.Mixed_7a = InceptionD(768, config)
        self.Mixed_7b = InceptionE(1280, config)
        self.Mixed_7c = InceptionE(2048, config)

        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(config.dropout)
        self.fc = nn.Linear(c(2048), config.num_classes)
        self._initialize()

    def _initialize(self) -> None:
        """Draw weights from a normal distribution truncated at ±2.

        The standard deviation is 0.1, or smaller in the auxiliary head's last two layers.
        """
        stds = {"AuxLogits.conv1.conv": 0.01, "AuxLogits.fc": 0.001}
        for name, module in self.named_modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(module.weight, std=stds.get(name, 0.1), a=-2, b=2)

    def _features_and_auxiliary(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the input of the head before dropout, and the logits of the auxiliary head, which runs in training
        only.

        It runs in the middle of the forward pass, so that its backward pass comes when much memory is free again.
        """
        validate_image_size(x, self.config.least_size, "inception-v3")
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))  # (N, 64, 147, 147), from 299
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(self.maxpool1(x)))  # (N, 192, 71, 71)
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(self.maxpool2(x))))  # (N, 288, 35, 35)
        x = self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))  # (N, 768, 17, 17)
        x = self.Mixed_6e(self.Mixed_6d(x))  # (N, 768, 17, 17)
        auxiliary = (self.AuxLogits(x),) if self.training and self.config.auxiliary else ()
        x = self.avgpool(self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x))))  # (N, 2048, 1, 1)
        return x.flatten(1), auxiliary

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head before dropout: the mean over the last map, (N, 2048)."""
        return self._features_and_auxiliary(x)[0]

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the logits, shape (N, classes); in training, with the auxiliary head, those of both heads."""
        features, auxiliary = self._features_and_auxiliary(x)
        logits: Tensor = self.fc(self.dropout(features))
        return (logits, *auxiliary) if auxiliary else logits


Model = InceptionV3

PRESETS = {"inception-v3": Config()}

_NETWORK, _AUXILIARY, _MACS = 23_834_568, 3_326_696, 5_713_216_096

CARD = Card(
    title="Rethinking the Inception architecture for computer vision",
    authors="C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens, Z. Wojna",
    year=2015,
    link="https://arxiv.org/abs/1512.00567",
    family="cnn",
    equation="a = ReLU(BN(W ∗ x)); n×n becomes 1×n, then n×1; modules join windows of several sizes along channels",
    oracle="torchvision's Inception3",
    published={
        "inception-v3": Published(
            _NETWORK + _AUXILIARY,
            _MACS,
            (3, 299, 299),
            "torchvision's weight metadata, which counts the auxiliary head's parameters and has the multiply-adds to "
            "three decimals; in full counted on its network, without that head",
        )
    },
    divergences=(
        Divergence(
            "the network",
            paper="table 1: three 3×3 after the first pool, the second with stride 2; figure 5: 3×3 in module A",
            here="1×1, 3×3, max 3×3 /2 after the first pool; 5×5 in module A",
            common="as here (the authors' release, tensorflow/models; torchvision, name for name)",
        ),
        Divergence(
            "average pooling at the border",
            paper="not specified",
            here="padding counts as zeros",
            common="as here (torchvision); only real pixels (TensorFlow, the source of torchvision's weights; "
            "pytorch-fid)",
        ),
        Divergence(
            "pool of the last module E",
            paper="mean",
            here="mean",
            common="mean (torchvision); the largest (the graph of the Fréchet inception distance, mseitz/pytorch-fid, "
            "an older release with weights of the same shapes)",
        ),
        Divergence(
            "auxiliary head on small maps",
            paper="images are of 299×299 pixels",
            here="windows of 5×5, 3 apart, from a map of 17×17 on; below it 5×5 equal parts",
            common="windows only: torchvision needs images of 299×299 in training",
        ),
        Divergence(
            "weight of the auxiliary loss",
            paper="not specified",
            here=f"{InceptionV3.auxiliary_weight}",
            common="as here (the authors' release)",
        ),
        Divergence(
            "input",
            paper="not specified",
            here="as the data was prepared",
            common="torchvision's weights expect mean and standard deviation 0.5; transform_input=True converts "
            "images normalized with ImageNet's statistics",
        ),
        Divergence(
            "initialization",
            paper="not specified",
            here="normal, standard deviation 0.1, truncated at ±2; in the auxiliary head's last two layers 0.01 and "
            "0.001",
            common="as here (torchvision)",
        ),
        Divergence(
            "size",
            paper="5 billion MACs (multiply-adds), less than 25 million parameters",
            here=f"{_MACS / 1e9:.3f} billion; {_NETWORK / 1e6:.1f} million, and the auxiliary head's "
            f"{_AUXILIARY / 1e6:.1f}",
            common="as here (torchvision)",
        ),
        Divergence(
            "optimizer",
            paper="RMSProp, decay 0.9, ε = 1.0, rate 0.045 times 0.94 every second epoch, gradients clipped at 2",
            here="momentum, with the same clipping; for small gradients RMSProp with ε = 1 is nearly the same",
            common="RMSProp with momentum 0.9 and ε = 1.0 (the authors' release)",
        ),
    ),
    results={
        "inception-v3": (
            imagenet_error(21.2, 5.6, "single crop", "the paper, abstract"),
            torchvision_accuracy("Inception_V3_Weights.IMAGENET1K_V1", 77.294, 93.45),
        ),
    },
    settings={
        # The paper smooths labels by 0.1 (section 7), clips gradients at 2 and has batches of 32 (section 8).
        "inception-v3": {
            "optimizer": "momentum",
            "lr": 0.0125,
            "batch_size": 32,
            "weight_decay": 4e-5,
            "label_smoothing": 0.1,
            "grad_clip": 2.0,
            "schedule": "warmup-cosine",
            "epochs": 30,
            "flip": True,
        }
    },
)
