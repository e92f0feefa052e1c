"""AlexNet: the one tower in common use, and the two-tower original of 2012.

A. Krizhevsky, I. Sutskever, G. Hinton, ImageNet classification with deep convolutional neural networks, 2012.
<https://papers.nips.cc/paper/2012/hash/c399862d3b9d6b76c8436e924a68c45b-Abstract.html>
The one tower is after A. Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014.
<https://arxiv.org/abs/1404.5997>

    a = max(0, W ∗ x + c);    b_i = a_i / (k + α Σ_j a_j²)^β,   j from i − n/2 to i + n/2 among all maps of the layer

The second equation is local response normalization, b in place of a after the first two layers of the original, with
k = 2, n = 5, α = 10⁻⁴, β = 0.75. Shapes, `alexnet` from (N, C, 224, 224), `alexnet-2012` from (N, C, 227, 227):

    layer                                   alexnet            alexnet-2012
    conv1   11×11, stride 4                 (N,  64, 55, 55)   (N,  96, 55, 55)
            max over 3×3, stride 2          (N,  64, 27, 27)   (N,  96, 27, 27)   normalized first
    conv2   5×5                             (N, 192, 27, 27)   (N, 256, 27, 27)   two towers
            max over 3×3, stride 2          (N, 192, 13, 13)   (N, 256, 13, 13)   normalized first
    conv3   3×3                             (N, 384, 13, 13)   (N, 384, 13, 13)   the towers see each other
    conv4   3×3                             (N, 256, 13, 13)   (N, 384, 13, 13)   two towers
    conv5   3×3                             (N, 256, 13, 13)   (N, 256, 13, 13)   two towers
            max over 3×3, stride 2          (N, 256,  6,  6)   (N, 256,  6,  6)
    fc6, fc7, fc8                           (N, 4096), (N, 4096), (N, classes)

A layer in two towers is a convolution in two groups: each half of its feature maps takes one half of those before, as
the original was split over two GPUs. More than half of all parameters are in fc6. With `stem="small"`, for images of
few pixels, conv1 is 3×3 with stride 1 and the grid before fc6 is 3×3: the last map of a 32×32 image.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

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

    form: str = choice("2014", ("2014", "2012"))  # 2014: one tower, as torchvision; 2012: two towers, as published
    stem: str = choice("imagenet", ("imagenet", "small"))  # 11×11, stride 4; small: 3×3, stride 1, for few pixels
    widths: tuple[int, ...] = positive((64, 192, 384, 256, 256))  # channels of five convolutions; even in two towers
    hidden_dim: int = positive(4096)  # units of fc6 and of fc7
    dropout: float = fraction(0.5)  # dropout rate around fc6 and fc7
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(1000)  # logits

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = f"five numbers, each divisible by the number of towers, {self.towers}"
        check_value(
            len(self.widths) == 5 and all(w % self.towers == 0 for w in self.widths), "widths", self.widths, allowed
        )

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec` for images of at least `least_size`."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)

    @property
    def towers(self) -> int:
        """Groups of conv2, conv4 and conv5."""
        return 2 if self.form == "2012" else 1

    @property
    def conv1(self) -> tuple[int, int, int]:
        """Kernel, stride and padding of the first convolution: 55×55 from 224×224 in one form, 227×227 in the other."""
        if self.stem == "small":
            return 3, 1, 1
        return 11, 4, 0 if self.form == "2012" else 2

    @property
    def grid(self) -> int:
        """Cells of the last feature maps, in height and width."""
        return 6 if self.stem == "imagenet" else 3

    @property
    def least_size(self) -> int:
        """Smallest height and width of an image: one pixel is left of it in the last feature maps."""
        side = 1
        for _ in range(3):  # what a max over 3×3 with stride 2 needs to leave `side` pixels
            side = 2 * side + 1
        kernel, stride, padding = self.conv1
        return stride * (side - 1) + kernel - 2 * padding


class LocalResponse(nn.LocalResponseNorm):
    """Local response normalization, b of the equation above, over the channels of (N, C, H, W).

    PyTorch's α is n times the paper's, because PyTorch divides it by n.
    """

    def __init__(self, k: float = 2.0, n: int = 5, alpha: float = 1e-4, beta: float = 0.75) -> None:
        super().__init__(n, alpha=n * alpha, beta=beta, k=k)

    def forward(self, x: Tensor) -> Tensor:
        """Return each channel, reduced where its neighbours are large."""
        return local_response_norm(x, self.size, alpha=self.alpha, beta=self.beta, k=self.k)


def overlapping_max_pool(x: Tensor) -> Tensor:
    """Apply the max over overlapping windows: (N, C, H, W) to (N, C, (H − 1)/2, (W − 1)/2)."""
    return F.max_pool2d(x, kernel_size=3, stride=2)


class AlexNet(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes).

    Its layers have the papers' numbers.
    """

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        first, second, third, fourth, fifth = config.widths
        kernel, stride, padding = config.conv1
        self.conv1 = nn.Conv2d(config.in_channels, first, kernel, stride, padding)
        self.norm1, self.norm2 = (LocalResponse() if config.form == "2012" else None for _ in range(2))
        self.conv2 = nn.Conv2d(first, second, 5, padding=2, groups=config.towers)
        self.conv3 = nn.Conv2d(second, third, 3, padding=1)
        self.conv4 = nn.Conv2d(third, fourth, 3, padding=1, groups=config.towers)
        self.conv5 = nn.Conv2d(fourth, fifth, 3, padding=1, groups=config.towers)
        self.avgpool = nn.AdaptiveAvgPool2d(config.grid)
        self.fc6 = nn.Linear(fifth * config.grid**2, config.hidden_dim)
        self.fc7 = nn.Linear(config.hidden_dim, config.hidden_dim)
        self.fc8 = nn.Linear(config.hidden_dim, config.num_classes)
        if config.form == "2012" and config.stem == "imagenet":
            self.initialize()

    def initialize(self) -> None:
        """Initialize as in section 5: weights of standard deviation 0.01, and biases of 1 where ReLUs need positive
        inputs.

        It is meant for the many inputs of the published layers. With the few inputs of a small stem, almost no signal
        would pass.
        """
        ones = (self.conv2, self.conv4, self.conv5, self.fc6, self.fc7)
        for layer in (self.conv1, self.conv3, self.fc8, *ones):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.constant_(layer.bias, float(layer in ones))  # type: ignore[arg-type]  # every layer has a bias

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: fc7, (N, 4096)."""
        validate_image_size(x, self.config.least_size, "alexnet")
        x = self._norm_and_pool(self.conv1(x), self.norm1)  # (N, 64, 27, 27); (N, 96, 27, 27) in two towers
        x = self._norm_and_pool(self.conv2(x), self.norm2)  # (N, 192, 13, 13); (N, 256, 13, 13)
        x = F.relu(self.conv3(x), inplace=True)  # (N, 384, 13, 13)
        x = F.relu(self.conv4(x), inplace=True)  # (N, 256, 13, 13); (N, 384, 13, 13)
        x = F.relu(overlapping_max_pool(self.conv5(x)), inplace=True)  # (N, 256, 6, 6)
        x = self.avgpool(x).flatten(1)  # (N, 256·6·6)
        # The 2014 form applies dropout to the inputs of fc6 and fc7; the original to their outputs.
        if self.config.form == "2014":
            x = self._dropout(x)
        x = self._dropout(F.relu(self.fc6(x), inplace=True))  # (N, 4096)
        x = F.relu(self.fc7(x), inplace=True)  # (N, 4096)
        return self._dropout(x) if self.config.form == "2012" else x

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.fc8(self.features(x))
        return logits

    def _norm_and_pool(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        """Apply normalization, ReLU and max pooling between conv1 and conv2, and between conv2 and conv3."""
        if norm is not None:
            return overlapping_max_pool(norm(F.relu(x, inplace=True)))
        return F.relu(
            overlapping_max_pool(x), inplace=True
        )  # max and ReLU give the same in either order, this one on fewer pixels

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)


Model = AlexNet

PRESETS = {
    "alexnet": Config(),
    "alexnet-2012": Config(form="2012", widths=(96, 256, 384, 384, 256)),
}

_TORCHVISION = (
    "torchvision's weight metadata, which has the multiply-adds to three decimals; in full counted on its network"
)
_LAYER_SIZES = "computed from the layer sizes of Caffe's bvlc_alexnet, which are the paper's"

# Section 5 of the original, for 1.2 million images: 90 epochs, learning rate divided by 10 three times (epochs
# not specified).
_AS_PUBLISHED = {
    "optimizer": "momentum",
    "lr": 0.01,
    "momentum": 0.9,
    "batch_size": 128,
    "weight_decay": 5e-4,
    "schedule": "step",
    "milestones": (0.4, 0.7, 0.9),
    "gamma": 0.1,
    "epochs": 90,
    "flip": True,
}
# On 4 000 images of CIFAR-10 (stem=small, a quarter of the channels) momentum at 0.01 was still guessing after 180
# updates; with AdamW the loss fell from the thirtieth on.
_ON_PHOTOGRAPHS = {
    "optimizer": "adamw",
    "lr": 3e-4,
    "batch_size": 64,
    "schedule": "warmup-cosine",
    "epochs": 30,
    "flip": True,
}

CARD = Card(
    title="ImageNet classification with deep convolutional neural networks",
    authors="A. Krizhevsky, I. Sutskever, G. Hinton",
    year=2012,
    link="https://papers.nips.cc/paper/2012/hash/c399862d3b9d6b76c8436e924a68c45b-Abstract.html",
    family="cnn",
    equation="a = max(0, W ∗ x + c); b_i = a_i / (k + α Σ_j a_j²)^β, |j − i| ≤ n/2",
    oracle="torchvision's AlexNet; the original: a plain network with separate towers, each sum by its formula",
    published={
        "alexnet": Published(61_100_840, 714_188_480, (3, 224, 224), _TORCHVISION),
        "alexnet-2012": Published(60_965_224, 724_406_816, (3, 227, 227), _LAYER_SIZES),
    },
    divergences=(
        Divergence(
            "towers and widths",
            paper="2012: two towers, 96-256-384-384-256",
            here="alexnet-2012: the same; alexnet: one tower, 64-192-384-256-256, of Krizhevsky's 2014 paper",
            common="torchvision and most others: one tower; Caffe: two",
        ),
        Divergence(
            "size of the image",
            paper="224×224, for which 11×11 with stride 4 gives 54 pixels, not the 55 of the later layers",
            here="alexnet-2012: 227×227; alexnet: 224×224 with two pixels of padding",
            common="Caffe: 227×227; torchvision: 224×224 with padding",
        ),
        Divergence(
            "normalization",
            paper="after the ReLU of conv1 and conv2, over all feature maps of the layer, α not divided by n",
            here="alexnet-2012: the same; alexnet: none",
            common="torchvision: none; Caffe: α divided by n, k = 1; Krizhevsky's later cuda-convnet2: within "
            "each tower, in conv1 before the ReLU",
        ),
        Divergence(
            "dropout",
            paper="2012: on the outputs of fc6 and fc7, which are halved at test time; 2014: not stated",
            here="alexnet-2012: on their outputs; alexnet: on their inputs; doubled in training instead",
            common="torchvision: on their inputs; Caffe: on their outputs; both doubled in training",
        ),
        Divergence(
            "initialization",
            paper="2012: weights of standard deviation 0.01, biases 1 in conv2, conv4, conv5, fc6 and fc7, else 0",
            here="alexnet-2012: the same, with stem=small PyTorch's own; alexnet: PyTorch's own",
            common="torchvision: PyTorch's own; Caffe: biases of 0.1, fc6 and fc7 of standard deviation 0.005",
        ),
        Divergence(
            "units of conv1",
            paper="253 440, in its list of units by layer; its own sizes give 55·55·96 = 290 400",
            here="290 400",
        ),
        Divergence(
            "last feature maps",
            paper="6×6 at the fixed image size",
            here="average pooling to 6×6 for any image size",
            common="as here (torchvision)",
        ),
        Divergence(
            "optimizer",
            paper="2012: momentum 0.9 at 0.01, divided by 10 whenever the validation error stopped falling, three "
            "times in 90 epochs",
            here="alexnet-2012: the same, divided at fixed fractions of training; alexnet: AdamW, warm-up and cosine",
        ),
    ),
    results={
        "alexnet": (torchvision_accuracy("AlexNet_Weights.IMAGENET1K_V1", 56.522, 79.066),),
        "alexnet-2012": (
            imagenet_error(40.7, 18.2, "10 crops, validation of 2012", "the paper, table 2"),
            imagenet_error(37.5, 17.0, "10 crops, test of 2010", "the paper, table 1"),
        ),
    },
    settings={"alexnet": _ON_PHOTOGRAPHS, "alexnet-2012": _AS_PUBLISHED},
)
