"""Convolution followed by attention: a small network with first a local and then a global receptive field.

The architecture is our own, the smallest with each part once. Its parts: attention between all positions of a
convolutional map, added to the map, is from X. Wang, R. Girshick, A. Gupta, K. He, Non-local neural networks, 2017
(CVPR 2018) <https://arxiv.org/abs/1711.07971>; several heads and 1/√d are from A. Vaswani et al., Attention is all you
need, 2017 <https://arxiv.org/abs/1706.03762>.

    G = conv₃(conv₂(conv₁(x))),   conv(x) = ReLU(BN(W ∗ x)), halved by max-pooling between
    z_i = g_i + MultiHead(LN(G))_i,   logits = W mean_i z_i + b        g_i: the token of place i in the map G

Shapes, from an image (N, C, H, W), H and W at least 4:
    conv 3×3, BN, ReLU, max over 2×2     (N, 48, H/2, W/2)
    conv 3×3, BN, ReLU, max over 2×2     (N, 96, H/4, W/4)
    conv 3×3, BN, ReLU                   (N, 192, H/4, W/4)     receptive field: 18×18 pixels
    places as tokens                     (N, HW/16, 192)
    attention of 4 heads, added          (N, HW/16, 192)        every place sees every other
    mean over the tokens                 (N, 192)
    linear                               (N, classes)

Images of any size are accepted, with the remainder of a halving dropped; 32×32 pixels are 64 tokens. There are no
position embeddings, as in Wang et al.: attention and mean treat the tokens as a set, and only the padding of the
convolutions carries positional information. The convolutions have no bias: the normalization after them has one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import check_value
from ..core.spec import ImageSpec
from ..nn.attention import MultiHeadAttention
from .base import BaseModel, TokenGrid, validate_image_size
from .card import Card, Divergence, Published
from .config import ValidatedConfig, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    widths: tuple[int, ...] = positive((48, 96, 192))  # channels of each convolution; between two the map is halved
    heads: int = positive(4)  # attention heads; a divisor of the last width
    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    num_classes: int = positive(10)  # size of the output: number of classes; 1 for a number, or for two classes

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = f"a divisor of the last width, {self.widths[-1]}"
        check_value(self.widths[-1] % self.heads == 0, "heads", self.heads, allowed)

    @property
    def least_size(self) -> int:
        """The smallest height and width of an image: one pixel is left after the halvings."""
        return int(2 ** (len(self.widths) - 1))

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`; images of any size are accepted."""
        return dataclasses.replace(preset, in_channels=spec.channels, num_classes=spec.target.outputs)


class CNNAttention(BaseModel):
    """A network that maps images of shape (N, C, H, W) to logits of shape (N, classes)."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        inputs = (config.in_channels, *config.widths)
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size=3, padding=1, bias=False)
            for before, after in zip(inputs, config.widths)
        )
        self.bns = nn.ModuleList(nn.BatchNorm2d(width) for width in config.widths)
        dim = config.widths[-1]
        self.norm = nn.LayerNorm(dim)
        self.attention = MultiHeadAttention(dim, config.heads)
        self.head = nn.Linear(dim, config.num_classes)

    def token_grid(self, height: int, width: int) -> TokenGrid:
        """Return the grid of the pixels of G."""
        return TokenGrid(height // self.config.least_size, width // self.config.least_size)

    def grid(self, x: Tensor) -> Tensor:
        """Return the convolutional map G, (N, D, H/4, W/4) with three convolutions."""
        validate_image_size(x, self.config.least_size, "cnn-attention")
        for i, (conv, bn) in enumerate(zip(self.convs, self.bns)):
            if i > 0:
                x = F.max_pool2d(x, 2)
            x = F.relu(bn(conv(x)), inplace=True)
        return x

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the mean over the tokens, (N, D)."""
        g = self.grid(x).flatten(2).transpose(1, 2)  # (N, T, D), row by row
        z: Tensor = g + self.attention(self.norm(g))
        return z.mean(1)  # (N, D)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (N, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


Model = CNNAttention

PRESETS = {"cnn-attention": Config()}

CARD = Card(
    title="Non-local neural networks",
    authors="X. Wang, R. Girshick, A. Gupta, K. He",
    year=2017,
    link="https://arxiv.org/abs/1711.07971",
    family="cnn",
    equation="z_i = g_i + MultiHead(LN(G))_i; logits = W mean_i z_i + b",
    oracle="torch.nn.Sequential and torch.nn.MultiheadAttention, built by hand",
    published={"cnn-attention": Published(359_866, 33_572_736, (3, 32, 32), "computed from the definition above")},
    divergences=(
        Divergence(
            "the network",
            paper="blocks of attention with one head within a ResNet for video, BN after them",
            here="one layer of four heads after three convolutions; LN before it, as in today's Transformers",
        ),
        Divergence(
            "network of this name",
            paper="none",
            here="three convolutions with normalization; LN before the attention, whose output is added to its input",
            common="in courses two convolutions of 64 and 128 channels without normalization, then "
            "nn.MultiheadAttention without LN and without the sum: 142 986 parameters, from which these sizes are "
            "reconstructed (docs/own_models.md)",
        ),
    ),
    settings={
        "cnn-attention": {
            "optimizer": "adamw",
            "lr": 2e-3,
            "batch_size": 64,
            "weight_decay": 0.05,
            "schedule": "warmup-cosine",
            "warmup": 0.1,
            "grad_clip": 1.0,
            "epochs": 20,
        }
    },
)
